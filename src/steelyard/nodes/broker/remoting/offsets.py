"""Offsets: how far groups have come, and how far queues reach.

| code | request | answer |
|---|---|---|
| 14 | committed offset of a group | see `query`; 22 if there is none |
| 15 | commit an offset, mostly one-way | 17 for an unknown topic, 29 for a missing queue |
| 29 | first offset stored at or after a time | |
| 30, 31 | one past the last offset, the first offset | 0 for a queue without messages |
| 32 | when the first message was stored | -1 for a queue without messages |
| 33 | one message by its address | 1 if there is none |

Committed offsets are stored in the table `offsets`, from `group@topic@queue` to the offset in
decimal, whenever a commit moves one. An offset may move back: that is how operators reset a group.
Source: broker/processor/ConsumerManageProcessor.java, broker/offset/ConsumerOffsetManager.java.
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.conversion.to_rocketmq import Conversion
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.handovers import Handovers
from steelyard.nodes.broker.remoting.stored import check_entry
from steelyard.nodes.broker.requests import Peer, RemotingRequest, serves
from steelyard.nodes.broker.topics import check_group
from steelyard.nodes.seam import Effect
from steelyard.store.log import Log
from steelyard.store.tables import Table
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.headers import UpdateConsumerOffsetRequestHeader

OFFSETS_MAX = 1_000_000
"""Maximum of committed offsets, one for each group, topic and queue."""

YOUNG_LOG_BYTES = 1 << 30
"""Maximum size of a young queue: groups new to it start at its beginning.

RocketMQ asks whether the message is in memory, by default 40 % of the machine's
(checkInMemByConsumeOffset).
"""

Queue = tuple[str, int]
"""Topic and queue id."""


class CommittedOffsets:
    """The committed offsets of all groups, stored on the disk."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._groups: dict[str, dict[Queue, int]] = {}
        self._count = 0
        for key, value in table.items():
            group, topic, queue_id = key.split("@")
            self._groups.setdefault(group, {})[(topic, int(queue_id))] = int(value)
            self._count += 1

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        offsets = self._groups.get(group)
        return None if offsets is None else offsets.get((topic, queue_id))

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store an offset; return whether it moved.

        Raises ProtocolError for an invalid group or too many offsets, StorageError.
        """
        offsets = self._groups.get(group)
        if offsets is None:
            check_group(group)
            offsets = {}
        old = offsets.get((topic, queue_id))
        if old == offset:
            return False
        if old is None and self._count >= OFFSETS_MAX:
            raise ProtocolError(f"more than {OFFSETS_MAX} committed offsets")
        self._table.put(f"{group}@{topic}@{queue_id}", b"%d" % offset)
        offsets[(topic, queue_id)] = offset
        self._groups[group] = offsets
        self._count += old is None
        return True

    def of_group(self, group: str) -> dict[Queue, int]:
        """Return a copy of all offsets of a group."""
        return dict(self._groups.get(group, {}))

    def of_topics(self, group: str, topics: Iterable[str]) -> list[tuple[str, int, int]]:
        """Return topic, queue id and offset of each offset of a group in these topics."""
        wanted = set(topics)
        return [
            (topic, queue_id, offset)
            for (topic, queue_id), offset in self._groups.get(group, {}).items()
            if topic in wanted
        ]

    def groups(self) -> list[str]:
        """Return the groups that have committed an offset, sorted."""
        return sorted(self._groups)

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have committed an offset of the topic."""
        return {
            group
            for group, offsets in self._groups.items()
            if any(queue[0] == topic for queue in offsets)
        }

    def delete_group(self, group: str) -> None:
        self._delete(group, list(self._groups.get(group, {})))

    def delete_topic(self, topic: str) -> None:
        for group, offsets in list(self._groups.items()):
            self._delete(group, [queue for queue in offsets if queue[0] == topic])

    def _delete(self, group: str, queues: list[Queue]) -> None:
        for topic, queue_id in queues:
            self._table.delete(f"{group}@{topic}@{queue_id}")
            del self._groups[group][(topic, queue_id)]
            self._count -= 1
        if group in self._groups and not self._groups[group]:
            del self._groups[group]

    def check(self) -> None:
        assert all(self._groups.values())
        assert self._count == sum(map(len, self._groups.values())) <= OFFSETS_MAX
        for group, offsets in self._groups.items():
            for (topic, queue_id), offset in offsets.items():
                assert offset >= 0
                assert self._table.get(f"{group}@{topic}@{queue_id}") == b"%d" % offset


