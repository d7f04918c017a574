"""A topic that is compacted: producers write to few keys, and the last value of none may be lost.

Nobody consumes it: the law is about logs. Whenever a broker has started, and in the end, the last
entry of each key in a queue must be the last one that was acknowledged there, or a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from steelyard.nodes.admin import Invoke
from steelyard.nodes.producer import SendMessages
from steelyard.nodes.seam import Address
from steelyard.sim.world import Process, Violation, World
from steelyard.store.store import Store
from steelyard.types import Message, MessageQueue, SendResult
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.names import DEFAULT_TOPIC

TABLE_TOPIC = "Table"
QUEUES = 1
"""Of the topic on each broker."""
COMPACTION_INTERVAL_MS = 500
AGAIN_MS = 1_000
TIMEOUT_MS = 2_000
ALL = 1_000_000_000


class CompactedTable:
    """The topic, and what was written to it."""

    def __init__(self, world: World, keys: int, body_bytes_max: int) -> None:
        self._world = world
        self._keys = keys
        self._body_bytes_max = body_bytes_max
        self._sent: list[tuple[str, bytes]] = []
        """Key and body of each message, by its number."""
        self._acknowledged: dict[tuple[MessageQueue, str], int] = {}
        """The last offset of each key."""
        self.removed = 0
        """Offsets without a message, when the logs were looked at last."""

    # -- what happens ------------------------------------------------------------------------------

    def create(self, admin: Process, brokers: Sequence[Address]) -> None:
        """Create the topic on every broker; repeated until done."""
        for address in brokers:
            self._create(admin, address)

    def _create(self, admin: Process, address: Address) -> None:
        header = headers.CreateTopicRequestHeader(
            topic=TABLE_TOPIC,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            attributes="+cleanup.policy=COMPACTION",
        )
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=headers.write(header))

        def replied(result: object) -> None:
            if not isinstance(result, Command) or result.code != ResponseCode.SUCCESS:
                self._world.after(AGAIN_MS, lambda: self._create(admin, address))

        admin.ask(Invoke(address, command, TIMEOUT_MS), replied)

    def write(self, producer: Process, rng: Random) -> None:
        """Send a new value of some key."""
        number, key = len(self._sent), f"key{rng.randrange(self._keys)}"
        body = b"%d" % number + b"." * rng.randrange(self._body_bytes_max + 1)
        self._sent.append((key, body))
        message = Message(TABLE_TOPIC, body, keys=key)
        producer.ask(SendMessages((message,)), partial(self._answered, key))

    def _answered(self, key: str, result: object) -> None:
        if isinstance(result, SendResult):
            place = result.queue, key
            self._acknowledged[place] = max(result.queue_offset, self._acknowledged.get(place, -1))

    # -- the law -----------------------------------------------------------------------------------

    def check(self, broker: str, store: Store) -> None:
        """Check the logs of a broker. Raises Violation."""
        for log in store.logs(TABLE_TOPIC):
            queue = MessageQueue(TABLE_TOPIC, broker, log.queue_id)
            last: dict[str, int] = {}
            offset, count = log.min_offset, 0
            while offset < log.max_offset:
                read = log.read(offset, ALL, ALL)
                for view in decode_records(read.data, broker):
                    view.verify()
                    if view.queue_offset < offset:
                        raise Violation(f"{queue}: {view.queue_offset} comes after {offset}")
                    key, body = self._sent[int(view.body.split(b".")[0])]
                    if (view.properties.get("KEYS"), view.body) != (key, body):
                        raise Violation(f"{queue}: {view.queue_offset} is not what was sent")
                    last[key] = view.queue_offset
                    offset, count = view.queue_offset + 1, count + 1
                offset = max(offset, read.next_offset)
            for (where, key), acknowledged in self._acknowledged.items():
                if where == queue and last.get(key, -1) < acknowledged:
                    raise Violation(
                        f"{queue}: the last value of {key}, at {acknowledged}, is lost;"
                        f" {last.get(key)} is left"
                    )
            self.removed = max(self.removed, log.max_offset - log.min_offset - count)
