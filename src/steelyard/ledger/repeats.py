"""Offsets that a group was delivered more than once, and how many it processed more than once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from steelyard.ledger.events import (
    BrokerStarted,
    Committed,
    Delivered,
    Queue,
    Record,
    queue_of,
)
from steelyard.ledger.starts import Death

UNWRITTEN_MS = 2_000
"""Longest time before the death of a broker whose records were not written.

Brokers write once a second by default; the last record may be from the start of that second.
"""


class OffsetRanges:
    """The offsets of one queue delivered so far, as disjoint ranges."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._nexts: list[int] = []

    def add(self, first: int, following: int) -> int:
        """Add the offsets first..following-1; return how many of them were present before."""
        left = bisect_left(self._nexts, first)
        right = bisect_right(self._firsts, following)
        known = 0
        start, end = first, following
        for i in range(left, right):
            known += max(0, min(following, self._nexts[i]) - max(first, self._firsts[i]))
            start, end = min(start, self._firsts[i]), max(end, self._nexts[i])
        self._firsts[left:right] = [start]
        self._nexts[left:right] = [end]
        return known


class Repeat(NamedTuple):
    """A delivery with offsets that had been delivered before, and how many they are.

    `reprocessed_max` may be more than `redelivered` after a broker died with records not written.
    """

    queue: Queue
    at: int
    redelivered: int
    reprocessed_min: int
    reprocessed_max: int


class _Handed:
    """What members reported of what their applications were handed.

    `_said`: their commits of each queue, by time. `_began`: each time at which the member began to
    read the queue: it took over from another one, or went back, as after an eager rebalance.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._said: dict[tuple[Queue, str], list[Committed]] = defaultdict(list)
        self._began: dict[tuple[Queue, str], list[int]] = defaultdict(list)
        newest: dict[Queue, Delivered] = {}
        for one in records:
            if isinstance(one, Committed):
                self._said[queue_of(one), one.client].append(one)
            elif isinstance(one, Delivered):
                queue = queue_of(one)
                last = newest.get(queue)
                if last is None or last.client != one.client or one.first < last.next:
                    self._began[queue, one.client].append(one.at)
                newest[queue] = one

    def bounds(self, one: Delivered) -> tuple[int, int]:
        """Return two offsets: all before the first was handed over, nothing from the second on."""
        key = queue_of(one), one.client
        said, began = self._said[key], self._began[key]
        anew = bisect_right(began, one.at)
        first = bisect_left(said, one.at, key=_at)
        last = bisect_left(said, began[anew], key=_at) if anew < len(began) else len(said)
        later = said[first:last]
        for each in later:
            if each.handed is not None:
                handed = min(max(each.handed, one.first), one.next)
                return handed, handed
        low = max((each.offset for each in later), default=one.first)
        return min(max(low, one.first), one.next), one.next


def _at(record: Committed) -> int:
    return record.at


def find_repeats(records: Sequence[Record], deaths: Iterable[Death]) -> list[Repeat]:
    """Return the deliveries of one group with repeated offsets; `records` are sorted by time."""
    handed = _Handed(records)
    delivered, surely, possibly = (defaultdict[Queue, OffsetRanges](OffsetRanges) for _ in range(3))
    found = []
    died_at = {(death.broker, death.back_at): death.at for death in deaths}
    unwritten: dict[str, int] = {}
    """Until when a broker delivered without its records being written."""
    for one in records:
        if isinstance(one, BrokerStarted) and (one.broker, one.at) in died_at:
            unwritten[one.broker] = died_at[one.broker, one.at] + UNWRITTEN_MS
        if not isinstance(one, Delivered):
            continue
        queue = queue_of(one)
        low, high = handed.bounds(one)
        if one.stored <= unwritten.get(one.broker, -1):
            possibly[queue].add(one.first, one.next)
        repeat = Repeat(
            queue,
            one.at,
            _repeated(delivered[queue], one.first, one.next, one.count),
            _repeated(surely[queue], one.first, low, one.count),
            _repeated(possibly[queue], one.first, high, one.count),
        )
        if repeat.redelivered or repeat.reprocessed_max:
            found.append(repeat)
    return found


def _repeated(seen: OffsetRanges, first: int, following: int, count: int) -> int:
    """Count those of these offsets, at most `count`, that were in `seen`, and add all to it."""
    return min(seen.add(first, following), count) if following > first else 0