class OffsetHandlers:
    """Handlers of the requests above."""

    def __init__(
        self,
        parts: Parts,
        committed: CommittedOffsets,
        handovers: Handovers,
        conversion: Conversion,
    ) -> None:
        self._handovers = handovers
        self._conversion = conversion
        self._topics = parts.topics
        self._committed = committed
        self._store = parts.store
        self._durability = parts.durability
        self._ledger = parts.ledger

    @serves(RequestCode.QUERY_CONSUMER_OFFSET)
    def query(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Return the committed offset; without one, 0 in a young queue, else 22.

        It is also 22 if the peer does not want the 0. An empty queue is young, as in 4.9. (5.x
        gives 22, and the client may then miss what is stored before it asks for the end.)
        """
        header = request.header(headers.QueryConsumerOffsetRequestHeader)
        offset = self._committed.get(header.consumer_group, header.topic, header.queue_id)
        if offset is None and header.set_zero_if_not_found is not False:
            log = self._store.log(header.topic, header.queue_id)
            if self._topics.get(header.topic) is not None and (log is None or _young(log)):
                offset = 0
        if offset is None:
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            )
        key = (header.consumer_group, header.topic, header.queue_id)
        self._handovers.told(key, request.peer.link, offset, now)
        return request.reply(ext={"offset": str(offset)})

    def commit(
        self, request: RemotingRequest, header: UpdateConsumerOffsetRequestHeader, now: int
    ) -> Command:
        """Handle 15 for `pull`, which receives it."""
        config = self._topics.get(header.topic)
        if config is None:
            remark = f"Topic {header.topic} not exist!"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= header.queue_id < queues or header.commit_offset < 0:
            remark = f"queue {header.queue_id}, offset {header.commit_offset}: out of range"
            return request.reply(ResponseCode.INVALID_PARAMETER, remark)
        self.store(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
            request.peer,
            now,
            handed=header.handed_offset,
            handed_ms=header.handed_ms,
        )
        return request.reply()

    def store(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        peer: Peer,
        now: int,
        *,
        handed: int | None = None,
        handed_ms: int | None = None,
    ) -> None:
        """Commit a checked offset; tell the ledger if it moved or comes with `handed`."""
        moved = self._committed.put(group, topic, queue_id, offset)
        if moved or handed is not None:
            self._ledger.committed(
                group, topic, queue_id, offset, peer, now, handed=handed, handed_ms=handed_ms
            )

    @serves(RequestCode.GET_MAX_OFFSET)
    def max_offset(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.QueueRequestHeader)
        log = self._store.log(header.topic, header.queue_id)
        offset = 0 if log is None else self._readable_end(log)
        return request.reply(ext={"offset": str(offset)})

    @serves(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.QueueRequestHeader)
        log = self._store.log(header.topic, header.queue_id)
        return request.reply(ext={"offset": "0" if log is None else str(log.min_offset)})

    @serves(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    def search(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.SearchOffsetRequestHeader)
        log = self._store.log(header.topic, header.queue_id)
        upper = (header.boundary_type or "").upper() == "UPPER"
        offset = 0
        if log is not None:
            offset = min(log.offset_at_time(header.timestamp, upper), self._readable_end(log))
        return request.reply(ext={"offset": str(offset)})

    def _readable_end(self, log: Log) -> int:
        """Return where a pull finds nothing more, for now: not inside of a Kafka transaction."""
        return self._conversion.readable_end(log, self._durability.readable_end(log))

    @serves(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.QueueRequestHeader)
        log = self._store.log(header.topic, header.queue_id)
        empty = log is None or log.min_offset == log.max_offset
        stored = -1 if log is None or empty else log.stored_at(log.min_offset)
        return request.reply(ext={"timestamp": str(stored)})

    @serves(RequestCode.VIEW_MESSAGE_BY_ID)
    def view(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.ViewMessageRequestHeader)
        entry = None if header.offset < 0 else self._store.at_address(header.offset)
        if entry is None:
            remark = f"can not find message by the offset, {header.offset}"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        check_entry(request, entry)
        return request.reply(body=entry)


def _young(log: Log) -> bool:
    """Return whether the queue has lost no message yet and is small."""
    return log.min_offset == 0 and log.size() <= YOUNG_LOG_BYTES
