"""Where a consumer's offsets are kept: with the broker of each queue, or at home.

- `BrokerOffsets`: the members of a group share one offset per queue, which its broker keeps (14, 15). The first sure
  commit to a topic there goes alone, the others follow its reply: when the first commits of a group to a topic come
  at once, Apache's brokers keep those of one thread only (ConsumerOffsetManager.java `commitOffset`, 4.9 and 5.3).
- `LocalOffsets`: every member of a broadcasting group has its own. They live here, and are written down by
  `Persist` every commit interval and at the end; what was kept last is given back when the node is made anew.
  An offset stays known when its queue is given up: a broker that is missing for a while takes no offset
  along (apache/rocketmq#4016).

Source: client/consumer/store/RemoteBrokerOffsetStore.java, LocalFileOffsetStore.java.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Protocol

from steelyard.nodes.consumer.remoting.peers import LastCommitSent, OffsetAsked, OffsetTold, Peers
from steelyard.nodes.seam import Address, Effect, Persist
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import OffsetTable
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

Told = LastCommitSent | OffsetTold
"""What a sure commit is for."""


class Pending(Enum):
    """In place of an offset: it was asked for."""

    PENDING = "pending"


PENDING: Final = Pending.PENDING


class OffsetStore(Protocol):
    """See the module's text. `address`: of the queue's broker."""

    def ask(
        self, asked: OffsetAsked, address: Address, now: int, effects: list[Effect]
    ) -> int | Pending | None:
        """The offset of a queue, None where there is none; PENDING: the answer comes under `asked`."""

    def write(
        self,
        queue: MessageQueue,
        address: Address,
        offset: int,
        effects: list[Effect],
        *,
        handed: int | None = None,
    ) -> None:
        """Commit. Nobody says whether it arrived. `handed`: see `LastCommitSent`."""

    def write_surely(
        self,
        told: Told,
        address: Address,
        offset: int,
        now: int,
        effects: list[Effect],
    ) -> bool:
        """Commit. True: the outcome comes under `told`, and the node passes it to `answered`; False: it is done."""

    def answered(
        self, queue: MessageQueue, address: Address, now: int, effects: list[Effect]
    ) -> None:
        """A `write_surely` has ended, well or not."""

    def keep(self, effects: list[Effect]) -> None:
        """Time to write down what is not."""


class BrokerOffsets:
    """Offsets of the group, at the brokers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._begun: set[tuple[Address, str]] = set()
        """Brokers and topics where a sure commit has ended."""
        self._first: dict[tuple[Address, str], deque[tuple[Told, int]]] = {}
        """Where the first commit is under way: what waits for it."""

    def ask(self, asked: OffsetAsked, address: Address, now: int, effects: list[Effect]) -> Pending:
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=asked.queue.topic,
            queue_id=asked.queue.queue_id,
            set_zero_if_not_found=False if self._peers.config.consume_strictly else None,
        )
        self._peers.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header, asked, now, effects)
        return PENDING

    def write(
        self,
        queue: MessageQueue,
        address: Address,
        offset: int,
        effects: list[Effect],
        *,
        handed: int | None = None,
    ) -> None:
        self._peers.calls.tell(address, self._command(queue, offset, handed), effects)

    def write_surely(
        self, told: Told, address: Address, offset: int, now: int, effects: list[Effect]
    ) -> bool:
        place = (address, told.queue.topic)
        if place in self._first:
            self._first[place].append((told, offset))
            return True
        if place not in self._begun:
            self._first[place] = deque()
        handed = told.handed if isinstance(told, LastCommitSent) else None
        self._peers.call(address, self._command(told.queue, offset, handed), told, now, effects)
        return True

    def answered(
        self, queue: MessageQueue, address: Address, now: int, effects: list[Effect]
    ) -> None:
        place = (address, queue.topic)
        self._begun.add(place)
        for told, offset in self._first.pop(place, ()):
            self.write_surely(told, address, offset, now, effects)

    def keep(self, effects: list[Effect]) -> None:
        """The brokers keep them."""

    def _command(self, queue: MessageQueue, offset: int, handed: int | None) -> Command:
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=self._peers.config.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            handed_offset=handed,
        )
        return Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext=headers.write(header))


class LocalOffsets:
    """Offsets of this member. `kept`: the data of the last `Persist` of its life before, empty for the first."""

    def __init__(self, kept: bytes) -> None:
        self._offsets = read_kept(kept)
        self._written = dict(self._offsets)

    def get(self, queue: MessageQueue) -> int | None:
        """The offset of a queue, None where there is none."""
        return self._offsets.get(queue)

    def ask(
        self, asked: OffsetAsked, address: Address, now: int, effects: list[Effect]
    ) -> int | None:
        return self.get(asked.queue)

    def write(
        self,
        queue: MessageQueue,
        address: Address,
        offset: int,
        effects: list[Effect],
        *,
        handed: int | None = None,
    ) -> None:
        self._offsets[queue] = offset

    def write_surely(
        self, told: Told, address: Address, offset: int, now: int, effects: list[Effect]
    ) -> bool:
        self.write(told.queue, address, offset, effects)
        return False

    def answered(
        self, queue: MessageQueue, address: Address, now: int, effects: list[Effect]
    ) -> None:
        raise AssertionError("nobody was asked")

    def keep(self, effects: list[Effect]) -> None:
        if self._offsets == self._written:
            return
        self._written = dict(self._offsets)
        effects.append(Persist(fastjson.write(OffsetTable(self._written))))


def read_kept(data: bytes) -> dict[MessageQueue, int]:
    """The offsets in the data of a `Persist`, or in a file of a Java client. Raises ProtocolError."""
    if not data:
        return {}
    table = fastjson.read(OffsetTable, data).offset_table
    return {queue: offset for queue, offset in table.items() if offset >= 0}
