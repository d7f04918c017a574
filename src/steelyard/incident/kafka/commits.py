"""What the commits of a group tell of the work of its members.

The **commit interval** of a partition is the median time between two commits with new offsets in
the `USUAL_MS` before, else that of its group.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise

from steelyard.incident.kafka.offsets_topic import CommitSeries
from steelyard.ledger.measures import percentile
from steelyard.types import TopicPartition

USUAL_MS = 120_000
"""How long before a rebalance commits show what is usual."""
USUAL_MAX = 60
"""Most commits of a partition that are looked at for that."""
REGULAR = 3
"""So many intervals between commits show what is usual for a partition."""
INTERVAL_MS = 5_000
"""The commit interval where there are too few commits: `auto.commit.interval.ms`."""
COMMITS_BACK = 1_000
"""So many commits before a rebalance are searched for the last one with a new offset."""


class GroupCommits:
    """The commits of a group. Times are in ms since the epoch."""

    def __init__(self, commits: Mapping[TopicPartition, CommitSeries]) -> None:
        self._commits = commits

    def usual_interval(self, until: int) -> int:
        """Return the group's commit interval before a time."""
        gaps = [gap for place in self._commits for gap in self.gaps(place, until)]
        return percentile(gaps, 0.5) if gaps else INTERVAL_MS

    def interval(self, place: TopicPartition, until: int, of_group: int) -> int:
        """Return a partition's commit interval before a time."""
        gaps = self.gaps(place, until)
        return percentile(gaps, 0.5) if len(gaps) >= REGULAR else of_group

    def gaps(self, place: TopicPartition, until: int) -> list[int]:
        """Return the times between a partition's commits with new offsets, the USUAL_MS before."""
        series = self._commits.get(place)
        if series is None:
            return []
        end = bisect_right(series.at, until)
        start = max(bisect_right(series.at, until - USUAL_MS), end - USUAL_MAX)
        times = _advances(series, start, end)
        return [later - earlier for earlier, later in pairwise(times) if later > earlier]

    def are_regular(self, places: Iterable[TopicPartition], until: int) -> bool:
        """Return whether any of these partitions was committed often enough before a time."""
        return any(len(self.gaps(place, until)) >= REGULAR for place in places)

    def newest(self, until: int) -> int | None:
        """Return when anything was committed last, at a time or before."""
        return self.last(self._commits, None, until)

    def last(self, places: Iterable[TopicPartition], since: int | None, until: int) -> int | None:
        """Return when any of these partitions was committed last, between two times."""
        found = []
        for place in places:
            series = self._commits.get(place)
            if series is None:
                continue
            count = bisect_right(series.at, until)
            if count and (since is None or series.at[count - 1] >= since):
                found.append(series.at[count - 1])
        return max(found, default=None)

    def around(
        self, place: TopicPartition, moved_at: int, until: int | None
    ) -> tuple[int | None, int | None]:
        """Return when new offsets were committed last before, and first after, it moved.

        `until`: later commits are not those of the new owner.
        """
        series = self._commits.get(place)
        if series is None:
            return None, None
        middle = bisect_right(series.at, moved_at)
        earlier = _advances(series, max(0, middle - COMMITS_BACK), middle)
        last = earlier[-1] if earlier else None
        offset = series.offsets[middle - 1] if middle else -1
        for number in range(middle, len(series.at)):
            if until is not None and series.at[number] > until:
                break
            if series.offsets[number] > offset:
                return last, series.at[number]
        return last, None

    def near(self, place: TopicPartition, since: int, ended: int) -> array[int]:
        """Return when new offsets were committed around a rebalance that ended at a time."""
        series = self._commits[place]
        start = max(0, bisect_right(series.at, since) - USUAL_MAX)
        end = min(len(series.at), bisect_right(series.at, ended) + USUAL_MAX)
        return _advances(series, start, end)


def _advances(series: CommitSeries, start: int, end: int) -> array[int]:
    """Return when new offsets were committed, among the commits from `start` to `end`."""
    times: array[int] = array("q")
    newest = series.offsets[start - 1] if start else -1
    for number in range(start, end):
        if series.offsets[number] > newest:
            times.append(series.at[number])
            newest = series.offsets[number]
    return times
