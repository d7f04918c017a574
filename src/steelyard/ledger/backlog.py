"""The backlog of a group over time, with its spike and drain after the start of a rebalance."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from steelyard.ledger.events import Backlog, Record
from steelyard.ledger.measures import BACKLOG_FLOOR, spike

BEFORE_MS = 10_000
"""Period before a rebalance whose backlog is compared."""

SAMPLE_MS = 1_000
"""How often it is looked at there."""

SETTLE_MS = 60_000
"""Longest time after the beginning in which a peak counts as caused by the rebalance."""


class BacklogSeries(NamedTuple):
    """A backlog over time, in two columns; linear between two of its points."""

    times: list[int]
    totals: list[float]

    def at(self, when: int) -> float | None:
        """The backlog at a moment, None before the first point."""
        after = bisect_right(self.times, when)
        if after == 0:
            return None
        if after == len(self.times):
            return self.totals[-1]
        begin, end = self.times[after - 1], self.times[after]
        low, high = self.totals[after - 1], self.totals[after]
        return low + (high - low) * (when - begin) / (end - begin)

    def over(self, begin: int, end: int) -> BacklogSeries:
        """From `begin` to `end`, with both."""
        low, high = bisect_right(self.times, begin), bisect_left(self.times, end)
        first, last = self.at(begin), self.at(end)
        inner = BacklogSeries(self.times[low:high], self.totals[low:high])
        if first is not None:
            inner = BacklogSeries([begin, *inner.times], [first, *inner.totals])
        if last is not None:
            inner = BacklogSeries([*inner.times, end], [*inner.totals, last])
        return inner


def backlogs(records: Iterable[Record], group: str) -> BacklogSeries:
    """The backlog of a group over time, from its brokers' records of it."""
    points: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for one in records:
        if isinstance(one, Backlog) and one.group == group:
            known = points[one.broker, one.topic]
            known[one.at] = max(known.get(one.at, 0), sum(one.waiting))
            known[one.peak_at] = max(known.get(one.peak_at, 0), one.peak)
    parts = []
    for known in points.values():
        times = sorted(known)
        parts.append(BacklogSeries(times, [known[at] for at in times]))
    moments = sorted({at for part in parts for at in part.times})
    return BacklogSeries(moments, [sum(part.at(at) or 0 for part in parts) for at in moments])


class Strain(NamedTuple):
    """What a rebalance did to the backlog. See `ledger.cost`."""

    spike: float | None
    drain_ms: int | None


def strain(backlog: BacklogSeries, began: int, end: int | None) -> Strain:
    """Measure a rebalance from `began` to `end`; None: to the end of the records."""
    grid = (backlog.at(at) for at in range(began - BEFORE_MS, began, SAMPLE_MS))
    before = [total for total in grid if total is not None]
    last = max(backlog.times[-1] if backlog.times else began, began) if end is None else end
    settled = backlog.over(began, min(last, began + SETTLE_MS))
    return Strain(
        spike(before, settled.totals),
        _drain_ms(backlog.over(began - BEFORE_MS, began), settled, backlog.over(began, last)),
    )


def _drain_ms(before: BacklogSeries, settled: BacklogSeries, after: BacklogSeries) -> int | None:
    """Find where `after` is back at what is usual; its peak is that of `settled`, its beginning."""
    if not before.times or not settled.times:
        return None
    highest, lowest = max(before.totals), min(before.totals)
    usual = max(highest + (highest - lowest), BACKLOG_FLOOR)
    peak = max(settled.totals)
    if peak <= usual:
        return 0
    falling = after.over(settled.times[settled.totals.index(peak)], after.times[-1])
    for (begin, high), (end, low) in pairwise(zip(*falling, strict=True)):
        if low <= usual:
            back = begin + (end - begin) * (high - usual) / (high - low)
            return round(back) - after.times[0]
    return None
