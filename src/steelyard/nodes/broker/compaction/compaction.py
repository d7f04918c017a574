"""Compaction: which log is compacted next, and when.

Topics with cleanup.policy=compact (or compact,delete) keep the last record of each key. Every
`compaction_interval_ms`, the log with the largest dirty part of those that need it is compacted,
then the next one, until none needs it. A log needs it if

- more of its cleanable bytes than min.cleanable.dirty.ratio were never compacted, or
- the first entry of a dirty segment is older than max.compaction.lag.ms.

Only closed segments are compacted: see `passes.cleanable`. A pass works in steps of about half a
millisecond, with a pause of PAUSE_MS after each, so that requests wait for it hardly ever. How far
a log was compacted is in the table `compacted`; without it, a log is compacted from its beginning.

A log with damage is left alone for RETRY_MS: nothing can be said of the keys that are lost.
Source: core/kafka/log/LogCleaner.scala, LogCleanerManager.scala.
"""

from __future__ import annotations

from contextlib import suppress

from steelyard.config import StoreConfig
from steelyard.errors import StorageError
from steelyard.nodes.broker.compaction.passes import (
    ActiveProducers,
    Pass,
    cleanable,
    dirty_sizes,
    first_times,
    of_one_pass,
)
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.statistics import BrokerStatistics
from steelyard.nodes.broker.topics import COORDINATOR_TOPICS
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.store.log import Log
from steelyard.store.store import Store
from steelyard.types import LogLine

COMPACTION_TIMER = "compaction"

PAUSE_MS = 2
FLUSH_PAUSE_MS = 20
"""The pause while a pass waits for the disk."""
RETRY_MS = 3_600_000

LOGS_MAX = 10_000
"""Logs that are looked at in one event, which takes some milliseconds."""


class LogCompaction:
    """Compacts logs; see the module docstring."""

    def __init__(
        self,
        config: StoreConfig,
        store: Store,
        durability: Durability,
        producers: ActiveProducers,
        faults: Faults,
        statistics: BrokerStatistics,
    ) -> None:
        self._config = config
        self._store = store
        self._durability = durability
        self._producers = producers
        self._faults = faults
        self._statistics = statistics
        self._table = store.table("compacted")
        self._pass: Pass | None = None
        self._steps: Steps[int | None] | None = None
        self._left: list[Log] = []
        """Logs that the search under way has not looked at yet."""
        self._best: tuple[float, Log, int, int] | None = None
        """Of those that it has, the dirtiest: its ratio, the log, its dirty offset, its end."""
        self._left_alone: dict[int, int] = {}
        """By log id, until when logs that could not be compacted are left alone."""

    def start(self, now: int, effects: list[Effect]) -> None:
        there = {str(log.log_id) for log in self._store.all_logs()}
        gone = [(key, None) for key, _ in self._table.items() if key not in there]
        with suppress(StorageError):  # the next start tries again
            self._table.put_many(gone)
        if self._config.compaction_interval_ms:
            effects.append(SetTimer(COMPACTION_TIMER, now + self._config.compaction_interval_ms))

    def due(self, now: int, effects: list[Effect]) -> None:
        """Go on with the pass under way, or with the search for a log; set the next timer."""
        pause = PAUSE_MS
        if self._pass is not None:
            self._step(self._pass, now, effects)
            if self._pass is not None and self._pass.is_waiting:
                pause = FLUSH_PAUSE_MS
        elif not self._search(now):
            pause = self._config.compaction_interval_ms
        effects.append(SetTimer(COMPACTION_TIMER, now + pause))

    @property
    def is_idle(self) -> bool:
        """Return whether no pass is under way."""
        return self._pass is None

    # -- which log -------------------------------------------------------------------------------

    def _search(self, now: int) -> bool:
        """Look at some logs; return False if all were looked at and none needs compaction."""
        if not self._left:
            self._left = [
                log
                for log in self._store.all_logs()
                if log.config.compacts and log.topic not in COORDINATOR_TOPICS
            ]
            self._best = None
        for _ in range(min(LOGS_MAX, len(self._left))):
            log = self._left.pop()
            try:
                self._look_at(log, now)
            except StorageError:  # damage is reported; what else it is, a reader will be told
                self._left_alone[log.log_id] = now + RETRY_MS
        if self._left:
            return True
        if self._best is None:
            return False
        _, log, dirty, stop = self._best
        self._best = None
        segments = [each for each in log.closed() if each.end[1] <= stop]
        if segments and self._store.log(log.topic, log.queue_id) is log:
            keys_max = self._config.compaction_keys_max
            self._pass = Pass(log, segments, dirty, self._producers, self._durability, keys_max)
        return True

    def _look_at(self, log: Log, now: int) -> None:
        if self._left_alone.get(log.log_id, now) > now:
            return
        self._left_alone.pop(log.log_id, None)
        closed = log.closed()
        if not closed:
            return
        dirty = self._dirty(log)
        if closed[-1].end[1] <= dirty:
            return
        segments = cleanable(log, dirty, self._producers.last_stable(log), now)
        total, unclean = dirty_sizes(segments, dirty)
        if not unclean:
            return
        ratio = unclean / total
        lag_ms = log.config.max_compaction_lag_ms
        is_late = lag_ms >= 0 and any(at < now - lag_ms for at in first_times(segments, dirty))
        if ratio <= log.config.min_cleanable_dirty_ratio and not is_late:
            return
        if self._best is None or ratio > self._best[0]:
            self._best = (ratio, log, dirty, of_one_pass(segments, dirty)[-1].end[1])

    def _dirty(self, log: Log) -> int:
        """Return the first offset of a log that was never compacted."""
        dirty = int(self._table.get(str(log.log_id)) or 0)
        # A power failure may have taken the end of the log, whose offsets were given out again.
        return max(dirty, log.min_offset) if dirty <= log.max_offset else log.min_offset

    # -- the pass under way ----------------------------------------------------------------------

    def _step(self, one: Pass, now: int, effects: list[Effect]) -> None:
        log = one.log
        is_there = self._store.log(log.topic, log.queue_id) is log and log.config.compacts
        try:
            if not is_there:
                self._end(one)
            elif self._steps is None:
                self._steps = one.steps(now, effects)
                next(self._steps)
            else:
                one.more()
                self._steps.send((now, effects))
        except StopIteration as end:
            self._end(one)
            if end.value is not None:
                self._done(one, end.value, now, effects)
        except StorageError as error:
            self._end(one)
            self._left_alone[log.log_id] = now + RETRY_MS
            text = f"queue {log.queue_id} of {log.topic} was not compacted: {error}"
            self._faults.tell(text, now, effects)

    def _end(self, one: Pass) -> None:
        one.abandon()
        self._pass = self._steps = None

    def _done(self, one: Pass, dirty: int, now: int, effects: list[Effect]) -> None:
        log = one.log
        self._statistics.compactions += 1
        self._statistics.compacted_bytes += one.bytes_before
        self._statistics.compacted_bytes_left += one.bytes_after
        try:
            self._table.put(str(log.log_id), b"%d" % dirty)
        except StorageError as error:
            self._left_alone[log.log_id] = now + RETRY_MS
            self._faults.tell(f"how far {log.topic} was compacted: {error}", now, effects)
        text = (
            f"queue {log.queue_id} of {log.topic} was compacted up to offset {dirty}:"
            f" {one.bytes_before} bytes became {one.bytes_after}"
        )
        effects.append(LogLine("INFO", text))
