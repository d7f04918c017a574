"""From the facts about a Kafka group to what the console shows of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate.assignors.sticky_tasks import TaskId
from steelyard.groups.kafka.report import KafkaAwaited, KafkaGroupReport
from steelyard.types import TopicPartition
from steelyard.web.console.answers import (
    GroupLine,
    GroupPicture,
    GroupQueue,
    MemberView,
    RebalanceNow,
)
from steelyard.web.console.kafka.facts import (
    EMPTY,
    NOT_READY,
    SHARE,
    KafkaGroupFacts,
    MemberFacts,
)
from steelyard.web.console.kafka.streams import task_name, tasks_view, topology_view
from steelyard.web.console.words import UNKNOWN, in_seconds, named

Offsets = Mapping[TopicPartition, int]
"""An offset of each partition: as `ends` after its last message, as `begins` its first."""

Waits = Mapping[TopicPartition, int]
"""How long the first message that a group has not committed has waited in each partition, in ms."""

Lag = int | None
"""Messages that are not consumed; None if unknown."""

NOT_READY_WARNING = (
    "Topics of the application's topology are missing or do not fit together, so that no member has"
    " a task."
)

DOING = {"JoinGroup": "joining", "SyncGroup": "syncing", "Heartbeat": "waiting"}
"""States of members that are waited for, by the request that they should send."""


def key_of(place: TopicPartition) -> str:
    """Return the key of a partition."""
    return f"{place.topic}/{place.partition}"


def lags_of(facts: KafkaGroupFacts, begins: Offsets, ends: Offsets) -> dict[TopicPartition, Lag]:
    """Return the messages that a group has not consumed in each partition that it has begun.

    `begins`: of those that are unread.
    """
    if facts.kind == SHARE:
        return {place: progress.lag for place, progress in facts.shared.items()}
    return {
        place: max(0, ends[place] - offset) if place in ends else None
        for place, offset in facts.reached(begins).items()
    }


def line(facts: KafkaGroupFacts, begins: Offsets, ends: Offsets, waits: Waits | None) -> GroupLine:
    """Return a group's line in the list. `begins`: of its unread. `waits`: None if unknown."""
    lags = lags_of(facts, begins, ends)
    known = [lag for lag in lags.values() if lag is not None]
    return GroupLine(
        dialect="kafka",
        kind=facts.kind,
        name=facts.name,
        state=facts.state or EMPTY,
        protocol=facts.protocol,
        members=len(facts.members),
        topics=list(facts.topics),
        lag=sum(known) if known or not lags else None,
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
    lags = lags_of(facts, begins, ends)
    rows = sorted({*places, *facts.places})
    readers = _Readers(facts)
    return GroupPicture(
        dialect="kafka",
        kind=facts.kind,
        name=facts.name,
        state=facts.state or EMPTY,
        protocol=facts.protocol,
        generation=facts.generation,
        assignment_epoch=facts.assignment_epoch,
        topology=None if facts.topology is None else topology_view(facts.topology),
        members=[_member(one, facts) for one in facts.members],
        queues=[
            GroupQueue(
                key=key_of(place),
                topic=place.topic,
                broker=None,
                queue=place.partition,
                owner=readers.owner(place),
                next_owner=readers.next_owner(place),
                committed=facts.committed.get(place),
                end=ends.get(place),
                lag=lags.get(place),
                wait_ms=None if waits is None else waits.get(place, 0),
                readers=readers.together(place),
                share_start=facts.shared[place].start if place in facts.shared else None,
                task=readers.task(place),
                standbys=readers.standbys(place),
                warmups=readers.warmups(place),
            )
            for place in rows
        ],
        rebalance=_rebalance(facts, now),
        warning=NOT_READY_WARNING if facts.state == NOT_READY else None,
    )


class _Readers:
    """Which members of a group have to do with a partition."""

    def __init__(self, facts: KafkaGroupFacts) -> None:
        self._is_share = facts.kind == SHARE
        self._topology = facts.topology
        self._holders: dict[TopicPartition, list[str]] = {}
        self._targets: dict[TopicPartition, str] = {}
        self._standbys: dict[TaskId, list[str]] = {}
        self._warmups: dict[TaskId, list[str]] = {}
        for one in facts.members:
            for place in one.assigned:
                self._holders.setdefault(place, []).append(one.member_id)
            self._targets |= dict.fromkeys(one.target or (), one.member_id)
            if one.tasks is not None:
                for task in one.tasks.standby:
                    self._standbys.setdefault(task, []).append(one.member_id)
                for task in one.tasks.warmup:
                    self._warmups.setdefault(task, []).append(one.member_id)

    def owner(self, place: TopicPartition) -> str | None:
        """Return the member that reads a partition alone."""
        holders = self._holders.get(place)
        return None if self._is_share or not holders else holders[-1]

    def next_owner(self, place: TopicPartition) -> str | None:
        target = self._targets.get(place)
        return None if target == self.owner(place) else target

    def together(self, place: TopicPartition) -> list[str]:
        """Return the members of a share group that read a partition."""
        return self._holders.get(place, []) if self._is_share else []

    def task(self, place: TopicPartition) -> str | None:
        found = self._task(place)
        return None if found is None else task_name(found)

    def standbys(self, place: TopicPartition) -> list[str]:
        task = self._task(place)
        return [] if task is None else self._standbys.get(task, [])

    def warmups(self, place: TopicPartition) -> list[str]:
        task = self._task(place)
        return [] if task is None else self._warmups.get(task, [])

    def _task(self, place: TopicPartition) -> TaskId | None:
        return None if self._topology is None else self._topology.task_of(place)


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
        tasks=None if one.tasks is None else tasks_view(one.tasks),
    )


def _awaited(facts: KafkaGroupFacts) -> dict[str, KafkaAwaited]:
    return {} if facts.report is None else {one.member_id: one for one in facts.report.awaited}


def _rebalance(facts: KafkaGroupFacts, now: int) -> RebalanceNow | None:
    report = facts.report
    if facts.state == NOT_READY:
        return None  # it waits for topics, not for members
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
