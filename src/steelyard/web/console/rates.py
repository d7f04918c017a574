"""Rates of counters that are read from time to time."""

from __future__ import annotations

from collections.abc import Hashable

SECONDS_MIN = 0.9
"""Least time between two readings that a rate is computed from."""

COUNTERS_MAX = 20_000
"""Most counters that are remembered; beyond it, the one that was read longest ago is forgotten."""


_Reading = tuple[float, float, float | None]
"""A value, when it was read in seconds, and the rate up to then."""


class Rates:
    """The last reading of each counter, and the rate before it."""

    def __init__(self) -> None:
        self._last: dict[Hashable, _Reading] = {}

    def rate(self, counter: Hashable, value: float, now: float) -> float | None:
        """Return how much a counter has grown per second. `now` is in seconds.

        None for the first reading, and after the counter has begun anew.
        """
        last = self._last.pop(counter, None)
        if last is None:
            kept: _Reading = (value, now, None)
        else:
            before, at, _ = last
            if now - at < SECONDS_MIN:
                kept = last
            elif value < before:
                kept = (value, now, None)
            else:
                kept = (value, now, (value - before) / (now - at))
        self._last[counter] = kept
        while len(self._last) > COUNTERS_MAX:
            del self._last[next(iter(self._last))]
        return kept[2]
