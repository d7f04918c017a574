"""Clocks of simulated hosts: wrong by a constant and by a rate, never going back while a node runs."""

from __future__ import annotations

import msgspec

EPOCH = 1_700_000_000_000
"""When every simulation begins, ms since the Unix epoch (14 November 2023)."""

DRIFT_PPM_MAX = 500
"""A machine without time service drifts by some tens of parts per million; we allow ten times that."""

_MILLION = 1_000_000


class Clock(msgspec.Struct, frozen=True):
    """Turns true time into what one host believes. `skew_ms` at the epoch, then `drift_ppm`."""

    skew_ms: int = 0
    drift_ppm: int = 0

    def read(self, true: int) -> int:
        """What the host's clock shows at the true time; monotone in it, as |drift| < 1,000,000 ppm."""
        return true + self.skew_ms + (true - EPOCH) * self.drift_ppm // _MILLION

    def true_time(self, shown: int) -> int:
        """The earliest true time at which the clock shows `shown` or more."""
        if not self.drift_ppm:
            return shown - self.skew_ms
        guess = EPOCH + (shown - self.skew_ms - EPOCH) * _MILLION // (_MILLION + self.drift_ppm)
        while self.read(guess) >= shown:
            guess -= 1
        while self.read(guess) < shown:
            guess += 1
        return guess
