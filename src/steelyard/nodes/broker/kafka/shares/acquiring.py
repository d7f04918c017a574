"""Acquires records for fetches of share groups, within their limits.

Source: core/kafka/server/share/DelayedShareFetch.java, ShareFetchUtils.java.
"""

from __future__ import annotations

from steelyard.errors import CorruptError, ProtocolError, StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.shares.parked import ShareFetch
from steelyard.nodes.broker.kafka.shares.places import ShareFault, SharePlace
from steelyard.nodes.broker.kafka.shares.reads import ShareReads
from steelyard.nodes.broker.kafka.shares.sessions import Place
from steelyard.nodes.broker.kafka.shares.share_partition import Wanted
from steelyard.nodes.broker.kafka.shares.stored import SharePartitions
from steelyard.nodes.broker.statistics import BrokerStatistics
from steelyard.types import Effort
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_data import SharePartitionData

ROUNDS_MAX = 16
"""How often a partition is read for one fetch, if there is nothing to deliver in what was read."""


class Acquiring:
    """See the module docstring."""

    def __init__(
        self,
        shares: SharePartitions,
        reads: ShareReads,
        statistics: BrokerStatistics,
        faults: Faults,
    ) -> None:
        self._shares = shares
        self._reads = reads
        self._statistics = statistics
        self._faults = faults

    def has_enough(self, fetch: ShareFetch) -> bool:
        """Return whether a fetch could get its min_bytes, without reading."""
        size = 0
        for place in fetch.places:
            size += self.size_at(fetch, place)
            if size and size >= fetch.min_bytes:
                return True
        return False

    def size_at(self, fetch: ShareFetch, place: SharePlace) -> int:
        """Return about how many bytes a fetch could get of a partition, at most its max_bytes."""
        log, partition = place.log, place.partition
        if place.bound():
            self._shares.locked(place.key)
        if log is None or not partition.can_acquire(self._shares.limits(fetch.group)):
            return 0
        try:
            end = self._reads.end(log, committed=fetch.committed)
            offset = max(partition.next_offset(), log.min_offset)
            return self._reads.size_at(log, offset, fetch.max_bytes, end)
        except (StorageError, ProtocolError):
            return fetch.max_bytes  # the attempt to read it tells what is wrong

    def acquire(
        self, fetch: ShareFetch, effort: Effort, now: int
    ) -> dict[Place, SharePartitionData]:
        """Acquire records for a fetch, within its limits."""
        found: dict[Place, SharePartitionData] = {}
        count, size = fetch.wanted.count, fetch.max_bytes
        for place in fetch.places:
            if count <= 0 or (size <= 0 and found):
                break
            where = place.key.topic_id, place.key.partition
            try:
                data = self._acquire_one(fetch, place, count, size, effort, now)
            except CorruptError:  # `damage` logs it
                fetch.faults[where] = ShareFault(ErrorCode.CORRUPT_MESSAGE)
                continue
            except (StorageError, ProtocolError) as error:
                self._faults.note(f"{place.queue.topic} was not read: {error}")
                fetch.faults[where] = ShareFault(ErrorCode.KAFKA_STORAGE_ERROR)
                continue
            fetch.faults.pop(where, None)
            if data is not None:
                found[where] = data
                size -= len(data.records or b"")
                count -= sum(
                    some.last_offset - some.first_offset + 1 for some in data.acquired_records
                )
        return found

    def _acquire_one(
        self,
        fetch: ShareFetch,
        place: SharePlace,
        count: int,
        bytes_max: int,
        effort: Effort,
        now: int,
    ) -> SharePartitionData | None:
        """Acquire records of one partition. Raises StorageError, ProtocolError."""
        place.bound()
        limits, partition, log = self._shares.limits(fetch.group), place.partition, place.log
        wanted = Wanted(
            fetch.wanted.member, count, fetch.wanted.batch_size, fetch.wanted.record_limit
        )
        try:
            for _ in range(ROUNDS_MAX):
                if log is None or not partition.can_acquire(limits):
                    return None
                offset = partition.next_offset()
                read = self._reads.read(
                    log, offset, count, bytes_max, effort, committed=fetch.committed
                )
                if read is None:
                    return None
                acquired = partition.acquire(wanted, read.read, limits, self._shares.time(now))
                if acquired:
                    self._statistics.found += 1
                    self._statistics.got_messages += sum(
                        some.last_offset - some.first_offset + 1 for some in acquired
                    )
                    return SharePartitionData(
                        place.key.partition, records=read.part(acquired), acquired_records=acquired
                    )
                if partition.next_offset() == offset:
                    return None
            return None
        finally:
            self._shares.locked(place.key)

    def check(self) -> None:
        self._reads.check()
