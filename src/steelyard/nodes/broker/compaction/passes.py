"""One compaction of a log: its cleanable segments are read twice and replaced, group by group.

The first reading learns the last offset of each key of the dirty part, the second writes what is
left (`steelyard.compaction`). If there are more keys than fit into memory, the pass ends where they
do, and the next one goes on from there.

A pass works in steps, and anything may happen between two of them. When retention, a client or
another setting has removed one of its segments, it ends. Replacing waits for the disk twice, see
`store.cleaning`; groups are replaced in order, so that a tombstone never goes before what it
deleted. Source: core/kafka/log/LogCleaner.doClean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from steelyard.compaction.filtering import Filtering, LastWrite
from steelyard.compaction.learning import Learning
from steelyard.compaction.offset_map import OffsetMap
from steelyard.compaction.transactions import Aborted, CleanedTransactions
from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.store.cleaning import Cleaning, in_groups, read_entries
from steelyard.store.entry import stored_at
from steelyard.store.log import Log
from steelyard.store.runs import EntryRun
from steelyard.store.segment import Segment
from steelyard.store.store import Store
from steelyard.types import Effort

STEP_EFFORT = 500
"""The effort of a step, in about microseconds."""
PASS_BYTES = 16 * 1024 * 1024
READ_BYTES = 16 * 1024
"""Bytes that are read at once, or an entry if it is larger."""
BYTES_PER_EFFORT = 1_000
"""Bytes that are read, verified and written in a microsecond."""
BATCH = 0x40


class ActiveProducers(Protocol):
    """What compaction needs to know of Kafka's producers."""

    def last_stable(self, log: Log) -> int:
        """Return the last stable offset: every transaction before it has ended."""

    def aborted(self, log: Log, first: int, next_offset: int) -> Sequence[Aborted]:
        """Return the aborted transactions that overlap with `first` to `next_offset` - 1."""

    def last_writes(self, log: Log, now: int) -> Mapping[int, LastWrite]:
        """Return what each active producer wrote last, by its id."""

    def forget_markers(self, log: Log, markers: Sequence[int]) -> None:
        """Note that these markers go, because nothing is left of their transactions."""


class WithoutKafka:
    """The producers of a broker without Kafka listener: logs that have some are not compacted."""

    def __init__(self, store: Store, durability: Durability) -> None:
        self._table = store.table("kafka_producers")
        self._durability = durability

    def last_stable(self, log: Log) -> int:
        return 0 if str(log.log_id) in self._table else self._durability.readable_end(log)

    def aborted(self, log: Log, first: int, next_offset: int) -> Sequence[Aborted]:
        return ()

    def last_writes(self, log: Log, now: int) -> Mapping[int, LastWrite]:
        return {}

    def forget_markers(self, log: Log, markers: Sequence[int]) -> None:
        """Do nothing: there are none."""


