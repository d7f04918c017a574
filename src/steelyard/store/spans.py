"""A set of positions kept as a few contiguous spans: the verified parts of a file."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

SPANS_MAX = 64
"""Maximum spans of one set.

Beyond it the shortest is dropped, which only costs another verification.
"""


class Spans:
    """The positions begin .. end - 1 of any number of spans."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def covers(self, begin: int, end: int) -> bool:
        """Return whether all of begin .. end - 1 is in one span."""
        number = bisect_right(self._begins, begin) - 1
        return number >= 0 and self._ends[number] >= end

    def add(self, begin: int, end: int) -> None:
        """Add begin .. end - 1; adjacent spans are merged."""
        first = bisect_left(self._ends, begin)
        last = bisect_right(self._begins, end)
        if first < last:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        if len(self._begins) > SPANS_MAX:
            sizes = [b - a for a, b in zip(self._begins, self._ends, strict=True)]
            shortest = sizes.index(min(sizes))
            del self._begins[shortest], self._ends[shortest]

    def remove(self, begin: int, end: int) -> None:
        """Remove begin .. end - 1."""
        spans = list(zip(self._begins, self._ends, strict=True))
        self._begins, self._ends = [], []
        for one, other in spans:
            for left, right in ((one, min(other, begin)), (max(one, end), other)):
                if left < right:
                    self.add(left, right)
