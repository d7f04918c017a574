"""Where the records of a queue went: source offsets and target offsets.

Records keep their order, so a mapping is a list of runs in which both offsets grow by one from
record to record. A run ends where the source has a gap: compaction, or markers of transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class OffsetRun(NamedTuple):
    """`length` records that follow each other, from `source` on and from `target` on."""

    source: int
    target: int
    length: int


class Mapping:
    """The mapping of one queue."""

    def __init__(self) -> None:
        self._runs: list[OffsetRun] = []

    def add(self, run: OffsetRun) -> None:
        """Add records that follow all others."""
        if self._runs:
            last = self._runs[-1]
            if run.source == last.source + last.length and run.target == last.target + last.length:
                self._runs[-1] = last._replace(length=last.length + run.length)
                return
        self._runs.append(run)

    def target_of(self, offset: int, end: int) -> int:
        """Return where a group that is at `offset` of the source continues at the target.

        That is where the first record from `offset` on went; `end`, the offset after the last
        record at the target, if there is none.
        """
        place = bisect_right(self._runs, offset, key=lambda run: run.source) - 1
        if place >= 0:
            run = self._runs[place]
            if offset < run.source + run.length:
                return run.target + offset - run.source
        following = place + 1
        return self._runs[following].target if following < len(self._runs) else end


def runs(offsets: Iterable[int], target: int) -> list[OffsetRun]:
    """Return the runs of records with these source offsets, the first of which goes to `target`."""
    found: list[OffsetRun] = []
    for place, offset in enumerate(offsets):
        if found and offset == found[-1].source + found[-1].length:
            found[-1] = found[-1]._replace(length=found[-1].length + 1)
        else:
            found.append(OffsetRun(offset, target + place, 1))
    return found
