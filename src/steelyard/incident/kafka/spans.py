"""The rebalances of a group: which of its generations belong together.

- A generation with the members of the one before, at most `ROUND_MS` after it, that only gives
  partitions to somebody which nobody had, is the second round of a cooperative rebalance, and
  belongs to it.
- A broker's log says when the group's coordinator was restarted or moved (`coordinator`). The group
  may go on without a rebalance; if not, one with the same members within `ROUND_MS` belongs to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from steelyard.incident.kafka.broker_log import COORDINATOR, UNLOADED, Evidence
from steelyard.incident.kafka.generations import Generation, GenerationMember
from steelyard.incident.kafka.offsets_topic import GroupHistory
from steelyard.incident.tables import QueueHolding
from steelyard.types import TopicPartition

ROUND_MS = 10_000


class Span(msgspec.Struct):
    """A rebalance: the generation before it, and those that it led to."""

    before: Generation
    rounds: list[Generation]

    @property
    def first(self) -> Generation:
        return self.rounds[0]

    @property
    def after(self) -> Generation:
        return self.rounds[-1]


def spans(known: Sequence[Generation], evidence: Sequence[Evidence]) -> list[Span]:
    """Return the rebalances that led to these generations, in order."""
    found: list[Span] = []
    steps = _with_coordinators(known, evidence)
    first = [Generation(0, None, 0, 0, {})] if steps and steps[0].is_first else []
    for before, after in pairwise([*first, *steps]):
        if found and found[-1].after is before and _continues(before, after):
            found[-1].rounds.append(after)
        elif before.members or after.members:
            found.append(Span(before, [after]))
    return found


def _with_coordinators(
    known: Sequence[Generation], evidence: Sequence[Evidence]
) -> list[Generation]:
    """Add a copy of the generation that was there whenever the group got a coordinator."""
    found = list(known)
    times = [one.at for one in known]
    unloaded: int | None = None
    for one in evidence:
        number = bisect_right(times, one.at) - 1
        if one.trigger == UNLOADED:
            unloaded = one.at
        elif one.trigger == COORDINATOR and number >= 0:
            then = known[number]
            began = None if unloaded is None else max(unloaded, then.at)
            found.append(
                msgspec.structs.replace(
                    then, began=began, at=one.at, ended=one.at, has_new_coordinator=True
                )
            )
            unloaded = None
    return sorted(found, key=lambda one: one.at)


def _continues(before: Generation, after: Generation) -> bool:
    """Return whether a generation is the next round of the rebalance that the one before is of."""
    is_near = after.at - before.at <= ROUND_MS and not after.has_new_coordinator
    if not is_near or before.members.keys() != after.members.keys():
        return False
    return before.has_new_coordinator or before.owners.items() < after.owners.items()


def ends(found: Sequence[Span]) -> list[dict[TopicPartition, int | None]]:
    """Return, for each rebalance, until when commits are those of the owners that it led to.

    By partition that it moved: until that moved again, or the group got a coordinator.
    """
    made: list[dict[TopicPartition, int | None]] = []
    next_moves: dict[TopicPartition, int] = {}
    next_coordinator: int | None = None
    for span in reversed(found):
        old, new = span.before.owners, span.after.owners
        moved = [place for place in old.keys() | new.keys() if old.get(place) != new.get(place)]
        made.append({place: next_moves.get(place, next_coordinator) for place in moved})
        if span.first.has_new_coordinator:
            next_moves, next_coordinator = {}, span.first.at
        next_moves.update(dict.fromkeys(moved, span.first.at))
    return made[::-1]


def holdings(known: Sequence[Generation], history: GroupHistory) -> Iterator[QueueHolding]:
    """Yield who had which partition when, up to the last record or commit."""
    commits = [series.at[-1] for series in history.commits.values() if series.at]
    last = max([*commits, *(one.ended for one in known)], default=0)
    open_: dict[TopicPartition, QueueHolding] = {}
    for one in known:
        owners = owner_names(one)
        for place, holding in list(open_.items()):
            client = owners.get(place, "")
            if client != holding.client:
                yield holding._replace(end=one.since(place) if client else one.at)
                del open_[place]
        for place, client in owners.items():
            if place not in open_:
                since = one.since(place)
                open_[place] = QueueHolding(place.topic, "", place.partition, client, since, last)
    yield from open_.values()


def owner_names(one: Generation) -> dict[TopicPartition, str]:
    """Return the name of each partition's owner."""
    return {place: name_of(one.members[key]) for place, key in one.owners.items()}


def name_of(member: GenerationMember) -> str:
    """Return a name that people recognise: the member id, with the client id if that lacks it."""
    if member.member_id.startswith(member.client_id):
        return member.member_id
    return f"{member.client_id}-{member.member_id}"
