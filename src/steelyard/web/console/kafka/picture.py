"""From the facts about a Kafka group to what the console shows of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.groups.kafka.report import KafkaAwaited, KafkaGroupReport
from steelyard.types import TopicPartition
from steelyard.web.console.answers import (
    GroupLine,
    GroupPicture,
    GroupQueue,
    MemberView,
    RebalanceNow,
)
from steelyard.web.console.kafka.facts import EMPTY, KafkaGroupFacts, MemberFacts
from steelyard.web.console.words import UNKNOWN, in_seconds, named

Offsets = Mapping[TopicPartition, int]
"""An offset of each partition: as `ends` after its last message, as `begins` its first."""

Waits = Mapping[TopicPartition, int]
"""How long the first message that a group has not committed has waited in each partition, in ms."""

DOING = {"JoinGroup": "joining", "SyncGroup": "syncing", "Heartbeat": "waiting"}
"""States of members that are waited for, by the request that they should send."""


def key_of(place: TopicPartition) -> str:
    """Return the key of a partition."""
    return f"{place.topic}/{place.partition}"


def lag_of(place: TopicPartition, reached: Offsets, ends: Offsets) -> int | None:
    """Return the messages of a partition that a group has not consumed; None if unknown.

    `reached`: `KafkaGroupFacts.reached`.
    """
    if place not in reached or place not in ends:
        return None
    return max(0, ends[place] - reached[place])


def line(facts: KafkaGroupFacts, begins: Offsets, ends: Offsets, waits: Waits | None) -> GroupLine:
    """Return a group's line in the list. `begins`: of its unread. `waits`: None if unknown."""
    reached = facts.reached(begins)
    lags = [lag_of(place, reached, ends) for place in reached]
    known = [lag for lag in lags if lag is not None]
    return GroupLine(
        dialect="kafka",
        name=facts.name,
        state=facts.state or EMPTY,
        protocol=facts.protocol,
        members=len(facts.members),
        topics=list(facts.topics),
        lag=sum(known) if known or not reached else None,
        oldest_wait_ms=None if waits is None else max(waits.values(), default=0),
        rebalancing=facts.is_rebalancing,
        last_rebalance_at=None,
    )


def picture(
    facts: KafkaGroupFacts,
    places: Sequence[TopicPartition],
    begins: Offsets,
    ends: Offsets,
    waits: Waits | None,
    now: int,
) -> GroupPicture:
    """Return the picture of a group. `places`: all partitions of its topics.

    `begins`: of those that are unread.
    """
    reached = facts.reached(begins)
    owners = {place: one.member_id for one in facts.members for place in one.assigned}
    targets = {place: one.member_id for one in facts.members for place in one.target or ()}
    rows = sorted({*places, *facts.committed, *owners})
    return GroupPicture(
        dialect="kafka",
        name=facts.name,
        state=facts.state or EMPTY,
        protocol=facts.protocol,
        generation=facts.generation,
        members=[_member(one, facts) for one in facts.members],
        queues=[
            GroupQueue(
                key=key_of(place),
                topic=place.topic,
                broker=None,
                queue=place.partition,
                owner=owners.get(place),
                next_owner=_other(targets.get(place), owners.get(place)),
                committed=facts.committed.get(place),
                end=ends.get(place),
                lag=lag_of(place, reached, ends),
                wait_ms=None if waits is None else waits.get(place, 0),
            )
            for place in rows
        ],
        rebalance=_rebalance(facts, now),
        warning=None,
    )


def _other(target: str | None, owner: str | None) -> str | None:
    return None if target == owner else target


def _member(one: MemberFacts, facts: KafkaGroupFacts) -> MemberView:
    awaited = _awaited(facts).get(one.member_id)
    revokes = one.target is not None and bool({*one.assigned} - {*one.target})
    if awaited is not None:
        state = DOING.get(awaited.what, "revoking")
    elif not facts.is_rebalancing:
        state = "stable"
    else:
        state = "revoking" if revokes else "waiting"
    return MemberView(
        id=one.member_id,
        client_id=one.client_id,
        host=one.host.removeprefix("/"),
        version=None,
        state=state,
        waited_for=awaited is not None,
        since=None if awaited is None else awaited.since,
        assigned=len(one.assigned),
    )


def _awaited(facts: KafkaGroupFacts) -> dict[str, KafkaAwaited]:
    return {} if facts.report is None else {one.member_id: one for one in facts.report.awaited}


def _rebalance(facts: KafkaGroupFacts, now: int) -> RebalanceNow | None:
    report = facts.report
    if report is None:
        return _untold(facts, now) if facts.is_rebalancing else None
    if report.began_at is None and not facts.is_rebalancing:
        return None
    last = report.rebalances[-1] if report.rebalances else None
    since = report.began_at if report.began_at is not None else (last.at if last else now)
    reason = last.cause if last is not None else "unknown"
    return RebalanceNow(
        since=since,
        trigger=last.trigger if last is not None else UNKNOWN,
        reason=reason,
        waits_for=[one.member_id for one in report.awaited],
        text=_told(report, since, reason, now),
    )


def _told(report: KafkaGroupReport, since: int, reason: str, now: int) -> str:
    text = f"The group has been rebalancing for {in_seconds(now - since)}: {reason}."
    if not report.awaited:
        return text + " It waits for no member."
    first = report.awaited[0]
    others = len(report.awaited) - 1
    text += f" It waits for {named(first.client_id or first.member_id, first.host)}: {first.what}"
    return text + (f", and for {others} more." if others else ".")


def _untold(facts: KafkaGroupFacts, now: int) -> RebalanceNow:
    """Return what is known of a rebalance of Apache's coordinators, which tell no reason."""
    waits = [
        one.member_id
        for one in facts.members
        if one.target is not None and {*one.assigned} - {*one.target}
    ]
    text = f"The group is in state {facts.state}."
    if waits:
        text += f" {len(waits)} of {len(facts.members)} members have to give up partitions."
    else:
        text += " Apache Kafka's coordinators do not tell for which members it waits."
    return RebalanceNow(since=now, trigger=UNKNOWN, reason="unknown", waits_for=waits, text=text)
