"""What a server's driver measures of its process, for those who watch it. It decides nothing.

Every `SAMPLE_SECONDS` a timer of the event loop fires; how much later than it should is the loop's
delay: what every client waits, too. Every `REPORT_SECONDS` the figures so far go to the node, which
gives them to whoever asks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steelyard.wire.figures import Durations, ListenerFigures, ProcessFigures

if TYPE_CHECKING:
    import asyncio

    from steelyard.driver.accepting import Accepting
    from steelyard.driver.failures import Failures

SAMPLE_SECONDS = 0.1
"""Interval between two samples of the event loop's delay."""

REPORT_SECONDS = 1.0
"""Interval between two reports to the node."""


class Measuring:
    """The measurements of one driver. `report` gets the figures; `start` begins, `stop` ends it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        accepting: Accepting,
        failures: Failures,
        report: Callable[[ProcessFigures], None],
    ) -> None:
        self._loop = loop
        self._accepting = accepting
        self._failures = failures
        self._report = report
        self._loop_delay = Durations()
        self._syncs = Durations()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._report_at = 0.0
        # Opened now, because later there may be no free descriptor for it.
        self._memory = _Memory()

    def start(self) -> None:
        """Begin to measure."""
        self._wait()

    def stop(self) -> None:
        """End it. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
        self._memory.close()

    def synced(self, seconds: float) -> None:
        """Note how long the disk took."""
        self._syncs.add(seconds)

    def _wait(self) -> None:
        self._due_at = time.monotonic() + SAMPLE_SECONDS
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)

    def _sample(self) -> None:
        now = time.monotonic()
        self._loop_delay.add(now - self._due_at)
        self._wait()
        if now >= self._report_at:
            self._report_at = now + REPORT_SECONDS
            self._report(self.figures())

    def figures(self) -> ProcessFigures:
        """Return the figures so far; they do not change afterwards."""
        return ProcessFigures(
            _copy(self._loop_delay),
            _copy(self._syncs),
            {
                each.name: ListenerFigures(each.count, each.received_bytes, each.sent_bytes)
                for each in self._accepting.listeners
            },
            self._accepting.refused,
            self._accepting.displaced,
            self._failures.count,
            time.process_time(),
            self._memory.resident_bytes(),
        )


def _copy(durations: Durations) -> Durations:
    return replace(durations, counts=list(durations.counts))


class _Memory:
    """The memory of this process that is in use; where it cannot be known, its peak."""

    def __init__(self) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def resident_bytes(self) -> int:
        """Return its bytes, 0 if nothing is known."""
        if self._file >= 0:
            return int(os.pread(self._file, 256, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        try:
            import resource
        except ModuleNotFoundError:  # on Windows
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
