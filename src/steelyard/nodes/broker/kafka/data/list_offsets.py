"""2 ListOffsets, versions 1-11: the offset at a time, or at one end of a log.

| timestamp | since version | meaning |
|---|---|---|
| -1 | 1 | the end: one past the last offset that the reader may read |
| -2 | 1 | the begin |
| -3 | 7 | the record with the largest timestamp |
| -4 | 8 | the begin of what is local: of the whole log |
| -5 | 9 | the end of what was moved to another tier: nothing was, so -1 |
| -6 | 11 | the begin of what is yet to be moved there: of the whole log |
| 0 and later | 1 | the first record with this timestamp or a later one; -1 without one |

With isolation_level 1, the reader may read up to the last stable offset. Other timestamps are
UNSUPPORTED_VERSION, and a partition that is named twice is INVALID_REQUEST.

A request may take long, because the timestamps of a log are read when they are first needed, and a
batch is unpacked to find a record in it. It is therefore answered in steps (`turns`).
Source: core/kafka/server/ReplicaManager.fetchOffset,
storage/internals/log/UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from steelyard.errors import CorruptError, ProtocolError, StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.data.partitions import LEADER_EPOCH, Partitions, epoch_fault
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.turns import AT_ONCE, SLICE, Steps
from steelyard.nodes.seam import Effect
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logs import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from steelyard.wire.kafka.records import read_header
from steelyard.wire.kafka.schema import ApiMessage
from steelyard.wire.kafka.unpacking import Unpacking

_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOTHING = (-1, -1)

STEP_PARTITIONS = 500
STEP_RECORDS = 1_000
AT_ONCE_BYTES = 4_096
"""Largest uncompressed batch that is read without waiting for a turn."""

Found = tuple[int, int]
"""Offset and timestamp."""


class ListOffsets:
    """The handler of ListOffsets."""

    def __init__(
        self,
        partitions: Partitions,
        producers: Producers,
        durability: Durability,
        faults: Faults,
    ) -> None:
        self._partitions = partitions
        self._producers = producers
        self._durability = durability
        self._faults = faults

    @serves(ListOffsetsRequest)
    def list_offsets(self, call: OpenRequest, now: int, effects: list[Effect]) -> Steps[ApiMessage]:
        request = call.read(ListOffsetsRequest)
        named = Counter(
            (topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        )
        committed = request.isolation_level == 1
        topics = []
        done = 0
        for topic in request.topics:
            answers = []
            for part in topic.partitions:
                index = part.partition_index
                done += 1
                if done % STEP_PARTITIONS == 0:
                    yield
                try:
                    if named[topic.name, index] > 1:
                        answer = ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
                    else:
                        answer = yield from self._one(topic.name, part, call.version, committed)
                except CorruptError:
                    answer = ListOffsetsPartitionResponse(index, ErrorCode.CORRUPT_MESSAGE)
                except StorageError as error:
                    self._faults.note(f"{topic.name}-{index} was not read: {error}")
                    answer = ListOffsetsPartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR)
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return ListOffsetsResponse(0, topics)

    def _one(
        self, topic: str, part: ListOffsetsPartition, version: int, committed: bool
    ) -> Steps[ListOffsetsPartitionResponse]:
        index, timestamp = part.partition_index, part.timestamp
        if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
            return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
        place = self._partitions.find(topic, index)
        fault = place.read_fault or epoch_fault(part.current_leader_epoch)
        if fault:
            return ListOffsetsPartitionResponse(index, fault)
        offset, found_at = yield from self._found(place.log, timestamp, committed)
        epoch = LEADER_EPOCH if offset >= 0 else -1
        return ListOffsetsPartitionResponse(index, 0, found_at, offset, epoch)

    def _found(self, log: Log | None, timestamp: int, committed: bool) -> Steps[Found]:
        if timestamp == LATEST_TIERED:
            return _NOTHING
        if log is None:
            return (0, -1) if timestamp in (LATEST, *_BEGINS) else _NOTHING
        if timestamp in _BEGINS:
            return log.min_offset, -1
        if timestamp != LATEST:
            while not log.learn_times(None if timestamp == MAX_TIMESTAMP else timestamp):
                yield
            if timestamp == MAX_TIMESTAMP:
                found = yield from _largest(log)
            else:
                found = yield from first_at(log, timestamp)
        if committed:
            end = self._producers.last_stable(log)
        else:
            end = self._durability.readable_end(log)
        if timestamp == LATEST:
            return end, -1
        return _NOTHING if found is None or found[0] >= end else found


_BEGINS = (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD)


def first_at(log: Log, timestamp: int) -> Steps[Found | None]:
    """Return the first record with this timestamp or a later one."""
    start = log.min_offset
    while True:
        entry = log.offset_for_timestamp(timestamp, start)
        if entry is None:
            return None
        batch = yield from _batch(log, entry[0])
        if batch is None:
            return entry
        for some in _times(batch):
            if some is None:
                yield
                continue
            for offset, found_at in some:
                if found_at >= timestamp and offset >= start:
                    return offset, found_at
        if not batch.reached and batch.header.count:
            return entry
        start = max(start, entry[0], batch.header.last_offset) + 1


def _largest(log: Log) -> Steps[Found | None]:
    """Return the first record with the largest timestamp."""
    low = log.min_offset
    batch = (yield from _batch(log, low)) if low < log.max_offset else None
    if batch is None or batch.header.base_offset == low:
        return (yield from _exact(log, log.max_timestamp()))
    # The log begins inside a batch, whose largest timestamp may be that of a deleted record.
    best: Found | None = None
    for some in _times(batch):
        if some is None:
            yield
            continue
        for found in some:
            if found[0] >= low and (best is None or found[1] > best[1]):
                best = found
    rest = yield from _exact(log, log.max_timestamp(batch.header.next_offset))
    if best is None or rest is None:
        return best or rest
    return rest if rest[1] > best[1] else best


def _exact(log: Log, entry: Found | None) -> Steps[Found | None]:
    """Return the first record of an entry that has the entry's timestamp."""
    batch = None if entry is None else (yield from _batch(log, entry[0]))
    if entry is None or batch is None:
        return entry
    for some in _times(batch):
        if some is None:
            yield
            continue
        for found in some:
            if found[1] == entry[1]:
                return found
    return entry


