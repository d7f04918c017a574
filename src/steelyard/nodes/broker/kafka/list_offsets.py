"""2 ListOffsets, versions 1-11: the offset at a time, or at one end of a log.

| timestamp | meaning |
|---|---|
| -1 | end: one past the last offset that the reader may read (isolation_level 1: the last stable offset) |
| -2, -4 | begin; all of a log is local here |
| -3 (7) | of the record with the largest timestamp |
| -5 (9), -6 (11) | of what was moved to another tier, or waits for it: nothing here, so -1; the begin |
| 0 and later | of the first record with this timestamp or a later one; -1 without one |

In brackets: since which version. Others get UNSUPPORTED_VERSION. A partition that is named twice is INVALID_REQUEST.
Source: core/kafka/server/ReplicaManager.fetchOffset, storage/internals/log/UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections import Counter

from steelyard.errors import ProtocolError, StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.door import Call
from steelyard.nodes.broker.kafka.partitions import LEADER_EPOCH, Partitions, epoch_fault
from steelyard.nodes.broker.kafka.producers import Producers
from steelyard.nodes.seam import Effect
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from steelyard.wire.kafka.records import Record, read_records
from steelyard.wire.kafka.schema import Message

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NOTHING = (-1, -1)

Found = tuple[int, int]
"""Offset and timestamp."""


class ListOffsets:
    """See the module's text."""

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

    def list_offsets(self, call: Call, now: int, effects: list[Effect]) -> Message | None:
        request = call.message
        assert isinstance(request, ListOffsetsRequest)
        named = Counter(
            (topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        )
        committed = request.isolation_level == 1
        topics = []
        for topic in request.topics:
            answers = []
            for part in topic.partitions:
                index = part.partition_index
                try:
                    if named[topic.name, index] > 1:
                        answer = ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST)
                    else:
                        answer = self._one(topic.name, part, call.version, committed)
                except StorageError as error:
                    self._faults.tell(f"{topic.name}-{index} was not read: {error}", now, effects)
                    answer = ListOffsetsPartitionResponse(index, ErrorCode.KAFKA_STORAGE_ERROR)
                answers.append(answer)
            topics.append(ListOffsetsTopicResponse(topic.name, answers))
        return ListOffsetsResponse(0, topics)

    def _one(
        self, topic: str, part: ListOffsetsPartition, version: int, committed: bool
    ) -> ListOffsetsPartitionResponse:
        index, timestamp = part.partition_index, part.timestamp
        if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
            return ListOffsetsPartitionResponse(index, ErrorCode.UNSUPPORTED_VERSION)
        place = self._partitions.find(topic, index)
        fault = place.read_fault or epoch_fault(part.current_leader_epoch)
        if fault:
            return ListOffsetsPartitionResponse(index, fault)
        offset, found_at = self._found(place.log, timestamp, committed)
        epoch = LEADER_EPOCH if offset >= 0 else -1
        return ListOffsetsPartitionResponse(index, 0, found_at, offset, epoch)

    def _found(self, log: Log | None, timestamp: int, committed: bool) -> Found:
        if timestamp == LATEST_TIERED:
            return _NOTHING
        if log is None:
            return (0, -1) if timestamp in (LATEST, *_BEGINS) else _NOTHING
        if timestamp in _BEGINS:
            return log.min_offset, -1
        if committed:
            end = self._producers.last_stable(log)
        else:
            end = self._durability.readable_end(log)
        if timestamp == LATEST:
            return end, -1
        found = _largest(log) if timestamp == MAX_TIMESTAMP else _first_at(log, timestamp)
        return _NOTHING if found is None or found[0] >= end else found


_BEGINS = (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD)


def _first_at(log: Log, timestamp: int) -> Found | None:
    """The first record with this timestamp or a later one."""
    start = log.min_offset
    while True:
        entry = log.offset_for_timestamp(timestamp, start)
        if entry is None:
            return None
        records = _records(log, entry[0])
        if records is None:
            return entry
        for record in records:
            if record.timestamp >= timestamp and record.offset >= start:
                return record.offset, record.timestamp
        start = max(start, entry[0], records[-1].offset) + 1 if records else entry[0] + 1


def _largest(log: Log) -> Found | None:
    """The first record with the largest timestamp."""
    low = log.min_offset
    records = _records(log, low) if low < log.max_offset else None
    if records is None or records[0].offset == low:
        return _exact(log, log.max_timestamp())
    # The log begins inside a batch, whose largest timestamp may be that of a record that is deleted.
    kept = [(record.offset, record.timestamp) for record in records if record.offset >= low]
    rest = _exact(log, log.max_timestamp(records[-1].offset + 1))
    return max([*kept, rest] if rest else kept, key=lambda found: (found[1], -found[0]))


def _exact(log: Log, entry: Found | None) -> Found | None:
    """The record in an entry that has the entry's timestamp."""
    if entry is None:
        return None
    for record in _records(log, entry[0]) or ():
        if record.timestamp == entry[1]:
            return record.offset, record.timestamp
    return entry


def _records(log: Log, offset: int) -> tuple[Record, ...] | None:
    """The records of the batch that holds an offset; None where it is no batch, or cannot be unpacked."""
    run = log.read_run(max(offset, log.min_offset), 0)
    if run.kind != BATCHES:
        return None
    try:
        return read_records(run.data)
    except ProtocolError:
        return None
