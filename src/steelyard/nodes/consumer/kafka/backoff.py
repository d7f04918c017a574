"""Exponential back-off with jitter between attempts."""

from __future__ import annotations

from steelyard.types import Random

_JITTER = 0.2


class Backoff:
    """Doubles after each failure, plus or minus a fifth (KIP-580). Times in ms."""

    def __init__(self, first_ms: int, max_ms: int, random: Random) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._random = random
        self._failures = 0

    def next_ms(self) -> int:
        """Return how long to wait after another failure."""
        exponent = min(self._failures, 30)
        self._failures += 1
        wait_ms = min(self._first_ms << exponent, self._max_ms)
        return max(1, round(wait_ms * (1 - _JITTER + 2 * _JITTER * self._random.random())))

    def reset(self) -> None:
        """Reset after a success."""
        self._failures = 0