class Pass:
    """A pass over the first segments of a log, up to `segments[-1]`.

    `dirty`: the first offset that was never compacted. `is_waiting`: for the disk.
    """

    def __init__(
        self,
        log: Log,
        segments: list[Segment],
        dirty: int,
        producers: ActiveProducers,
        durability: Durability,
        keys_max: int,
    ) -> None:
        self.log = log
        self._segments = segments
        self._dirty = max(dirty, log.min_offset)
        self._stop = segments[-1].end[1]
        self._producers = producers
        self._durability = durability
        self._keys = OffsetMap(keys_max)
        self._effort = Effort(STEP_EFFORT)
        self._cleaning: Cleaning | None = None
        self.is_waiting = False
        self.bytes_before = 0
        self.bytes_after = 0

    def steps(self, now: int, effects: list[Effect]) -> Steps[int | None]:
        """Do it; return the first offset that is dirty now, None if the log has changed.

        Raises StorageError: then what was replaced stays so.
        """
        del effects  # of the first step, which has none
        if not (yield from self._learn()):
            return None
        stop = self._keys.latest + 1
        if stop <= self._dirty:
            raise StorageError("one batch has more keys than compaction may keep in memory")
        aborted = self._producers.aborted(self.log, self.log.min_offset, self._stop)
        writes = self._producers.last_writes(self.log, now)
        config = self.log.config
        filtering = Filtering(
            self._keys,
            CleanedTransactions(aborted),
            writes,
            self._stop,
            now,
            config.delete_retention_ms,
        )
        reached = [segment for segment in self._segments if segment.base_offset < stop]
        for group in in_groups(reached, config.segment_bytes):
            if not (yield from self._replace(group, filtering)):
                return None
        return stop

    def abandon(self) -> None:
        """Remove what was written and has replaced nothing."""
        if self._cleaning is not None:
            self._cleaning.discard()
            self._cleaning = None

    # -- learning --------------------------------------------------------------------------------

    def _learn(self) -> Steps[bool]:
        aborted = self._producers.aborted(self.log, self._dirty, self._stop)
        learning = Learning(self._keys, CleanedTransactions(aborted), self._dirty)
        for segment in self._segments:
            if segment.end[1] <= self._dirty:
                continue
            offset = max(segment.base_offset, self._dirty)
            while offset < segment.end[1]:
                if segment not in self.log.closed():
                    return False
                entries, offset = read_entries(segment, offset, READ_BYTES)
                for run, data in entries:
                    if _is_batch(run):
                        fits = yield from learning.batch(data, self._effort)
                    else:
                        fits = learning.message(data, run.first, self._effort)
                    if not fits:
                        return True
                    yield from self._spend(len(data))
            self._keys.latest = max(self._keys.latest, segment.end[1] - 1)
        return True

    def _spend(self, size: int) -> Steps[None]:
        """Count the effort of an entry of this size; end the step if it is used up."""
        self._effort.left -= 1 + size // BYTES_PER_EFFORT
        if self._effort.left <= 0:
            yield

    # -- replacing -------------------------------------------------------------------------------

    def _replace(self, group: list[Segment], filtering: Filtering) -> Steps[bool]:
        cleaning = self._cleaning = self.log.clean(group)
        for segment in group:
            offset = segment.base_offset
            while offset < segment.end[1]:
                if not cleaning.is_current:
                    return False
                entries, offset = read_entries(segment, offset, READ_BYTES)
                for run, data in entries:
                    left = yield from self._left(run, data, filtering)
                    if left:
                        cleaning.add(run, left)
                    yield from self._spend(len(data))
        cleaning.write()
        yield from self._flushed()
        if not cleaning.is_current:
            return False
        if filtering.bare_markers:
            # Without its marker an aborted transaction, and after a restart any, would seem to go
            # on. That nothing of it is left was so before this pass.
            self._producers.forget_markers(self.log, filtering.bare_markers)
            filtering.bare_markers.clear()
            yield from self._flushed()
            if not cleaning.is_current:
                return False
        cleaning.swap()
        self._cleaning = None
        self.bytes_before += sum(segment.size for segment in group)
        self.bytes_after += cleaning.size
        yield from self._flushed()
        self.log.remove_replaced()
        return True

    def _left(self, run: EntryRun, data: bytes, filtering: Filtering) -> Steps[bytes]:
        if _is_batch(run):
            return (yield from filtering.batch(data, self._effort))
        stays = filtering.message(data, run.first, stored_at(data), self._effort)
        return data if stays else b""

    def _flushed(self) -> Steps[None]:
        """Wait until the disk has what was written."""
        mark = self._durability.mark_of_disk()
        self.is_waiting = True
        while not self._durability.has(mark):
            _, effects = yield
            self._durability.hasten(mark, effects)
        self.is_waiting = False

    def more(self) -> None:
        """Allow another step's effort."""
        self._effort.left = STEP_EFFORT


def cleanable(log: Log, dirty: int, stable: int, now: int) -> list[Segment]:
    """Return the segments of a log that may be compacted, from the first one on.

    Not those with transactions that have not ended, and none from the first dirty one on whose
    newest entry is younger than min.compaction.lag.ms. Ages are those of appends, by this broker's
    clock. Source: core/kafka/log/LogCleanerManager.cleanableOffsets.
    """
    found: list[Segment] = []
    lag_ms = log.config.min_compaction_lag_ms
    for segment in log.closed():
        end = segment.end[1]
        is_young = lag_ms > 0 and end > dirty and now - segment.newest() < lag_ms
        if end > stable or is_young:
            break
        found.append(segment)
    return found


def of_one_pass(segments: Sequence[Segment], dirty: int) -> list[Segment]:
    """Return as many of these segments as one pass takes.

    It takes as much that was never compacted as was, or PASS_BYTES: so it does not last long
    compared with what it is good for, and a restart does not undo much.
    """
    clean = sum(segment.size for segment in segments if segment.end[1] <= dirty)
    left = max(PASS_BYTES, clean)
    found: list[Segment] = []
    for segment in segments:
        if segment.end[1] > dirty:
            if left <= 0:
                break
            left -= segment.size
        found.append(segment)
    return found


def dirty_sizes(segments: Sequence[Segment], dirty: int) -> tuple[int, int]:
    """Return the bytes of these segments, and those of them that were never compacted."""
    unclean = sum(segment.size for segment in segments if segment.end[1] > dirty)
    return sum(segment.size for segment in segments), unclean


def first_times(segments: Sequence[Segment], dirty: int) -> Iterator[int]:
    """Yield when the first entry of each dirty segment was stored."""
    for segment in segments:
        if segment.end[1] > dirty and segment.size:
            yield segment.stored_at(segment.base_offset)


def _is_batch(run: EntryRun) -> bool:
    return run.place[2] >> 56 == BATCH
