"""Ensures that idempotent producers write nothing twice or out of order, and tracks transactions.

The last five batches of each producer in a log are known. A batch that was stored already is
answered as it was the first time. One that does not follow the last is refused, and so is one of an
older epoch. An unknown producer may begin anywhere: it was silent for producer.id.expiration.ms, or
what it wrote is no longer kept.

A transaction is open from its producer's first transactional batch in the log to the marker that
ends it. That first batch is written only if the coordinator knows of it (`verifications`).
Consumers of committed records may read up to where the oldest open transaction begins (the last
stable offset).

All of this can be read from the log. Snapshots shorten that: a log is read from its last snapshot
on, when its producers are first needed. A log without a snapshot never had a producer with an id.
Aborted transactions have a table of their own, because they are many and never change; they are
written before the snapshot that covers their markers.
Source: storage/internals/log/ProducerStateManager.java, ProducerAppendInfo.java,
ProducerStateEntry.java, UnifiedLog.analyzeAndValidateProducerState.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from steelyard.compaction.filtering import LastWrite
from steelyard.decoding import prepared
from steelyard.errors import CorruptError, ProtocolError, StorageError
from steelyard.groups.kafka.transactional_ids import BUMPS_EPOCH, EPOCH_LIMIT
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.data.producer_states import (
    BATCHES_KEPT,
    Aborted,
    BatchMetadata,
    LogProducers,
    ProducerStateEntry,
    sequence_after,
)
from steelyard.nodes.broker.kafka.data.verifications import Verifications
from steelyard.nodes.seam import Effect
from steelyard.store.address import distance
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.records import ABORT, BatchHeader, read_headers, read_marker

PRODUCERS_MAX = 100_000
"""Most (log, producer) pairs to know; beyond it, a log that is written to forgets its oldest."""
SNAPSHOT_BATCHES = 1_000
SNAPSHOT_BYTES = 64 * 1024 * 1024
"""A log gets a new snapshot after so many batches or bytes; to read these takes under a second."""
SWEEP_MS = 60_000
_SCAN_BYTES = 1024 * 1024


class _Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """What is known from all batches before the offset `upto`; 0: the whole log must be read.

    `last_aborted`: where the last marker before it is that aborted a transaction, -1 if unknown.
    """

    topic: str
    queue_id: int
    upto: int
    producers: list[ProducerStateEntry]
    last_aborted: int = -1


class Producers:
    """The producers of all logs; see the module docstring.

    `expiration_ms`: producer.id.expiration.ms.
    """

    def __init__(self, store: Store, durability: Durability, expiration_ms: int, now: int) -> None:
        self._store = store
        self._durability = durability
        self._expiration_ms = expiration_ms
        self._table = store.table("kafka_producers")
        self._aborted = store.table("kafka_aborted")
        self._logs: dict[int, LogProducers] = {}
        self._unclaimed: dict[int, list[Aborted]] = {}
        """By log id, aborted transactions of logs whose producers were not needed yet."""
        self._count = 0
        self._next_at = now + SWEEP_MS
        self.verifications = Verifications()
        self._distrust()

    def _distrust(self) -> None:
        """Check what is stored against the logs, which may have lost their ends in a power loss.

        A snapshot that knows more than its log has is dropped, and the whole log will be read. So
        it is if the power loss took transactions that were written before the snapshot.
        """
        logs = {str(log.log_id): log for log in self._store.all_logs()}
        changes: list[tuple[str, bytes | None]] = []
        for key, value in self._table.items():
            snapshot = msgspec.msgpack.decode(value, type=prepared(_Snapshot))
            log = logs.get(key)
            if log is None:
                changes.append((key, None))
            elif snapshot.upto > log.max_offset or (
                snapshot.last_aborted >= log.min_offset
                and _key(log, snapshot.last_aborted) not in self._aborted
            ):
                fresh = _Snapshot(snapshot.topic, snapshot.queue_id, 0, [])
                changes.append((key, msgspec.msgpack.encode(fresh)))
        self._table.put_many(changes)
        gone = [
            (key, None)
            for key, _ in self._aborted.items()
            for log_id, _, last in (key.partition(":"),)
            if log_id not in logs or int(last) >= logs[log_id].max_offset
        ]
        self._aborted.put_many(gone)
        if changes or gone:
            # Another power loss must not undo this once the logs have grown again.
            self._store.take_dirty().sync()
        for key, row in self._aborted.items():
            item = msgspec.msgpack.decode(row, type=prepared(Aborted))
            self._unclaimed.setdefault(int(key.partition(":")[0]), []).append(item)

    # -- asked by those who write ----------------------------------------------------------------

    def duplicate(self, log: Log, header: BatchHeader, now: int) -> BatchMetadata | None:
        """Return what is known of the batch if it was stored before, or None."""
        producer = self._producer(log, header.producer_id, now)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first = header.base_sequence
        last = sequence_after(first, header.count - 1)
        for written in producer.batches:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        return None

    def fault(self, log: Log, header: BatchHeader, now: int) -> ErrorCode:
        """Return why a batch of data, no duplicate, must not be stored; NONE if it may."""
        producer = self._producer(log, header.producer_id, now)
        if producer is None:
            return ErrorCode.NONE
        if header.producer_epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif header.base_sequence != sequence_after(producer.last_sequence, 1):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if producer.open_from is not None and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def first_fault(self, log: Log, header: BatchHeader, serial: int | None, now: int) -> ErrorCode:
        """Return why a transactional batch, no duplicate, must not be stored; NONE if it may.

        `serial`: of the verification that was begun for it, None without one.
        """
        producer = self._producer(log, header.producer_id, now)
        if producer is not None and producer.is_open_in(header.producer_epoch):
            return ErrorCode.NONE
        is_known = producer is not None and bool(producer.batches)
        return self.verifications.fault(log, header, serial, is_known=is_known)

    def needs_verification(self, log: Log, header: BatchHeader, now: int) -> bool:
        """Return whether a transactional batch may be the first of its transaction."""
        producer = self._producer(log, header.producer_id, now)
        if producer is None:
            return True
        return header.producer_epoch >= producer.epoch and not producer.is_open_in(
            header.producer_epoch
        )

    def marker_fault(
        self,
        log: Log,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        now: int,
        *,
        version: int = 0,
    ) -> ErrorCode:
        """Return why a marker must not be stored; NONE if it may.

        `version`: the level of transaction.version that the transaction was ended by. From 2 on,
        the epoch of a marker is higher than that of the records; a marker with the same one is
        late, and would end the next transaction. It does no harm if none is open.
        """
        producer = self._producer(log, producer_id, now)
        if producer is None:
            return ErrorCode.NONE
        is_late = version >= BUMPS_EPOCH and epoch < EPOCH_LIMIT and producer.is_open_in(epoch)
        if epoch < producer.epoch or is_late:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def prepare(self, log: Log) -> None:
        """Save a snapshot before the first batch with a producer id in a log.

        Raises StorageError.
        """
        known = self.of(log)
        if str(log.log_id) not in self._table:
            self._save(known)

    def wrote(self, log: Log, header: BatchHeader, offset: int, timestamp: int, now: int) -> None:
        """Record a batch of data in a prepared log. `timestamp`: the largest of its records."""
        known = self.of(log)
        before = len(known.known)
        known.wrote(header, offset, timestamp, now)
        if header.is_transactional:
            self.verifications.wrote(log, header.producer_id)
        self._grown(known, len(known.known) - before)

    def ended(
        self,
        log: Log,
        header: BatchHeader,
        coordinator_epoch: int,
        offset: int,
        now: int,
        *,
        abort: bool,
    ) -> None:
        """Record a marker in a prepared log."""
        known = self.of(log)
        before = len(known.known)
        known.ended(header, coordinator_epoch, offset, abort=abort, now=now)
        self.verifications.ended(log, header.producer_id, header.producer_epoch)
        self._grown(known, len(known.known) - before)

    def _grown(self, known: LogProducers, more: int) -> None:
        self._count += more
        if self._count > PRODUCERS_MAX:
            self._forget_one(known)
        self._save_in_time(known)

    def passed(self, log: Log) -> None:
        """Note that a batch without a producer id was stored: a snapshot may be due."""
        known = self._logs.get(log.log_id)
        if known is not None and str(log.log_id) in self._table:
            self._save_in_time(known)

    # -- asked by those who read -----------------------------------------------------------------

    def last_stable(self, log: Log) -> int:
        """Return one past the last offset that a consumer of committed records may read."""
        end = self._durability.readable_end(log)
        opened = self.of(log).open
        return min(end, max(next(iter(opened.values())), log.min_offset)) if opened else end

    def aborted(self, log: Log, first: int, next_offset: int) -> list[tuple[int, int, int]]:
        """Return the aborted transactions that overlap first .. next_offset - 1.

        Each is (producer id, first offset, offset of the marker).
        """
        all_of_log = self.of(log).aborted
        found = []
        for number in range(bisect_left(all_of_log, first, key=_marker_of), len(all_of_log)):
            item = all_of_log[number]
            if item.first < next_offset:
                found.append((item.producer_id, item.first, item.last))
            if item.stable >= next_offset:
                break
        return found

    # -- asked by compaction -----------------------------------------------------------------------

    def last_writes(self, log: Log, now: int) -> dict[int, LastWrite]:
        """Return what each active producer wrote last, by its id."""
        return {
            each.producer_id: LastWrite(
                each.batches[-1].last_offset if each.batches else -1, each.epoch
            )
            for each in self.active(log, now)
        }

    def forget_markers(self, log: Log, markers: Sequence[int]) -> None:
        """Note that these markers go, because nothing is left of their transactions.

        Raises StorageError. A snapshot is written first if the last one is older than a marker,
        which nobody finds in the log any more, or names an aborted transaction that goes with it.
        """
        known = self.of(log)
        gone = frozenset(markers)
        forgotten = [item for item in known.aborted if item.last in gone]
        if forgotten or max(markers) >= known.snapshot_upto:
            known.aborted = [item for item in known.aborted if item.last not in gone]
            known.unwritten = [item for item in known.unwritten if item.last not in gone]
            self._save(known)
            self._delete_rows(log, forgotten)

    # -- all of a log ------------------------------------------------------------------------------

    def of(self, log: Log) -> LogProducers:
        """Return all producers of a log. May raise StorageError."""
        known = self._logs.get(log.log_id)
        if known is None:
            known = self._recovered(log)
            self._logs[log.log_id] = known
            self._count += len(known.known)
        return known

    def active(self, log: Log, now: int) -> list[ProducerStateEntry]:
        """Return the producers of a log that have not expired, by id."""
        known = self.of(log)
        self._expire(known, now)
        return [producer for _, producer in sorted(known.known.items())]

    def _producer(self, log: Log, producer_id: int, now: int) -> ProducerStateEntry | None:
        producer = self.of(log).known.get(producer_id)
        return None if producer is None or self._is_expired(producer, now) else producer

    # -- forgetting ------------------------------------------------------------------------------

    def _is_expired(self, producer: ProducerStateEntry, now: int) -> bool:
        return producer.open_from is None and now - producer.seen_at >= self._expiration_ms

    def _expire(self, known: LogProducers, now: int) -> None:
        gone = [each for each in known.known.values() if self._is_expired(each, now)]
        for producer in gone:
            del known.known[producer.producer_id]
        self._count -= len(gone)

    def _forget_one(self, known: LogProducers) -> None:
        newest = next(reversed(known.known))
        for producer in known.known.values():
            if producer.open_from is None and producer.producer_id != newest:
                del known.known[producer.producer_id]
                self._count -= 1
                return

    @property
    def next_at(self) -> int | None:
        return self._next_at

    def due(self, now: int, effects: list[Effect]) -> None:
        """Forget expired producers, deleted logs and transactions, and update snapshots."""
        self._next_at = now + SWEEP_MS
        for log_id, known in list(self._logs.items()):
            log = known.log
            if self._store.log(log.topic, log.queue_id) is not log:
                del self._logs[log_id]
                self._count -= len(known.known)
                with suppress(StorageError):
                    self._table.delete(str(log_id))
                    self._delete_rows(log, known.aborted)
                continue
            self._expire(known, now)
            kept = bisect_left(known.aborted, log.min_offset, key=_marker_of)
            with suppress(StorageError):
                self._delete_rows(log, known.aborted[:kept])
                del known.aborted[:kept]
                known.unwritten = [item for item in known.unwritten if item.last >= log.min_offset]
                if str(log_id) in self._table and known.snapshot_upto != log.max_offset:
                    self._save(known)

    def _delete_rows(self, log: Log, gone: list[Aborted]) -> None:
        keys = [_key(log, item.last) for item in gone]
        self._aborted.put_many([(key, None) for key in keys if key in self._aborted])

    # -- snapshots -------------------------------------------------------------------------------

    def save(self, log: Log) -> None:
        """Save a snapshot of what the log itself does not show. If the disk refuses, later."""
        with suppress(StorageError):
            self._save(self.of(log))

    def _save_in_time(self, known: LogProducers) -> None:
        grown = distance(known.snapshot_address, known.log.next_address)
        if known.unsaved >= SNAPSHOT_BATCHES or grown >= SNAPSHOT_BYTES:
            with suppress(StorageError):  # the old one stays valid; retried later
                self._save(known)

    def _save(self, known: LogProducers) -> None:
        """Write the aborted transactions and then a snapshot. May raise StorageError.

        In this order, because what comes before a snapshot is not read again.
        """
        log = known.log
        known.snapshot_address = log.next_address
        known.unsaved = 0
        self._aborted.put_many(
            [(_key(log, item.last), msgspec.msgpack.encode(item)) for item in known.unwritten]
        )
        known.unwritten = []
        last_aborted = known.aborted[-1].last if known.aborted else -1
        snapshot = _Snapshot(
            log.topic, log.queue_id, log.max_offset, list(known.known.values()), last_aborted
        )
        self._table.put(str(log.log_id), msgspec.msgpack.encode(snapshot))
        known.snapshot_upto = log.max_offset

    def _recovered(self, log: Log) -> LogProducers:
        """Return what the snapshot says, and what was written since."""
        known = LogProducers(log)
        value = self._table.get(str(log.log_id))
        if value is None:
            known.snapshot_address = log.next_address
            return known
        snapshot = msgspec.msgpack.decode(value, type=prepared(_Snapshot))
        if snapshot.upto < log.min_offset:
            # What producers wrote since is gone, so that nobody knows where they are by now.
            # Source: ProducerStateManager.truncateAndReload.
            snapshot = replace(snapshot, producers=[])
        known.known = {each.producer_id: each for each in snapshot.producers}
        opened = [
            (each.open_from, each.producer_id)
            for each in snapshot.producers
            if each.open_from is not None
        ]
        known.open = {producer_id: first for first, producer_id in sorted(opened)}
        written = self._unclaimed.get(log.log_id, ())
        known.aborted = sorted(
            [item for item in written if item.last < snapshot.upto], key=_marker_of
        )
        known.snapshot_upto = snapshot.upto
        offset = max(snapshot.upto, log.min_offset)
        while offset < log.max_offset:
            try:
                run = log.read_run(offset, _SCAN_BYTES)
            except CorruptError as error:
                # Nobody can read it, and what it says of its producer is lost as well.
                offset = error.next_offset
                continue
            assert run.next_offset > offset
            if run.kind == BATCHES:
                self._take(known, run.data)
            offset = run.next_offset
        known.snapshot_address = log.next_address
        self._unclaimed.pop(log.log_id, None)  # not before: the disk may have refused to be read
        return known

    def _take(self, known: LogProducers, data: bytes) -> None:
        """Record batches that were stored before a restart."""
        try:
            for at, header in read_headers(data):
                if not header.has_producer_id:
                    continue
                first_kept = max(header.base_offset, known.log.min_offset)
                seen_at = known.log.stored_at(first_kept)
                if not header.is_control:
                    known.wrote(header, header.base_offset, header.max_timestamp, seen_at)
                    continue
                marker = read_marker(data, at)
                if marker is not None:
                    abort = marker.kind == ABORT
                    epoch = marker.coordinator_epoch
                    known.ended(header, epoch, header.base_offset, abort=abort, now=seen_at)
        except ProtocolError as error:
            raise StorageError(f"{known.log.folder}: {error}") from None

    def check(self) -> None:
        assert self._count == sum(len(known.known) for known in self._logs.values())
        for known in self._logs.values():
            firsts = list(known.open.values())
            assert firsts == sorted(firsts)
            opened = {
                p.producer_id: p.open_from for p in known.known.values() if p.open_from is not None
            }
            assert opened == known.open
            assert all(len(producer.batches) <= BATCHES_KEPT for producer in known.known.values())


def _marker_of(aborted: Aborted) -> int:
    return aborted.last


def _key(log: Log, last: int) -> str:
    """Return the key of a transaction that was aborted by the marker at this offset."""
    return f"{log.log_id}:{last}"
