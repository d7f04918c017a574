"""The doctor for all kinds of Kafka groups: `groups.kafka.doctor`, and what members run or share.

Reports of groups, which that one reads, have neither the tasks of a streams group (KIP-1071), some
of which only keep copies of state, nor anything of a share group (KIP-932), in which several
members read a partition. Descriptions by Kafka's own requests have them. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from steelyard.groups.doctor import Ailment, Diagnosis, some
from steelyard.groups.kafka import doctor
from steelyard.types import TopicPartition
from steelyard.web.console.kafka.facts import (
    NOT_READY,
    SHARE,
    STREAMS,
    KafkaGroupFacts,
    MemberFacts,
    as_report,
)
from steelyard.web.console.kafka.picture import lags_of
from steelyard.wording import counted


def diagnose(
    facts: KafkaGroupFacts, topics: Collection[str], ends: Mapping[TopicPartition, int], now: int
) -> list[Diagnosis]:
    """Return all findings, as `groups.kafka.doctor.diagnose`.

    `topics`: those that exist. `ends`: the offsets after the last messages of `facts.places`.
    """
    report = as_report(facts, ends, now)
    if facts.kind not in (STREAMS, SHARE):
        return doctor.diagnose(report, now)
    found = doctor.diagnose(replace(report, assignor=""), now)  # which leaves who has what to us
    if not facts.members or facts.is_rebalancing:
        return found
    work = _tasks(facts, topics) if facts.kind == STREAMS else _readers(facts, topics)
    return [*found, *work, *_unread(facts, ends)]


def _tasks(facts: KafkaGroupFacts, topics: Collection[str]) -> Iterable[Diagnosis]:
    """Find an application without its topics, and members without tasks."""
    if facts.state == NOT_READY:
        yield _not_ready(facts, topics)
        return
    idle = [one for one in facts.members if not one.assigned and not _runs(one)]
    if idle:
        tasks = sum(len(one.tasks.active) for one in facts.members if one.tasks is not None)
        yield Diagnosis(
            Ailment.MEMBER_IDLE,
            f"{_names(idle)} run no task; the group has {counted(len(facts.members), 'member')} for"
            f" {counted(tasks, 'task')}",
            "a member is a thread, and those beyond the number of tasks have nothing to do: start"
            " fewer, or have them keep standbys (streams.num.standby.replicas)",
        )


def _runs(member: MemberFacts) -> bool:
    """Return whether a member runs a task, or keeps the state of one."""
    tasks = member.tasks
    return tasks is not None and bool(tasks.active or tasks.standby or tasks.warmup)


def _not_ready(facts: KafkaGroupFacts, topics: Collection[str]) -> Diagnosis:
    parts = () if facts.topology is None else facts.topology.subtopologies
    missing = sorted({topic for one in parts for topic in one.sources} - {*topics})
    if missing:
        return Diagnosis(
            Ailment.TOPIC_NOT_READ,
            f"no member has a task: the application reads {some(missing)}, which"
            f" {'does' if len(missing) == 1 else 'do'} not exist",
            "check the names, or create the topics",
        )
    return Diagnosis(
        Ailment.TOPIC_NOT_READ,
        "no member has a task: the topics of the application's topology do not fit together, or"
        " its internal topics do not exist",
        "give topics that are joined the same number of partitions, and let the application create"
        " its internal topics; the logs of its members say what is missing",
    )


def _readers(facts: KafkaGroupFacts, topics: Collection[str]) -> Iterable[Diagnosis]:
    """Find members of a share group that read nothing."""
    idle = [one for one in facts.members if not one.assigned]
    if not idle:
        return
    missing = sorted({topic for one in idle for topic in one.topics} - {*topics})
    if missing:
        yield Diagnosis(
            Ailment.MEMBER_IDLE,
            f"{_names(idle)} read no partition: topics to which they subscribe do not exist:"
            f" {some(missing)}",
            "check the names, or create the topics",
        )
    else:
        yield Diagnosis(
            Ailment.MEMBER_IDLE,
            f"{_names(idle)} read no partition, though the topics exist to which they subscribe",
            "members are given partitions with one of their next heartbeats: repeat the diagnosis"
            " after some seconds, then restart them",
        )


def _unread(facts: KafkaGroupFacts, ends: Mapping[TopicPartition, int]) -> Iterable[Diagnosis]:
    """Find messages that wait where no member reads."""
    held, subscribed = facts.held, facts.subscribed
    waiting = sorted(
        place for place, lag in lags_of(facts, {}, ends).items() if lag and place not in held
    )
    orphans = [place for place in waiting if place.topic in subscribed]
    if orphans:
        yield Diagnosis(
            Ailment.QUEUE_WITHOUT_MEMBER,
            f"{some([f'{topic}-{partition}' for topic, partition in orphans])} have messages, but"
            " no member reads them, though their topics are among those that members read",
            "restart a member to trigger a new assignment",
        )
    left = sorted({place.topic for place in waiting} - subscribed)
    if left:
        yield Diagnosis(
            Ailment.TOPIC_NOT_READ,
            f"the group has offsets of {some(left)}, where messages wait, and no member reads it",
            "start a member that reads it, or delete the group's offsets of it",
        )


def _names(members: Iterable[MemberFacts]) -> str:
    return some([one.client_id or one.member_id for one in members])
