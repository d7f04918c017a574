"""A set of positions, kept as few spans without gaps: what of a file was verified already."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

SPANS_MAX = 64
"""Most spans of one set. Beyond, the shortest is forgotten, which only costs that it is verified again."""


class Spans:
    """Positions begin .. end - 1 of any number of spans."""

    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    def covers(self, begin: int, end: int) -> bool:
        """Is all of begin .. end - 1 in one span?"""
        number = bisect_right(self._begins, begin) - 1
        return number >= 0 and self._ends[number] >= end

    def add(self, begin: int, end: int) -> None:
        """Take begin .. end - 1 in; spans that touch become one."""
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
        """Take begin .. end - 1 out."""
        spans = list(zip(self._begins, self._ends, strict=True))
        self._begins, self._ends = [], []
        for one, other in spans:
            for left, right in ((one, min(other, begin)), (max(one, end), other)):
                if left < right:
                    self.add(left, right)
