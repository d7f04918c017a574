"""Clocks of simulated hosts, with a constant skew and a drift.

They never go back while a process runs (`faults`: set_clock_back).
"""

from __future__ import annotations

import msgspec

EPOCH = 1_700_000_000_000
"""Start of every simulation, in ms since the Unix epoch (14 November 2023)."""

DRIFT_PPM_MAX = 500
"""Maximum drift: ten times that of a machine without time service."""

_MILLION = 1_000_000


class Clock(msgspec.Struct, frozen=True):
    """Converts true time to a host's time. `skew_ms` at the epoch, then `drift_ppm`."""

    skew_ms: int = 0
    drift_ppm: int = 0

    def read(self, true: int) -> int:
        """Return the host's time at the true time; monotonic because |drift| < 1,000,000 ppm."""
        return true + self.skew_ms + (true - EPOCH) * self.drift_ppm // _MILLION

    def true_time(self, shown: int) -> int:
        """Return the earliest true time at which the clock shows `shown` or more."""
        if not self.drift_ppm:
            return shown - self.skew_ms
        guess = EPOCH + (shown - self.skew_ms - EPOCH) * _MILLION // (_MILLION + self.drift_ppm)
        while self.read(guess) >= shown:
            guess -= 1
        while self.read(guess) < shown:
            guess += 1
        return guess
