"""The doctor for Kafka groups: problems and remedies, from the coordinator's report.

A group in the middle of a rebalance seems faulty: repeat the diagnosis after some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.groups.doctor import Ailment, Diagnosis, some
from steelyard.groups.kafka.effects import EXPIRED
from steelyard.groups.kafka.report import KafkaGroupReport, KafkaOffset
from steelyard.wording import counted

AWAITED_MS = 10_000
"""Time waited for a member after which it is reported; others respond within 3 s or 5 s."""

EXPIRED_MS, EXPIRED_MIN = 600_000, 3
"""Period, and least number of expiries in it that a killed process does not explain."""

ASSIGNORS = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky", "uniform", "even"))
"""Assignors of partitions. Other groups, such as Kafka Connect's, assign something else."""


def diagnose(report: KafkaGroupReport, now: int) -> list[Diagnosis]:
    """Return all findings, those that explain others first; none for a group in good health."""
    if not report.members:
        nobody = Diagnosis(
            Ailment.NOBODY,
            f"no member of group {report.group} is online",
            "start a consumer, and check that it uses this group id and these brokers; consumers"
            " that assign partitions to"
            " themselves are not members",
        )
        return [nobody, *_offsets(report)]
    settled = report.began_at is None
    return [
        *_awaited(report, now),
        *_expired(report, now),
        *_flapping(report, now),
        *(_shares(report) if settled else ()),
        *_offsets(report),
    ]


def _awaited(report: KafkaGroupReport, now: int) -> Iterable[Diagnosis]:
    for one in report.awaited:
        since = one.since if one.since is not None else report.began_at
        if since is None or now - since <= AWAITED_MS:
            continue
        name = f"{one.client_id or one.member_id}{one.host}"
        out = (
            ""
            if one.until is None
            else f"; the group continues without it in {max(0, one.until - now) / 1000:.0f} s"
        )
        yield Diagnosis(
            Ailment.MEMBER_AWAITED,
            f"the group has been waiting for {name} for {(now - since) / 1000:.0f} s:"
            f" {one.what}{out}",
            "it does not poll: it takes too long for its last records, or hangs; give it fewer"
            " records at a time"
            " (max.poll.records), or restart it",
        )


def _expired(report: KafkaGroupReport, now: int) -> Iterable[Diagnosis]:
    lately = [
        each for each in report.rebalances if each.trigger == EXPIRED and now - each.at < EXPIRED_MS
    ]
    if len(lately) >= EXPIRED_MIN:
        yield Diagnosis(
            Ailment.MEMBERS_EXPIRE,
            f"members stopped sending heartbeats {len(lately)} times in the last ten minutes; most"
            f" recently: {lately[-1].cause}",
            "each time the group rebalances: see whether their processes are killed or paused, or"
            " cannot reach the broker;"
            " else raise session.timeout.ms, or max.poll.interval.ms where records take long",
        )


def _flapping(report: KafkaGroupReport, now: int) -> Iterable[Diagnosis]:
    for one in report.flapping:
        waits = (
            ""
            if one.until is None
            else f"; it is kept waiting for {max(0, one.until - now) / 1000:.0f} s"
        )
        yield Diagnosis(
            Ailment.MEMBER_FLAPS,
            f"{one.name} has joined and gone {one.flaps} times in the last half an hour, each time"
            f" within a minute{waits}",
            "each time the group rebalances: see in its own log why it ends; until it is repaired,"
            " stop it, or set group_flapping_delay_max_ms",
        )


def _shares(report: KafkaGroupReport) -> Iterable[Diagnosis]:
    """Find partitions and members without each other, in a group that does not rebalance."""
    if report.assignor not in ASSIGNORS:
        return
    read = {topic for member in report.members for topic, _ in member.partitions}
    idle = [member.client_id for member in report.members if not member.partitions]
    if not read:
        yield Diagnosis(
            Ailment.MEMBER_IDLE,
            f"no member of the group reads any partition; it has {counted(len(idle), 'member')}",
            "the topics that they subscribe to do not exist: check the names, or create the topics",
        )
        return
    if idle:
        count = sum(len(member.partitions) for member in report.members)
        yield Diagnosis(
            Ailment.MEMBER_IDLE,
            f"{some(idle)} read no partition; the group has"
            f" {counted(len(report.members), 'member')} for {counted(count, 'partition')}",
            "members beyond the number of partitions have nothing to do: stop them, or give the"
            " topic more partitions",
        )
    waiting = [row for row in report.offsets if not row.member_id and row.lag]
    orphans = [row for row in waiting if row.topic in read]
    if orphans:
        yield Diagnosis(
            Ailment.QUEUE_WITHOUT_MEMBER,
            f"{_partitions(orphans)} have messages, but no member reads them, though members read"
            " their topics",
            "restart a member to trigger a rebalance",
        )
    left = sorted({row.topic for row in waiting if row.topic not in read})
    if left:
        yield Diagnosis(
            Ailment.TOPIC_NOT_READ,
            f"the group has committed offsets of {some(left)}, where messages wait, and no member"
            " reads it",
            "start a member that subscribes to it, or delete the group's offsets of it",
        )


def _offsets(report: KafkaGroupReport) -> Iterable[Diagnosis]:
    beyond = [
        row
        for row in report.offsets
        if row.offset is not None and row.end_offset is not None and row.offset > row.end_offset
    ]
    if beyond:
        yield Diagnosis(
            Ailment.OFFSET_BEYOND_END,
            f"committed offsets of {_partitions(beyond)} are beyond their last message",
            "the topic was deleted and created again, or lost messages; members begin there as"
            " auto.offset.reset says: set"
            " the group's offsets to where it should begin",
        )


def _partitions(rows: Sequence[KafkaOffset]) -> str:
    return some([f"{row.topic}-{row.partition}" for row in rows])
