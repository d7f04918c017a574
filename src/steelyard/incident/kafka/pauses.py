"""How long partitions stood still in a rebalance, from their commits.

- **Pause** of a partition that moved: the old owner processed its last message between its last
  commit and a commit interval later, the new one its first between an interval before its first
  commit and that commit; neither on the other side of the move. The pause is the time between the
  middles of the two spans, and its error half their lengths together: at most one commit interval.
  It is unknown if the new owner lost the partition, or the group its coordinator, before it
  committed; another rebalance that left the partition where it was does not matter.
- A partition that kept its owner **stood still** if the longest time between two of its commits
  during the rebalance is `STALLED_TIMES` as long as nine of ten before. Its pause is that between
  the middles of the interval after the earlier and that before the later commit. The pause of an
  earlier move that lasted into the rebalance is counted with that move only.
- While the group had no **coordinator** nothing could be committed, and what was processed is
  committed afterwards: at the end from an interval before it had one again, which may be well
  before the first commit. So pauses are known to some four commit intervals there, and less well if
  the first commit took long.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from steelyard.incident.kafka.commits import REGULAR, GroupCommits
from steelyard.incident.kafka.generations import Generation
from steelyard.incident.kafka.spans import Span
from steelyard.ledger.measures import percentile
from steelyard.types import TopicPartition

STALLED_TIMES = 3
"""More than two: one commit may be refused during a rebalance although its member works on."""


class Standstill(NamedTuple):
    """When a partition moved, or its rebalance ended, and how long it stood still, if known.

    `last`, `first`: when new offsets were committed last before, and first after.
    """

    at: int
    last: int | None
    first: int | None
    pause: int | None = None
    error: int | None = None


class Earlier(NamedTuple):
    """What the rebalances before left behind.

    `orphans`: partitions that lost their owner, since which the group has had members; `paused`:
    when partitions moved, if the pause of that is known.
    """

    orphans: Container[TopicPartition]
    paused: Mapping[TopicPartition, int]


class Standstills:
    """The pauses of one rebalance.

    `interval`: the group's commit interval; `since`: when the rebalance began, at the earliest;
    `until`: when the next one was recorded; `ends`: see `spans.ends`.
    """

    def __init__(
        self,
        span: Span,
        commits: GroupCommits,
        interval: int,
        *,
        since: int,
        until: int | None,
        ends: Mapping[TopicPartition, int | None],
        earlier: Earlier,
    ) -> None:
        self._span = span
        self._commits = commits
        self._interval = interval
        self._since = since
        self._until = until
        self._ends = ends
        self._earlier = earlier

    def moved(self, place: TopicPartition, old: str | None, new: str | None) -> Standstill:
        """Return when a partition moved from one member to another, and its pause."""
        at = next((one.since(place) for one in self._span.rounds if _has(one, place, new)), 0)
        at = at or self._span.after.at
        last, first = self._commits.around(place, at, self._ends[place])
        was_read = old is not None or place in self._earlier.orphans
        if not was_read or new is None or last is None or first is None:
            return Standstill(at, last, first)
        interval = self._commits.interval(place, last, self._interval)
        ended = (last, max(last, min(last + interval, at)))
        began = (min(first, max(first - interval, at)), first)
        return _standstill(at, last, first, ended, began)

    def stalled(self, place: TopicPartition) -> Standstill | None:
        """Return how long a partition stood still that did not move; None if it did not."""
        usual = self._commits.gaps(place, self._since)
        if len(usual) < REGULAR:
            return None
        at = self._span.after.ended
        times = self._commits.near(place, self._since, at)
        came = self._earlier.paused.get(place, -1)
        gap, number = max(
            (
                (times[number] - times[number - 1], number)
                for number in range(1, len(times))
                if times[number] > self._since and came < times[number - 1] < at
            ),
            default=(0, 0),
        )
        if gap < STALLED_TIMES * percentile(usual, 0.9):
            return None
        last, first = times[number - 1], times[number]
        if self._until is not None and first > self._until:
            return None  # it is the next one's
        before = after = self._commits.interval(place, last, self._interval)
        back = goes_on = first
        if self._span.first.has_new_coordinator:
            # Nothing could be committed: the first commit may be of what was processed before.
            if number + 1 == len(times):
                return Standstill(at, last, first)
            before, goes_on = 2 * before, times[number + 1]
            back = min(first, self._span.first.at)
        ended, began = (last, min(last + before, first)), (max(back - after, last), goes_on)
        return _standstill(at, last, first, ended, began)


def _standstill(
    at: int, last: int, first: int, ended: tuple[int, int], began: tuple[int, int]
) -> Standstill:
    """Return the pause between two commits.

    `ended`, `began`: from when to when its last message before and its first after were processed.
    """
    pause = (sum(began) - sum(ended)) // 2
    error = -(-(ended[1] - ended[0] + began[1] - began[0]) // 2)
    return Standstill(at, last, first, max(0, pause), error)


def _has(one: Generation, place: TopicPartition, member_id: str | None) -> bool:
    member = one.members.get(member_id or "")
    return member is not None and place in member.partitions
