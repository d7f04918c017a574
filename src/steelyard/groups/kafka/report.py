"""Reports of Kafka groups for operators: why the last rebalances began, and whom they wait for.

Apache Kafka reports neither; confluentinc/kafka-rest#611 is one of many issues of users in search
of a member that never polls. Brokers send reports as JSON (`nodes.broker.kafka.groups.reports`),
which `steelyard.Admin` returns.
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
from steelyard.types import MessageQueue, TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE, read_assignment


class KafkaGroup(msgspec.Struct, frozen=True):
    """A group in a list.

    `kind`: classic, consumer or streams; `coordinator`: the name of its broker.
    """

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

    `generation`: the one that ended; of a consumer group its new epoch. `trigger`: a word for
    programs.
    """

    at: int
    generation: int
    trigger: str
    cause: str


class KafkaAwaited(msgspec.Struct, frozen=True):
    """A member for which a rebalance waits.

    `what`: JoinGroup, SyncGroup, Heartbeat, or to give up partitions. `since`: in ms. `until`: when
    it is removed from the group, in ms. Both are None if unknown.
    """

    member_id: str
    client_id: str
    host: str
    what: str
    since: int | None
    until: int | None


class KafkaOffset(msgspec.Struct, frozen=True):
    """The progress of a group in a partition, which is the queue `queue_id` of a broker.

    `offset`: committed, None for none; `member_id`: the owner, "" for none. `begin_offset`: of the
    first message that is left; `end_offset`: one past the last. Both are None if the broker did not
    say.
    """

    topic: str
    partition: int
    broker_name: str
    queue_id: int
    offset: int | None
    member_id: str = ""
    end_offset: int | None = None
    begin_offset: int | None = None

    @property
    def queue(self) -> MessageQueue:
        """Return the queue that the partition is."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def lag(self) -> int | None:
        """Return the number of messages not consumed yet; None if unknown.

        What a member holds without a committed offset counts from its first message.
        """
        if self.reached is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.reached)

    @property
    def reached(self) -> int | None:
        """Return the committed offset; without one, the first of a partition that is held."""
        if self.offset is None and self.member_id:
            return self.begin_offset
        return self.offset


class KafkaFlapping(msgspec.Struct, frozen=True):
    """A client that joins and goes again and again (`groups.flapping`).

    `name`: its instance id, or client id and host; `flaps`: how often it left within a minute of
    joining in the last half an hour; `last_at`: when it did so last, in ms; `until`: when it may
    return, in ms, None if it is not kept waiting now.
    """

    name: str
    flaps: int
    last_at: int
    until: int | None = None


class KafkaGroupReport(msgspec.Struct, frozen=True):
    """The report of one group.

    `assignor`: the protocol of the generation; `leader`: a member id; both may be "". `rebalances`:
    the latest, oldest first; `began_at`: start of the rebalance in progress, in ms, None if there
    is none. `offsets`: of the committed or assigned partitions, sorted. `flapping`: clients that
    join and go again and again.
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
    flapping: tuple[KafkaFlapping, ...] = ()

    @property
    def lag(self) -> int:
        """Return the known number of messages of all partitions not consumed yet."""
        return sum(row.lag or 0 for row in self.offsets)


def line(group: Group, coordinator: str) -> KafkaGroup:
    """Return a group's line in a list."""
    members = len(group.member_ids())
    return KafkaGroup(group.group_id, group.kind, group.state, members, coordinator)


def report_classic(group: ClassicGroup, coordinator: str) -> KafkaGroupReport:
    """Return the report of a classic group, without offsets."""
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
        rebalances_of(group.begun),
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


def rebalances_of(begun: Iterable[Begun]) -> tuple[KafkaRebalance, ...]:
    """Return rebalances with their causes, as they are reported."""
    return tuple(
        KafkaRebalance(one.at, one.generation, one.cause.trigger, one.cause.text) for one in begun
    )


def _assigned(assignment: bytes, protocol_type: str) -> list[TopicPartition]:
    """Return a consumer's assignment; other kinds of assignments cannot be read."""
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
    """Return the report of a group of the consumer protocol, without offsets."""
    return KafkaGroupReport(
        group.group_id,
        group.kind,
        group.state,
        coordinator,
        group.epoch,
        group.assignor,
        "",
        tuple(_member(one, sorted((*one.assigned, *one.revoking))) for one in group.each()),
        rebalances_of(group.bumps),
        group.began_at,
        tuple(_awaited_consumer(group)),
    )


def _awaited_consumer(group: ConsumerGroup) -> Iterator[KafkaAwaited]:
    """Yield members with partitions to release, then those that lag behind the target.

    The latter have not sent a heartbeat since the target last changed.
    """
    since = group.began_at
    for one in group.each():
        if one.revoking:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(one.revoking))
            yield _awaited(one, f"to give up {names}", since, group.revoke_deadline(one))
    for one in group.each():
        if one.state is ConsumerGroupMemberState.STABLE and one.epoch != group.assignment_epoch:
            yield _awaited(one, "Heartbeat", since, None)
