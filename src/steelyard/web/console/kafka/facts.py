"""The facts about a Kafka group, from Kafka's own descriptions or a coordinator's report.

Apache's coordinators describe members and their partitions. Ours also report whom a rebalance waits
for and why it began (`groups.kafka.report`), which facts have as `report` then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.report import KafkaGroupMember, KafkaGroupReport, KafkaOffset
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages import consumer_groups, groups
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
)

CLASSIC, CONSUMER = "classic", "consumer"

STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
REBALANCING = frozenset(("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"))
"""States in which a group rebalances."""


class MemberFacts(msgspec.Struct, frozen=True):
    """A member. `topics`: it subscribes to. `target`: what it is to read, None if unknown."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None


class KafkaGroupFacts(msgspec.Struct, frozen=True):
    """A group. `kind`: classic or consumer. `generation`: None if nobody told it.

    `committed`: next offset to read. `report`: of a coordinator of ours.
    """

    name: str
    kind: str
    state: str
    assignor: str
    generation: int | None
    members: tuple[MemberFacts, ...]
    committed: Mapping[TopicPartition, int]
    report: KafkaGroupReport | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """Return what members subscribe to or read, and what offsets are committed of; sorted."""
        found = {topic for member in self.members for topic in member.topics}
        found |= {topic for member in self.members for topic, _ in member.assigned}
        return tuple(sorted(found | {topic for topic, _ in self.committed}))

    @property
    def unread(self) -> frozenset[TopicPartition]:
        """Return the partitions that members hold and of which no offset is committed."""
        held = frozenset(place for member in self.members for place in member.assigned)
        return held - self.committed.keys()

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
            _described(member.assignment),
            _described(member.target_assignment),
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
    )


def _described(
    assignment: consumer_groups.DescribedAssignment,
) -> tuple[TopicPartition, ...]:
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
        MemberFacts(
            member.member_id,
            member.client_id,
            member.host,
            member.instance_id,
            known[member.member_id].topics if member.member_id in known else (),
            member.partitions,
            known[member.member_id].target if member.member_id in known else None,
        )
        for member in sorted(report.members, key=lambda member: member.member_id)
    )
    committed = {
        TopicPartition(row.topic, row.partition): row.offset
        for row in report.offsets
        if row.offset is not None
    }
    return KafkaGroupFacts(
        report.group,
        report.kind,
        report.state,
        report.assignor,
        report.generation,
        members,
        committed,
        report,
    )


def as_report(facts: KafkaGroupFacts, ends: Mapping[TopicPartition, int]) -> KafkaGroupReport:
    """Return facts in the form that the doctor reads. `ends`: of the partitions."""
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
        None,
        (),
        offsets,
    )


def _member(member: MemberFacts) -> KafkaGroupMember:
    return KafkaGroupMember(
        member.member_id, member.client_id, member.host, member.instance_id, member.assigned
    )


def all_places(facts: Iterable[KafkaGroupFacts]) -> set[TopicPartition]:
    """Return the partitions that groups read or have committed offsets of."""
    return {
        place
        for one in facts
        for place in (*one.committed, *(p for member in one.members for p in member.assigned))
    }
