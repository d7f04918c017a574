"""What the rebalances of a Kafka group cost, from its generations, commits and broker logs.

`spans` says which rebalances there were, `causes` why each began, `pauses` how long its partitions
stood still.

A classic group's generation is recorded when its rebalance ends; that of a KIP-848 group when it
begins, and then whenever a member gets its share. A rebalance of a member that died **began** with
the last commit of its partitions, give or take a commit interval. Otherwise it began when the
broker's log says so; without a log, at the earliest with the last commit before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steelyard.incident.kafka.broker_log import COORDINATOR, UNLOADED, Evidence
from steelyard.incident.kafka.causes import Causes
from steelyard.incident.kafka.commits import GroupCommits
from steelyard.incident.kafka.generations import GenerationMember, generations
from steelyard.incident.kafka.offsets_topic import GroupHistory
from steelyard.incident.kafka.pauses import Earlier, Standstills
from steelyard.incident.kafka.spans import Span, ends, holdings, name_of, owner_names, spans
from steelyard.incident.tables import (
    ASSIGNED,
    RELEASED,
    IncidentCosts,
    IncidentHandoff,
    IncidentRebalance,
)
from steelyard.ledger.tables import MOVED, STALLED
from steelyard.types import TopicPartition

LOG_SLACK_MS = 500
"""So far from its record a line in the broker's log may be."""


def costs(
    history: GroupHistory, topics: Mapping[bytes, str], evidence: Sequence[Evidence] = ()
) -> IncidentCosts:
    """Return the rows of one group.

    `topics`: names of topics by id; `evidence`: what brokers' logs say of the group, sorted by
    time.
    """
    known = generations(history, topics)
    made = IncidentCosts([], [], sorted(holdings(known, history)))
    found = spans(known, evidence)
    orphans: set[TopicPartition] = set()
    paused: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str] = {}
    for number, (span, ended) in enumerate(zip(found, ends(found), strict=True)):
        until = found[number + 1].first.at if number + 1 < len(found) else None
        owners |= owner_names(span.before)
        one = _Rebalance(history, span, evidence, owners)
        moved = one.handoffs(until, ended, Earlier(orphans, paused))
        made.handoffs.extend(moved)
        made.rebalances.append(one.row(moved))
        kept = span.after.owners.keys()
        orphans = (orphans | span.before.owners.keys()) - kept if span.after.members else set()
        for row in moved:
            if row.kind == MOVED and row.pause_ms is not None:
                paused[TopicPartition(row.topic, row.queue)] = row.moved_at
    return made


class _Rebalance:
    """One rebalance, with what is known of it. `owners`: who had each partition last."""

    def __init__(
        self,
        history: GroupHistory,
        span: Span,
        evidence: Sequence[Evidence],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self._group = history.group
        self._span = span
        self._owners = owners
        first = span.first
        last = first.at if first.began is None else first.at + LOG_SLACK_MS
        self._evidence = [
            one
            for one in evidence
            if span.before.ended < one.at <= last and one.trigger not in (COORDINATOR, UNLOADED)
        ]
        self._commits = GroupCommits(history.commits)
        self._interval = self._commits.usual_interval(first.at)
        causes = Causes(span, self._commits, self._interval, self._evidence)
        self._cause = causes.find()
        silent = self._cause.silent
        died_at = None if silent is None else causes.last_commit(silent)
        self._began, self._began_error = self._beginning(died_at)

    def _beginning(self, died_at: int | None) -> tuple[int, int]:
        """Return when it began, and how much earlier or later it may have been."""
        if died_at is not None:
            return died_at + self._interval // 2, -(-self._interval // 2)
        known = self._known
        if known is not None:
            return known, 0
        at = self._span.first.at
        newest = self._commits.newest(at)
        earliest = max(at if newest is None else newest, self._span.before.at)
        half = (at - earliest) // 2
        return earliest + half, half

    @property
    def _known(self) -> int | None:
        """Return when the coordinator knew, None if nothing says so."""
        if self._span.first.began is not None:
            return self._span.first.began
        return next((one.at for one in self._evidence), None)

    @property
    def _name(self) -> str:
        return f"{self._group}/{self._began}"

    def row(self, moved: Sequence[IncidentHandoff]) -> IncidentRebalance:
        """Return the row of the rebalance, with the worst pause of its partitions."""
        known, after = self._known, self._span.after
        worst = max(
            ((one.pause_ms, one.pause_error_ms) for one in moved if one.pause_ms is not None),
            default=(None, None),
        )
        return IncidentRebalance(
            group=self._group,
            rebalance=self._name,
            generation=after.number,
            started_at=self._began,
            started_error_ms=self._began_error,
            reason=self._cause.reason,
            trigger=self._cause.trigger,
            confidence=self._cause.confidence,
            members_before=_names(self._span.before.members.values()),
            members_after=_names(after.members.values()),
            detect_ms=None if known is None else max(0, known - self._began),
            rebalance_ms=None if known is None else max(0, after.ended - known),
            queues_moved=sum(one.kind == MOVED for one in moved),
            queues_stalled=sum(one.kind == STALLED for one in moved),
            pause_max_ms=worst[0],
            pause_error_ms=worst[1],
        )

    def handoffs(
        self,
        until: int | None,
        ended: Mapping[TopicPartition, int | None],
        earlier: Earlier,
    ) -> list[IncidentHandoff]:
        """Return a row for each partition that moved or stood still."""
        pauses = Standstills(
            self._span,
            self._commits,
            self._interval,
            since=self._began - self._began_error,
            until=until,
            ends=ended,
            earlier=earlier,
        )
        old, new = self._span.before.owners, self._span.after.owners
        places = sorted(old.keys() | new.keys())
        rows = (self._handoff(pauses, place, old.get(place), new.get(place)) for place in places)
        return [row for row in rows if row is not None]

    def _handoff(
        self, pauses: Standstills, place: TopicPartition, old: str | None, new: str | None
    ) -> IncidentHandoff | None:
        found = pauses.stalled(place) if old == new else pauses.moved(place, old, new)
        if found is None:
            return None
        owner = "" if new is None else name_of(self._span.after.members[new])
        last = self._owners.get(place, "")
        return IncidentHandoff(
            group=self._group,
            topic=place.topic,
            broker="",
            queue=place.partition,
            kind=_kind(last, owner),
            from_client=last,
            to_client=owner,
            moved_at=found.at,
            last_commit_ms=found.last,
            first_commit_ms=found.first,
            pause_ms=found.pause,
            pause_error_ms=found.error,
            rebalance=self._name,
        )


def _kind(old: str, new: str) -> str:
    """Return what became of a queue, whose last owner and whose new one are "" if there is none."""
    if not new:
        return RELEASED
    if not old:
        return ASSIGNED
    return STALLED if old == new else MOVED


def _names(members: Iterable[GenerationMember]) -> tuple[str, ...]:
    return tuple(sorted(map(name_of, members)))
