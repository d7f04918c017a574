"""Finds the share partitions that requests name, and creates them where they begin."""

from __future__ import annotations

import msgspec

from steelyard.errors import CorruptError, StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.group_settings import (
    ISOLATION,
    OFFSET_RESET,
    READ_COMMITTED,
    GroupSettings,
)
from steelyard.nodes.broker.kafka.cluster.offset_reset import EARLIEST, age_ms
from steelyard.nodes.broker.kafka.data.fetch_reads import MayRead
from steelyard.nodes.broker.kafka.data.list_offsets import first_at
from steelyard.nodes.broker.kafka.data.partitions import Partition, Partitions
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.kafka.shares.reads import ShareReads
from steelyard.nodes.broker.kafka.shares.sessions import Place
from steelyard.nodes.broker.kafka.shares.share_partition import SharePartition
from steelyard.nodes.broker.kafka.shares.stored import ShareKey, SharePartitions
from steelyard.nodes.broker.turns import Steps
from steelyard.store.log import Log
from steelyard.wire.kafka.errors import ErrorCode


class ShareFault(msgspec.Struct, frozen=True):
    """Why a share partition cannot be served. `leader`: who can, -1 for unknown."""

    code: ErrorCode
    text: str | None = None
    leader: int = -1


class SharePlace(msgspec.Struct):
    """A share partition of this broker and its queue."""

    key: ShareKey
    queue: Partition
    partition: SharePartition

    @property
    def log(self) -> Log | None:
        return self.queue.log

    def bound(self) -> bool:
        """Forget records in flight that are not in the log; return whether there were any."""
        log = self.log
        low, high = (0, 0) if log is None else (log.min_offset, log.max_offset)
        return self.partition.bound(low, high)


class SharePlaces:
    """See the module docstring. `may_read`: whether a client may read a topic; None: it may."""

    def __init__(
        self,
        shares: SharePartitions,
        partitions: Partitions,
        settings: GroupSettings,
        reads: ShareReads,
        faults: Faults,
        may_read: MayRead | None,
    ) -> None:
        self._shares = shares
        self._partitions = partitions
        self._settings = settings
        self._reads = reads
        self._faults = faults
        self._may_read = may_read

    def bound_all(self) -> None:
        """Forget records in flight that a power failure took from the logs, at the start.

        Their offsets are given to new records, which must not count as accepted.
        """
        shorter = []
        for key, partition in self._shares.each():
            topic = self._partitions.topic_of("", key.topic_id)
            queue = self._partitions.find(topic, key.partition) if topic else None
            if queue is None or queue.fault:
                continue
            if SharePlace(key, queue, partition).bound():
                shorter.append(key)
        try:
            self._shares.store(shorter)
        except StorageError as error:
            self._faults.note(f"what logs of share groups have lost is not stored: {error}")

    def queue_of(self, place: Place) -> Partition | ShareFault:
        """Return the queue behind a partition of this broker, or why there is none."""
        topic_id, index = place
        topic = self._partitions.topic_of("", topic_id)
        if not topic:
            return ShareFault(ErrorCode.UNKNOWN_TOPIC_ID)
        queue = self._partitions.find(topic, index)
        if queue.read_fault:
            return ShareFault(queue.read_fault, None, queue.leader)
        return queue

    def find(self, call: OpenRequest, group: str, place: Place) -> SharePlace | ShareFault:
        """Return a share partition that exists, or why it cannot be served."""
        found = self._allowed(call, place)
        if isinstance(found, ShareFault):
            return found
        key = ShareKey(group, *place)
        partition = self._shares.get(key)
        if partition is None:
            return ShareFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return SharePlace(key, found, partition)

    def renew(self, place: SharePlace) -> ShareFault | None:
        """Look a share partition up again, after a wait; return why it cannot be served now."""
        queue = self._partitions.find(place.queue.topic, place.queue.index)
        partition = self._shares.get(place.key)
        if queue.read_fault or partition is None:
            return ShareFault(queue.read_fault or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        place.queue, place.partition = queue, partition
        return None

    def _allowed(self, call: OpenRequest, place: Place) -> Partition | ShareFault:
        found = self.queue_of(place)
        topic = self._partitions.topic_of("", place[0])
        if topic and self._may_read is not None and not self._may_read(call, topic):
            return ShareFault(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return found

    def open(
        self, call: OpenRequest, group: str, place: Place, now: int
    ) -> Steps[SharePlace | ShareFault]:
        """Return a share partition, a new one if there is none, or why it cannot be served."""
        found = self.find(call, group, place)
        queue = self._allowed(call, place)
        if isinstance(found, SharePlace) or isinstance(queue, ShareFault):
            return found
        if self._shares.is_full:
            return ShareFault(ErrorCode.UNKNOWN_SERVER_ERROR, "There are too many partitions.")
        key = ShareKey(group, *place)
        try:
            start = yield from self._start(group, queue.log, now)
            # It may have been made in another step.
            partition = self._shares.get(key) or self._shares.put(key, queue.topic, start)
        except CorruptError:
            return ShareFault(ErrorCode.CORRUPT_MESSAGE)
        except StorageError as error:
            self._faults.note(f"share group {group} did not begin with {queue.topic}: {error}")
            return ShareFault(ErrorCode.KAFKA_STORAGE_ERROR)
        return SharePlace(key, queue, partition)

    def _start(self, group: str, log: Log | None, now: int) -> Steps[int]:
        """Return where a group begins with a partition (share.auto.offset.reset)."""
        if log is None:
            return 0
        strategy = self._settings.text(group, OFFSET_RESET)
        if strategy == EARLIEST:
            return log.min_offset
        age = age_ms(strategy)
        if age is None:
            return self._reads.end(log, committed=False)
        while not log.learn_times(now - age):
            yield
        found = yield from first_at(log, now - age)
        return self._reads.end(log, committed=False) if found is None else found[0]

    def is_committed(self, group: str) -> bool:
        """Return whether a group gets only records of committed transactions."""
        return self._settings.text(group, ISOLATION) == READ_COMMITTED

    def endpoints(self, leaders: list[int]) -> list[tuple[int, str, int]]:
        """Return (node id, host, port) of those of these leaders that are up."""
        return self._partitions.endpoints(leaders)