def _batch(log: Log, offset: int) -> Steps[Unpacking | None]:
    """Return the batch that holds an offset; None for a RocketMQ message, or if there is none.

    Large and compressed batches are begun in a turn, so that memory is needed for one at a time.
    """
    offset = max(offset, log.min_offset)
    if log.find_run(offset, 0, log.max_offset).size > AT_ONCE_BYTES:
        yield
    run = log.read_run(offset, 0)
    if run.kind != BATCHES or not run.data:
        return None
    try:
        header = read_header(run.data)
    except ProtocolError:
        return None
    if header.compression:
        yield
    return Unpacking(run.data[: header.size], header)


def _times(batch: Unpacking) -> Iterator[list[Found] | None]:
    """Yield some (offset, timestamp) of a batch's records at a time, and None where a step ends.

    The offset of a record is the base offset plus the record's place in the batch, unless
    compaction removed some.
    """
    base, is_sparse = batch.header.base_offset, batch.header.is_sparse
    index, effort = 0, AT_ONCE
    while index < batch.header.count:
        effort = batch.reach(index + STEP_RECORDS, effort)
        some = [
            (offset if is_sparse else base + number, found_at)
            for number, (offset, found_at) in enumerate(batch.times(index, batch.reached), index)
        ]
        if some:
            yield some
            effort -= 2 * len(some)
        elif batch.fault:
            return
        index = batch.reached
        if effort <= 0:
            yield None
            effort = SLICE
