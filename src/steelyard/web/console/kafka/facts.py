"""The facts about a Kafka group, from Kafka's own descriptions or a coordinator's report.

Apache's coordinators describe members and their partitions. Ours also report whom a rebalance waits
for and why it began (`groups.kafka.report`), which facts have as `report` then. The descriptions of
streams groups and share groups are in `streams` and `shares`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskId
from steelyard.errors import ProtocolError
from steelyard.groups.kafka.report import KafkaGroupMember, KafkaGroupReport, KafkaOffset
from steelyard.types import TopicPartition
from steelyard.web.console.answers import GroupKind
from steelyard.wire.kafka.messages import consumer_groups, groups
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
)

CLASSIC: GroupKind = "classic"
CONSUMER: GroupKind = "consumer"
STREAMS: GroupKind = "streams"
SHARE: GroupKind = "share"

KINDS: Mapping[str, GroupKind] = {kind: kind for kind in (CLASSIC, CONSUMER, STREAMS, SHARE)}
"""The kinds of groups by the names that brokers give them, in lower case."""

STABLE, EMPTY, DEAD, NOT_READY = "Stable", "Empty", "Dead", "NotReady"
REBALANCING = frozenset(("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"))
"""States in which a group rebalances."""


class TasksFacts(msgspec.Struct, frozen=True):
    """What a member of a streams group runs, as `answers.StreamsTasks`; tasks are sorted."""

    process_id: str
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()


class SubtopologyFacts(msgspec.Struct, frozen=True):
    """A subtopology, with the names of its topics as in `answers.SubtopologyView`."""

    name: str
    sources: tuple[str, ...] = ()
    repartition_sources: tuple[str, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    changelogs: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the topics whose partitions its tasks read."""
        return (*self.sources, *self.repartition_sources)


class TopologyFacts(msgspec.Struct, frozen=True):
    """The topology of a streams group. No topic is the input of two subtopologies."""

    epoch: int
    subtopologies: tuple[SubtopologyFacts, ...]

    def task_of(self, place: TopicPartition) -> TaskId | None:
        """Return the task that reads a partition; None if none does."""
        for one in self.subtopologies:
            if place.topic in one.inputs:
                return TaskId(one.name, place.partition)
        return None


class ShareProgress(msgspec.Struct, frozen=True):
    """How far a share group is in a partition, as its coordinator tells.

    `start`: the share-partition start offset; `lag`: records yet to be delivered or acknowledged,
    None if the broker does not count them (DescribeShareGroupOffsets 0).
    """

    start: int
    lag: int | None


class MemberFacts(msgspec.Struct, frozen=True):
    """A member. `topics`: it subscribes to. `target`: what it is to read, None if unknown.

    `tasks`: of a member of a streams group; `assigned` and `target` are what they read.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    tasks: TasksFacts | None = None


class KafkaGroupFacts(msgspec.Struct, frozen=True):
    """A group. `generation`, `assignment_epoch`: None if nobody told it.

    `committed`: next offset to read. `report`: of a coordinator of ours. `topology`: of a streams
    group. `shared`: the progress of a share group, which commits nothing, in the partitions that it
    has begun.
    """

    name: str
    kind: GroupKind
    state: str
    assignor: str
    generation: int | None
    members: tuple[MemberFacts, ...]
    committed: Mapping[TopicPartition, int]
    report: KafkaGroupReport | None = None
    assignment_epoch: int | None = None
    topology: TopologyFacts | None = None
    shared: Mapping[TopicPartition, ShareProgress] = {}

    @property
    def subscribed(self) -> frozenset[str]:
        """Return the topics that members subscribe to or read."""
        found = {topic for member in self.members for topic in member.topics}
        found |= {topic for topic, _ in self.held}
        if self.topology is not None:
            found |= {topic for one in self.topology.subtopologies for topic in one.inputs}
        return frozenset(found)

    @property
    def topics(self) -> tuple[str, ...]:
        """Return what members subscribe to or read, and what offsets are known of; sorted."""
        return tuple(sorted(self.subscribed | {topic for topic, _ in self.places}))

    @property
    def places(self) -> frozenset[TopicPartition]:
        """Return the partitions that members read, and those of which offsets are known."""
        return self.held | self.committed.keys() | self.shared.keys()

    @property
    def held(self) -> frozenset[TopicPartition]:
        """Return the partitions that members read."""
        return frozenset(place for member in self.members for place in member.assigned)

    @property
    def unread(self) -> frozenset[TopicPartition]:
        """Return the partitions that members hold and of which no offset is committed.

        A share group has none: it commits nothing, and its coordinator counts its lag.
        """
        return frozenset() if self.kind == SHARE else self.held - self.committed.keys()

    def reached(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the group is: offsets committed, and the `begins` of what is unread."""
        found = {place: begins[place] for place in self.unread if place in begins}
        return {**found, **self.committed}

    @property
    def protocol(self) -> str:
        """Return how members share partitions, such as `classic: range`."""
        return f"{self.kind}: {self.assignor}" if self.assignor else self.kind

    @property
    def is_rebalancing(self) -> bool:
        """Return whether a rebalance is in progress."""
        return self.state in REBALANCING


