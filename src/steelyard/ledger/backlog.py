"""The backlog of a group over time, with its spike and drain after the start of a rebalance."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec

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
        """From `begin` to `end`, with both.

        Where it rises there, it has not yet risen: what begins a rebalance makes backlogs grow.
        """
        low, high = bisect_right(self.times, begin), bisect_left(self.times, end)
        times, totals = self.times[low:high], self.totals[low:high]
        if low:
            times, totals = [begin, *times], [self._before(begin), *totals]
        if bisect_right(self.times, end):
            times, totals = [*times, end], [*totals, self._before(end)]
        return BacklogSeries(times, totals)

    def _before(self, when: int) -> float:
        at = self.at(when)
        assert at is not None
        return min(at, self.totals[bisect_right(self.times, when) - 1])


class GroupBacklog(NamedTuple):
    """The backlogs of a group in its topics on its brokers."""

    parts: list[BacklogSeries]

    @property
    def last(self) -> int | None:
        """When it was recorded for the last time."""
        return max((part.times[-1] for part in self.parts), default=None)

    def at(self, when: int) -> float | None:
        """The backlog at a moment; None before it was recorded for the first time."""
        known = [at for part in self.parts if (at := part.at(when)) is not None]
        return sum(known) if known else None

    def over(self, begin: int, end: int) -> BacklogSeries:
        """The sum of the parts from `begin` to `end`, with both."""
        return _total(part.over(begin, end) for part in self.parts)

    def total(self) -> BacklogSeries:
        """The sum of the parts."""
        return _total(self.parts)


def _total(parts: Iterable[BacklogSeries]) -> BacklogSeries:
    known = list(parts)
    moments = sorted({at for part in known for at in part.times})
    return BacklogSeries(moments, [sum(part.at(at) or 0 for part in known) for at in moments])


class BacklogPoints(msgspec.Struct, array_like=True):
    """The backlog of a group in one topic of one broker, as it recorded it."""

    times: list[int] = []
    totals: list[int] = []

    def add(self, record: Backlog) -> None:
        """Add a record: what waited then, and the peak before."""
        self._add(record.peak_at, record.peak)
        self._add(record.at, sum(record.waiting))

    def _add(self, at: int, total: int) -> None:
        times, totals = self.times, self.totals
        if not times or at > times[-1]:
            times.append(at)
            totals.append(total)
            return
        index = bisect_left(times, at)
        if times[index] == at:
            totals[index] = max(totals[index], total)
        else:
            times.insert(index, at)
            totals.insert(index, total)

    def forget(self, before: int) -> None:
        """Forget the points before a time but for the last of them, where a line begins."""
        known = bisect_right(self.times, before) - 1
        if known > 0:
            del self.times[:known], self.totals[:known]


def together(parts: Iterable[BacklogPoints]) -> GroupBacklog:
    """Return the backlogs in all topics of all brokers."""
    return GroupBacklog([BacklogSeries(part.times, [*map(float, part.totals)]) for part in parts])


def backlogs(records: Iterable[Record], group: str) -> GroupBacklog:
    """The backlogs of a group over time, from its brokers' records of them."""
    points: dict[tuple[str, str], BacklogPoints] = defaultdict(BacklogPoints)
    for one in records:
        if isinstance(one, Backlog) and one.group == group:
            points[one.broker, one.topic].add(one)
    return together(points.values())


class Strain(NamedTuple):
    """What a rebalance did to the backlog. See `ledger.cost`."""

    spike: float | None
    drain_ms: int | None


def strain(backlog: GroupBacklog, began: int, end: int | None, end_max: int) -> Strain:
    """Measure a rebalance from `began` to `end`; None: to the end of the records.

    Not beyond `end_max`.
    """
    grid = (backlog.at(at) for at in range(began - BEFORE_MS, began, SAMPLE_MS))
    before = [total for total in grid if total is not None]
    last = max(backlog.last or began, began) if end is None else end
    last = min(last, end_max)
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
