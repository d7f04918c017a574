"""The contents of `__consumer_offsets` and `__transaction_state`, for tools that read them.

The coordinators' tables say what is true; these logs follow them: in groups after the event that
changed them, so that every generation is there, in offsets and transactions within WRITE_DELAY_MS.
A row that has changed by then is written once, with its value of that moment, as the records that
Kafka would have of it (`groups.kafka.coordinator_log`); so a commit costs one entry in a set when
it happens. A record that was served keeps its offset.

A log is compacted by writing all rows of its partition again, a few at a time, and deleting what
was before them. This is also done for a partition that the tables know more of than its log: after
a kill, which may have come between a table and its log; after early deletion on a full disk; and
for data directories of earlier versions. What was deleted from a table just before a kill is then
missing in the log, without a record that says so. The table `kafka_coordinator_logs` has the
partitions that are complete, each with the offset from which on it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from steelyard.errors import StorageError
from steelyard.groups.kafka.coordinator_log import (
    CoordinatorRecord,
    Records,
    consumer_group_records,
    group_records,
    offset_records,
    transaction_records,
)
from steelyard.groups.kafka.streams.coordinator_records import streams_group_records
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, coordinator_partition
from steelyard.nodes.broker.kafka.cluster.topic import FIXED, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from steelyard.nodes.broker.kafka.requests.feature_levels import FeatureLevels
from steelyard.nodes.broker.writer import Writer
from steelyard.nodes.seam import Effect
from steelyard.store.store import Store
from steelyard.store.tables import Table
from steelyard.types import TopicPartition
from steelyard.wire.kafka.records import Record, write_batch

WRITE_DELAY_MS = 100
"""How long an offset or a transaction may wait to be written together with others."""
RETRY_MS = 1_000
"""How long to wait after the disk has refused a write."""
ROWS_MAX = 500
"""Most rows written at a time, some 5 ms of work."""
COPY_PAUSE_MS = 20
"""Pause between two slices of a compaction."""
BATCH_BYTES_MAX = 512 * 1024
"""Size above which a batch gets no more records."""
GROWTH_BYTES_MIN = 32 * 1024 * 1024
GROWTH_MAX = 4
"""A log is compacted when this much, and this many times its compacted size, was added."""


class _Source(msgspec.Struct, frozen=True):
    """A table, the topic that shows it, and the keys of its rows that are not written there yet.

    `delay_ms`: how long they may wait.
    """

    topic: str
    table: Table
    records: Records
    delay_ms: int
    changed: dict[str, None]


class _Copy(msgspec.Struct):
    """A compaction under way: the partitions with their first offsets, and the rows left."""

    starts: dict[TopicPartition, int]
    rows: Iterator[tuple[_Source, str]]


class CoordinatorLogs:
    """Writes the logs of both topics; see the module docstring."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        writer: Writer,
        faults: Faults,
        features: FeatureLevels,
    ) -> None:
        def transactions(key: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
            return transaction_records(key, row, features.transaction_version)

        self._store = store
        self._cluster = cluster
        self._writer = writer
        self._faults = faults
        tables: tuple[tuple[str, str, Records, int], ...] = (
            (OFFSETS_TOPIC, "kafka_consumer_groups", consumer_group_records, 0),
            (OFFSETS_TOPIC, "kafka_streams_groups", streams_group_records, 0),
            (OFFSETS_TOPIC, "kafka_groups", group_records, 0),
            (OFFSETS_TOPIC, "kafka_offsets", offset_records, WRITE_DELAY_MS),
            (TRANSACTIONS_TOPIC, "kafka_transactions", transactions, WRITE_DELAY_MS),
        )
        self._sources = tuple(
            _Source(topic, store.table(name), records, delay_ms, store.table(name).track())
            for topic, name, records, delay_ms in tables
        )
        self._complete = store.table("kafka_coordinator_logs")
        self._trusted = store.was_clean
        """Whether the table of complete partitions holds: not after a kill."""
        self._version = -1
        """The version of the cluster's topics whose partitions were looked at."""
        self._added: dict[TopicPartition, int] = {}
        """Bytes added to each log since it was compacted, or since the broker started."""
        self._compacted: dict[TopicPartition, int] = {}
        """Sizes of logs after their compaction."""
        self._copy: _Copy | None = None
        self._not_before = 0
        """Nothing is written before that, because the disk has refused it."""
        self.next_at: int | None = None

    def follow_up(self, now: int) -> None:
        """Note, after an event, when there is something to write."""
        delays = [source.delay_ms for source in self._sources if source.changed]
        if self._version != self._cluster.version:
            delays.append(WRITE_DELAY_MS)
        if delays:
            at = max(now + min(delays), self._not_before)
            self.next_at = at if self.next_at is None else min(at, self.next_at)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Write what has changed, and the next slice of a compaction."""
        self.next_at = None
        try:
            self._write_changes(now, effects)
            if self._copy is None:
                self._begin_copy()
            else:
                self._continue_copy(self._copy, now, effects)
        except StorageError as error:
            text = f"what coordinators did is not readable as a topic yet: {error}"
            self._faults.tell(text, now, effects)
            self.next_at = self._not_before = now + RETRY_MS
        else:
            if self._copy is not None:
                self.next_at = now + COPY_PAUSE_MS

    def stop(self, now: int, effects: list[Effect]) -> None:
        """Write what has changed before the broker stops. Raises StorageError."""
        while any(source.changed for source in self._sources):
            self._write_changes(now, effects)

    # -- changes ---------------------------------------------------------------------------------

    def _write_changes(self, now: int, effects: list[Effect]) -> None:
        """Write the next ROWS_MAX changed rows. Raises StorageError; then they are still due."""
        for source in self._sources:
            keys = list(islice(source.changed, ROWS_MAX))
            if keys:
                self._write(((source, key) for key in keys), None, now, effects)
                for key in keys:
                    del source.changed[key]

    def _write(
        self,
        rows: Iterable[tuple[_Source, str]],
        only: Iterable[TopicPartition] | None,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Write the records of some rows. `only`: these partitions, None for all."""
        found: dict[TopicPartition, list[CoordinatorRecord]] = {}
        for source, key in rows:
            partitions = self._cluster.partitions(source.topic)
            if not partitions:
                continue  # written by a compaction when the topic has partitions
            for record in source.records(key, source.table.get(key)):
                number = coordinator_partition(record.name, partitions)
                found.setdefault(TopicPartition(source.topic, number), []).append(record)
        for place in sorted(found if only is None else found.keys() & only):
            self._append(place, found[place], now, effects)

    def _append(
        self,
        partition: TopicPartition,
        written: list[CoordinatorRecord],
        now: int,
        effects: list[Effect],
    ) -> None:
        place = self._cluster.place(*partition)
        if not isinstance(place, int) and place.here:
            log = self._store.create_log(partition.topic, place.queue_id)
            for batch, count in _batches(written, now):
                offset = self._writer.write_batch(log, batch, count, now)
                self._writer.wrote(log, offset, now, effects)
                self._added[partition] = self._added.get(partition, 0) + len(batch)

    # -- compaction ------------------------------------------------------------------------------

    def _begin_copy(self) -> None:
        """Begin to compact the partitions of this broker that need it, if there are any."""
        if not self._trusted:
            self._forget([TopicPartition(*_read(key)) for key, _ in self._complete.items()])
            self._trusted = True
        starts = {
            TopicPartition(topic, number): self._end(topic, queue_id)
            for topic, number, queue_id in self._here()
            if self._needs_copy(TopicPartition(topic, number), queue_id)
        }
        self._version = self._cluster.version
        if not starts:
            return
        self._forget(starts)
        self._added.update(dict.fromkeys(starts, 0))
        topics = {partition.topic for partition in starts}
        rows = [
            (source, key)
            for source in self._sources
            if source.topic in topics
            for key, _ in source.table.items()
        ]
        self._copy = _Copy(starts, iter(rows))

    def _needs_copy(self, partition: TopicPartition, queue_id: int) -> bool:
        since = self._complete.get(_name(partition))
        if since is None:
            return True
        log = self._store.log(partition.topic, queue_id)
        if log is not None and log.min_offset > int(since):
            return True
        limit = max(GROWTH_BYTES_MIN, GROWTH_MAX * self._compacted.get(partition, 0))
        return self._added.get(partition, 0) > limit

    def _continue_copy(self, copy: _Copy, now: int, effects: list[Effect]) -> None:
        """Write the next rows. Raises StorageError; then the compaction begins anew."""
        rows = list(islice(copy.rows, ROWS_MAX))
        if rows:
            try:
                self._write(rows, copy.starts, now, effects)
            except StorageError:
                self._copy = None
                raise
            return
        self._copy = None
        for partition, start in copy.starts.items():
            place = self._cluster.place(*partition)
            if isinstance(place, int) or not place.here:
                continue
            log = self._store.log(partition.topic, place.queue_id)
            if log is not None:
                log.delete_before(start)
            self._compacted[partition] = self._added.get(partition, 0)
        done = [(_name(partition), b"%d" % start) for partition, start in copy.starts.items()]
        self._complete.put_many(done)

    def _end(self, topic: str, queue_id: int) -> int:
        log = self._store.log(topic, queue_id)
        return 0 if log is None else log.max_offset

    def _here(self) -> Iterator[tuple[str, int, int]]:
        """Yield (topic, partition, queue id) of each partition that this broker leads."""
        for topic in FIXED:
            for number, queue_id in self._cluster.local_partitions(topic):
                yield topic, number, queue_id

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these partitions are not complete. Raises StorageError."""
        names = [_name(partition) for partition in partitions]
        self._complete.put_many([(name, None) for name in names if name in self._complete])


def _batches(records: list[CoordinatorRecord], now: int) -> Iterator[tuple[bytes, int]]:
    """Yield batches with all these records, and the number of records in each."""
    begun: list[Record] = []
    size = 0
    for record in records:
        begun.append(Record(len(begun), now, record.key, record.value))
        size += len(record.key) + len(record.value or b"")
        if size > BATCH_BYTES_MAX:
            yield write_batch(begun), len(begun)
            begun, size = [], 0
    if begun:
        yield write_batch(begun), len(begun)


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}/{partition.partition}"


def _read(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("/")
    return topic, int(number)
