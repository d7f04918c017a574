"""Pause, spike and percentiles: the measures of a rebalance, for anyone who has the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

BACKLOG_FLOOR = 1
"""Smallest median backlog; smaller ones count as this."""


def pause_ms(last_at_old: int, stored: int, first_at_new: int) -> int:
    """Return how long a moved queue stood still while a message, stored at `stored`, waited."""
    return max(0, first_at_new - max(last_at_old, stored))


def spike(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Divide the peak of the backlogs `after` by the median `before`; None if either is empty."""
    if not before or not after:
        return None
    return max(after) / baseline(before)


def baseline(before: Sequence[float]) -> float:
    """Return the median backlog (of an even number, the middle two's mean), >= `BACKLOG_FLOOR`."""
    ranked = sorted(before)
    middle = len(ranked) // 2
    median = ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
    return max(median, BACKLOG_FLOOR)


def percentile(values: Sequence[int], share: float) -> int:
    """Return the nearest-rank percentile, 0 of no values.

    That is the smallest value that at least `share` of all values do not exceed.
    """
    if not values:
        return 0
    return sorted(values)[max(ceil(len(values) * share), 1) - 1]
