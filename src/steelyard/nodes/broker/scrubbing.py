"""Scrubbing: all logs are verified slowly, again and again, to find damage before readers do.

A pass goes through all logs by name, from the beginning of each to its current end; the next one
starts `scrub_interval_ms` after it started, or when it has ended, whichever is later. At most
`scrub_bytes_per_second` are read, in pieces of PIECE_BYTES. What is found is reported as for any
other reader (`damage`).

RocketMQ's consumers get nothing that was not verified when it was read. Kafka's batches are
verified once before they are sent from their file (`fetch_reads`), not each time: later damage is
found by the clients' own checksums, or by a pass.
"""

from __future__ import annotations

from steelyard.config import StoreConfig
from steelyard.errors import StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.seam import Effect, SetTimer
from steelyard.store.store import Store

SCRUB_TIMER = "scrub"

PIECE_BYTES = 256 * 1024
"""Bytes read at once: 0.1 ms of work, 1.5 ms for batches of one small record."""
LOGS_MAX = 100
"""Maximum logs examined in one step, for the case that most are empty."""
FIRST_PASS_MS = 60_000
"""When the first pass begins after the start, which has enough to do."""


class Scrubbing:
    """Verifies all logs; see the module docstring. `logs`: of the current pass, or the last one."""

    def __init__(self, store: Store, config: StoreConfig, faults: Faults) -> None:
        self._store = store
        self._rate = config.scrub_bytes_per_second
        self._interval_ms = config.scrub_interval_ms
        self._faults = faults
        self._ahead: list[tuple[str, int]] = []
        """Topic and queue of the logs still to be read in this pass, the next one last."""
        self._offset = 0
        self._started_at = 0
        self._ended_at = -1
        self.logs = 0
        self.passes = 0
        self.bytes = 0

    def start(self, now: int, effects: list[Effect]) -> None:
        if self._rate > 0:
            effects.append(SetTimer(SCRUB_TIMER, now + FIRST_PASS_MS))

    def due(self, now: int, effects: list[Effect]) -> None:
        """Verify a piece, and set the timer for the next one."""
        if not self._ahead:
            self._begin(now)
        size = 0
        for _ in range(LOGS_MAX):
            if not self._ahead or size >= PIECE_BYTES:
                break
            size += self._step(PIECE_BYTES - size, now, effects)
        self.bytes += size
        if self._ahead:
            next_at = now + max(1, size * 1000 // self._rate)
        else:
            self.passes += 1
            self._ended_at = now
            next_at = max(now + 1, self._started_at + self._interval_ms)
        effects.append(SetTimer(SCRUB_TIMER, next_at))

    def _begin(self, now: int) -> None:
        self._started_at = now
        self._offset = 0
        self._ahead = [
            (log.topic, log.queue_id)
            for topic in self._store.topics()
            for log in self._store.logs(topic)
        ]
        self._ahead.reverse()
        self.logs = len(self._ahead)

    def _step(self, bytes_max: int, now: int, effects: list[Effect]) -> int:
        """Read on in the next log; return how many bytes."""
        topic, queue_id = self._ahead[-1]
        log = self._store.log(topic, queue_id)
        size = 0
        try:
            if log is not None:
                self._offset, size = log.verify(self._offset, bytes_max)
        except StorageError as error:
            self._faults.tell(
                f"queue {queue_id} of {topic} was not verified: {error}", now, effects
            )
            log = None
        if log is None or self._offset >= log.max_offset:
            self._ahead.pop()
            self._offset = 0
        return size

    def runtime_info(self) -> dict[str, str]:
        return {
            "scrubbedBytes": str(self.bytes),
            "scrubbedLogs": f"{self.logs - len(self._ahead)} of {self.logs}",
            "scrubPasses": str(self.passes),
            "scrubPassEndedAt": str(self._ended_at),
        }

    def check(self) -> None:
        assert len(self._ahead) <= self.logs
