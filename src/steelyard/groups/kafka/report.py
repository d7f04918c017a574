"""What an operator is told of Kafka groups, of either kind: why the last rebalances began, and whom they wait for.

Apache Kafka tells neither; confluentinc/kafka-rest#611 is one of many who looked for a member that never polls.
Brokers tell it as JSON (`nodes.broker.kafka.groups.reports`), `steelyard.Admin` gives it to people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.members import ClassicGroupMember
from steelyard.groups.kafka.classic.state import ClassicGroupState
from steelyard.groups.kafka.consumer.group import ConsumerGroup
from steelyard.groups.kafka.consumer.member import ConsumerGroupMember as ConsumerMember
from steelyard.groups.kafka.consumer.member import ConsumerGroupMemberState
from steelyard.groups.kafka.effects import Begun
from steelyard.groups.kafka.groups import Group
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE, read_assignment


class KafkaGroup(msgspec.Struct, frozen=True):
    """One line of a list. `kind`: classic or consumer; `coordinator`: the name of its broker."""

    group: str
    kind: str
    state: str
    members: int
    coordinator: str


class KafkaGroupMember(msgspec.Struct, frozen=True):
    """A member. `host`: its ip, as Kafka shows it; `instance_id`: of a static member."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


class KafkaRebalance(msgspec.Struct, frozen=True):
    """Why a rebalance began, and when (ms).

    `generation`: the one that ended; of a consumer group its new epoch. `trigger`: a word for programs.
    """

    at: int
    generation: int
    trigger: str
    cause: str


class KafkaAwaited(msgspec.Struct, frozen=True):
    """A member that a rebalance waits for. `what`: JoinGroup, SyncGroup, Heartbeat, or to give up partitions.

    `since`, `until`: ms; then it is taken out of the group. None where that is not known.
    """

    member_id: str
    client_id: str
    host: str
    what: str
    since: int | None
    until: int | None


class KafkaOffset(msgspec.Struct, frozen=True):
    """How far a group has come in a partition, which is the queue `queue_id` of a broker.

    `offset`: committed, None for none; `end_offset`: one past the last message, None where the broker did not say;
    `member_id`: who reads it, "" for nobody.
    """

    topic: str
    partition: int
    broker_name: str
    queue_id: int
    offset: int | None
    member_id: str = ""
    end_offset: int | None = None

    @property
    def lag(self) -> int | None:
        """Messages that are not consumed yet; None where the group has committed nothing, or the end is not known."""
        if self.offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.offset)


class KafkaGroupReport(msgspec.Struct, frozen=True):
    """One group.

    `assignor`: the protocol of the generation; `leader`: a member id; both may be "". `rebalances`: the latest, oldest
    first; `began_at`: of the one that goes on, ms, None while there is none. `offsets`: of the partitions that are
    committed or assigned, sorted.
    """

    group: str
    kind: str
    state: str
    coordinator: str
    generation: int
    assignor: str
    leader: str
    members: tuple[KafkaGroupMember, ...]
    rebalances: tuple[KafkaRebalance, ...]
    began_at: int | None
    awaited: tuple[KafkaAwaited, ...]
    offsets: tuple[KafkaOffset, ...] = ()

    @property
    def lag(self) -> int:
        """Messages of all partitions that are known not to be consumed yet."""
        return sum(row.lag or 0 for row in self.offsets)


def line(group: Group, coordinator: str) -> KafkaGroup:
    """A group in a list."""
    members = len(group.member_ids())
    return KafkaGroup(group.group_id, group.kind, group.state, members, coordinator)


def report_classic(group: ClassicGroup, coordinator: str) -> KafkaGroupReport:
    """A classic group, without offsets."""
    return KafkaGroupReport(
        group.group_id,
        group.kind,
        group.state,
        coordinator,
        group.generation,
        group.protocol or "",
        group.leader or "",
        tuple(
            _member(member, _assigned(member.assignment, group.protocol_type))
            for member_id, member in sorted(group.members.items())
        ),
        _rebalances(group.begun),
        group.began_at
        if group.state in (ClassicGroupState.PREPARING, ClassicGroupState.COMPLETING)
        else None,
        tuple(_awaited_classic(group)),
    )


def _member(
    member: ClassicGroupMember | ConsumerMember, partitions: Iterable[TopicPartition]
) -> KafkaGroupMember:
    identity = (member.member_id, member.client_id, member.host, member.instance_id)
    return KafkaGroupMember(*identity, tuple(partitions))


def _rebalances(begun: Iterable[Begun]) -> tuple[KafkaRebalance, ...]:
    return tuple(
        KafkaRebalance(one.at, one.generation, one.cause.trigger, one.cause.text) for one in begun
    )


def _assigned(assignment: bytes, protocol_type: str) -> list[TopicPartition]:
    """What a member was told to read; only of consumers it can be read."""
    if protocol_type != PROTOCOL_TYPE:
        return []
    try:
        told = read_assignment(assignment)
    except ProtocolError:
        return []
    return sorted(
        TopicPartition(topic.topic, partition)
        for topic in told.assigned_partitions
        for partition in topic.partitions
    )


def _awaited_classic(group: ClassicGroup) -> Iterator[KafkaAwaited]:
    since, until = group.awaited_since, group.awaited_until
    if group.state is ClassicGroupState.PREPARING:
        for member in group.members.values():
            if not member.is_joining:
                yield _awaited(member, "JoinGroup", since, until)
        for member_id, at in group.pending.items():
            yield KafkaAwaited(member_id, "", "", "JoinGroup", at, until)
    elif group.state is ClassicGroupState.COMPLETING:
        for member_id in sorted(group.unsynced):
            yield _awaited(group.members[member_id], "SyncGroup", since, until)


def _awaited(
    member: ClassicGroupMember | ConsumerMember, what: str, since: int | None, until: int | None
) -> KafkaAwaited:
    return KafkaAwaited(member.member_id, member.client_id, member.host, what, since, until)


def report_consumer(group: ConsumerGroup, coordinator: str) -> KafkaGroupReport:
    """A group of the new protocol, without offsets."""
    return KafkaGroupReport(
        group.group_id,
        group.kind,
        group.state,
        coordinator,
        group.epoch,
        group.assignor,
        "",
        tuple(_member(one, sorted((*one.assigned, *one.revoking))) for one in group.each()),
        _rebalances(group.bumps),
        group.began_at,
        tuple(_awaited_consumer(group)),
    )


def _awaited_consumer(group: ConsumerGroup) -> Iterator[KafkaAwaited]:
    """Members that have partitions to give up, then those that sent no heartbeat since the target last changed."""
    since = group.began_at
    for one in group.each():
        if one.revoking:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(one.revoking))
            yield _awaited(one, f"to give up {names}", since, group.revoke_deadline(one))
    for one in group.each():
        if one.state is ConsumerGroupMemberState.STABLE and one.epoch != group.assignment_epoch:
            yield _awaited(one, "Heartbeat", since, None)
