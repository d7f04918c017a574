"""What a fetch finds in the logs of its partitions: records within its limits, or errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from steelyard.errors import CorruptError, ProtocolError, StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.data.fetch_converted import Converted
from steelyard.nodes.broker.kafka.data.fetch_parked import Fetch, ReadableEnd
from steelyard.nodes.broker.kafka.data.fetch_sessions import CachedPartition
from steelyard.nodes.broker.kafka.data.partitions import (
    LEADER_EPOCH,
    MetadataVersion,
    Partition,
    Partitions,
    epoch_fault,
)
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.turns import Steps
from steelyard.store.address import is_before
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.types import Effort
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import APART_MIN
from steelyard.wire.kafka.messages.data import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from steelyard.wire.kafka.schema import Records

IDS_SINCE = 13
"""First version of Fetch that names topics by id."""
STORAGE_ERROR_SINCE = 6
"""First version of Fetch whose clients retry after KAFKA_STORAGE_ERROR."""

LASTING = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
"""Errors of the disk, which last: a fetch that gets nothing else waits for as long as it may.

Some clients ask again at once (aiokafka, kafka-python), others after a pause of their own
(librdkafka).
"""

STEP_PARTITIONS = 500
"""Partitions that a fetch reads in one step: about 4 ms if there is nothing new."""

_NO_EPOCH = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()
_UNKNOWN = -1


MayRead = Callable[[OpenRequest, str], bool]
"""(fetch, topic) -> whether its sender may read the topic."""


class PartitionAnswer(msgspec.Struct, gc=False):
    """The answer for one partition. `next_offset`: where its records end, -1 without any."""

    asked: CachedPartition
    data: PartitionData
    next_offset: int = _UNKNOWN

    @property
    def says_nothing_new(self) -> bool:
        data, asked = self.data, self.asked
        return (
            not data.records
            and data.high_watermark == asked.high
            and data.log_start_offset == asked.low
        )


class Reads:
    """Reads the partitions of fetches."""

    def __init__(
        self,
        partitions: Partitions,
        producers: Producers,
        durability: Durability,
        faults: Faults,
        may_read: MayRead | None,
    ) -> None:
        self._partitions = partitions
        self._may_read = may_read
        self._producers = producers
        self._durability = durability
        self._faults = faults
        self._converted = Converted()

    def attempt(
        self, fetch: Fetch, parts: Iterable[CachedPartition], effort: Effort
    ) -> Steps[tuple[list[PartitionAnswer], int, bool]]:
        """Return the answers, their bytes of records, and whether to answer at once (see LASTING).

        The conversion of RocketMQ's messages takes effort. Once that is used up, the partitions
        left get no converted messages; clients ask for these first the next time. Very many
        partitions take several steps.
        """
        version = self._partitions.version
        readable_end = self._durability.readable_end
        is_incremental = fetch.session is not None
        answers: list[PartitionAnswer] = []
        found = 0
        at_once = False
        for number, asked in enumerate(parts, 1):
            if not number % STEP_PARTITIONS:
                yield
                version = self._partitions.version
            place = asked.place
            if place is None or asked.version != version:
                place = self._find(asked, version, fetch.call.version)
            may_read = self._may_read
            if may_read is not None and place.topic and not may_read(fetch.call, place.topic):
                answers.append(_fault(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                at_once = True
                continue
            log = place.log
            if log is not None:
                if (
                    is_incremental
                    and asked.high == asked.offset == readable_end(log)
                    and asked.low == log.min_offset
                ):
                    if asked.high == log.max_offset:
                        asked.end = log.next_address
                    continue
            elif not place.read_fault:
                self._partitions.look_again(place)
            try:
                answer = self._read(fetch, asked, place, found, effort)
            except CorruptError:  # `damage` logs it
                answer = _fault(asked, ErrorCode.CORRUPT_MESSAGE)
            except (StorageError, ProtocolError) as error:
                self._faults.note(f"{place.topic} was not read: {error}")
                known = fetch.call.version >= STORAGE_ERROR_SINCE
                code = ErrorCode.KAFKA_STORAGE_ERROR if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
                answer = _fault(asked, code)
            found += len(answer.data.records or b"")
            if answer.data.error_code:
                at_once = at_once or answer.data.error_code not in LASTING
            elif is_incremental and answer.says_nothing_new:
                continue
            answers.append(answer)
        return answers, found, at_once

    def has_grown(self, fetch: Fetch) -> bool:
        """Return whether more may be read of a partition than when it was read last."""
        for asked in fetch.parts:
            log = None if asked.place is None else asked.place.log
            if log is not None:
                with suppress(StorageError):  # its reader was told
                    end = ReadableEnd.of(log, self._end(fetch, log)).address
                    if asked.end == _UNKNOWN or is_before(asked.end, end):
                        return True
        return False

    def _end(self, fetch: Fetch, log: Log) -> int:
        """Return one past the last offset that may be read. May raise StorageError."""
        if fetch.committed:
            return self._producers.last_stable(log)
        return self._durability.readable_end(log)

    def _find(
        self, asked: CachedPartition, version: MetadataVersion, api_version: int
    ) -> Partition:
        name, topic_id, index = asked.key
        topic = self._partitions.topic_of(name, topic_id)
        if api_version >= IDS_SINCE and not topic:
            place = Partition("", index, -1, -1, ErrorCode.UNKNOWN_TOPIC_ID, False, False, None)
        else:
            place = self._partitions.find(topic or "", index)
        asked.place, asked.version = place, version
        asked.high = asked.end = _UNKNOWN
        return place

    def _read(
        self, fetch: Fetch, asked: CachedPartition, place: Partition, found: int, effort: Effort
    ) -> PartitionAnswer:
        """Read one partition. `found`: bytes that the answer has of other partitions."""
        fault = place.read_fault or epoch_fault(asked.epoch)
        if fault:
            leader = _NO_LEADER
            if fault in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                leader = LeaderIdAndEpoch(place.leader, LEADER_EPOCH)
            return _fault(asked, fault, leader)
        log = place.log
        low, high = (0, 0) if log is None else (log.min_offset, self._durability.readable_end(log))
        if not low <= asked.offset <= (high if log is None else log.max_offset):
            return _fault(asked, ErrorCode.OFFSET_OUT_OF_RANGE)
        stable = high if log is None else self._producers.last_stable(log)
        end = stable if fetch.committed else high
        if log is not None:
            asked.end = ReadableEnd.of(log, max(asked.offset, end)).address
        records: Records = b""
        next_offset = _UNKNOWN
        aborted: list[AbortedTransaction] | None = [] if fetch.committed else None
        bytes_max = min(asked.bytes_max, fetch.max_bytes - found)
        if log is not None and asked.offset < end and (bytes_max > 0 or not found):
            records, next_offset = self._read_log(log, asked.offset, bytes_max, end, effort)
            if found and len(records) > bytes_max:
                records = b""
            if not records:
                next_offset = _UNKNOWN
            elif fetch.committed:
                aborted = self._aborted(log, asked.offset, next_offset)
        data = PartitionData(
            asked.key[2],
            0,
            high,
            stable,
            low,
            _NO_EPOCH,
            _NO_LEADER,
            _NO_SNAPSHOT,
            aborted,
            -1,
            records,
        )
        return PartitionAnswer(asked, data, next_offset)

    def _read_log(
        self, log: Log, offset: int, bytes_max: int, end: int, effort: Effort
    ) -> tuple[Records, int]:
        """Return batches from an offset on, and where they end.

        There are none if they would have to be converted and too little effort is left. Large ones
        are lent, not read: the kernel sends them from the file.
        """
        bytes_max = max(bytes_max, 0)
        while offset < end:
            extent = log.find_run(offset, bytes_max, end, across_gaps=(BATCHES,))
            if not extent.size:  # the entries there were given up
                if extent.next_offset == offset:
                    break
                offset = extent.next_offset
            elif extent.kind != BATCHES:
                found = self._converted.read(log, extent, bytes_max, effort)
                if found is None or found[0]:
                    return found or (b"", offset)
                offset = found[1]
            elif extent.is_verified() and extent.size >= APART_MIN:
                return extent.lend(), extent.next_offset
            else:
                if extent.is_verified():
                    with suppress(OSError):  # `read` takes as much as the disk can read
                        return extent.lend().read(), extent.next_offset
                run = extent.read()
                return run.data, run.next_offset
        return b"", offset

    def check(self) -> None:
        self._converted.check()

    def _aborted(self, log: Log, first: int, next_offset: int) -> list[AbortedTransaction]:
        return [
            AbortedTransaction(producer_id, start)
            for producer_id, start, _ in self._producers.aborted(log, first, next_offset)
        ]


def _fault(
    asked: CachedPartition, code: ErrorCode, leader: LeaderIdAndEpoch = _NO_LEADER
) -> PartitionAnswer:
    data = PartitionData(asked.key[2], code, _UNKNOWN, _UNKNOWN, _UNKNOWN, current_leader=leader)
    return PartitionAnswer(asked, data)