def of_classic(
    group: groups.DescribedGroup, committed: Mapping[TopicPartition, int]
) -> KafkaGroupFacts:
    """Return the facts about a classic group (DescribeGroups)."""
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    members = tuple(
        MemberFacts(
            member.member_id,
            member.client_id,
            member.client_host,
            member.group_instance_id,
            _subscribed(member.member_metadata) if is_consumer else (),
            _assigned(member.member_assignment) if is_consumer else (),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return KafkaGroupFacts(
        group.group_id, CLASSIC, group.group_state, group.protocol_data, None, members, committed
    )


def _subscribed(metadata: bytes) -> tuple[str, ...]:
    try:
        return tuple(sorted(read_subscription(metadata).topics)) if metadata else ()
    except ProtocolError:
        return ()  # of another kind of group, such as Kafka Connect's


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        found = read_assignment(assignment).assigned_partitions
    except ProtocolError:
        return ()
    return tuple(sorted(TopicPartition(each.topic, n) for each in found for n in each.partitions))


def of_consumer(
    group: consumer_groups.DescribedGroup, committed: Mapping[TopicPartition, int]
) -> KafkaGroupFacts:
    """Return the facts about a group of KIP-848 (ConsumerGroupDescribe)."""
    members = tuple(
        MemberFacts(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            tuple(sorted(member.subscribed_topic_names)),
            partitions_of(member.assignment),
            partitions_of(member.target_assignment),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return KafkaGroupFacts(
        group.group_id,
        CONSUMER,
        group.group_state,
        group.assignor_name,
        group.group_epoch,
        members,
        committed,
        assignment_epoch=group.assignment_epoch,
    )


def partitions_of(
    assignment: consumer_groups.DescribedAssignment,
) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment, sorted."""
    return tuple(
        sorted(
            TopicPartition(each.topic_name, number)
            for each in assignment.topic_partitions
            for number in each.partitions
        )
    )


def of_report(report: KafkaGroupReport, described: KafkaGroupFacts | None) -> KafkaGroupFacts:
    """Return the facts that a coordinator of ours reports.

    `described`: what it answers to Kafka's request, which has subscriptions and targets.
    """
    known = {member.member_id: member for member in described.members} if described else {}
    members = tuple(
        _reported(member, known.get(member.member_id))
        for member in sorted(report.members, key=lambda member: member.member_id)
    )
    committed = {
        TopicPartition(row.topic, row.partition): row.offset
        for row in report.offsets
        if row.offset is not None
    }
    return KafkaGroupFacts(
        report.group,
        KINDS.get(report.kind, CLASSIC),
        report.state,
        report.assignor,
        report.generation,
        members,
        committed,
        report,
        described.assignment_epoch if described else None,
        described.topology if described else None,
    )


def _reported(member: KafkaGroupMember, described: MemberFacts | None) -> MemberFacts:
    return MemberFacts(
        member.member_id,
        member.client_id,
        member.host,
        member.instance_id,
        described.topics if described else (),
        member.partitions,
        described.target if described else None,
        described.tasks if described else None,
    )


def as_report(
    facts: KafkaGroupFacts, ends: Mapping[TopicPartition, int], now: int
) -> KafkaGroupReport:
    """Return facts in the form that the doctor reads. `ends`: of the partitions.

    Only coordinators of ours tell when a rebalance began; for others it is `now`.
    """
    if facts.report is not None:
        return facts.report
    owners = {place: one.member_id for one in facts.members for place in one.assigned}
    offsets = tuple(
        KafkaOffset(
            place.topic,
            place.partition,
            "",
            place.partition,
            facts.committed.get(place),
            owners.get(place, ""),
            ends.get(place),
        )
        for place in sorted({*facts.committed, *owners})
    )
    return KafkaGroupReport(
        facts.name,
        facts.kind,
        facts.state,
        "",
        facts.generation or 0,
        facts.assignor,
        "",
        tuple(_member(member) for member in facts.members),
        (),
        now if facts.is_rebalancing else None,
        (),
        offsets,
    )


def _member(member: MemberFacts) -> KafkaGroupMember:
    return KafkaGroupMember(
        member.member_id, member.client_id, member.host, member.instance_id, member.assigned
    )
