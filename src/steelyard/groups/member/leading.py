"""What members tell each other through the coordinator, and what the leader makes of it.

Source: ConsumerCoordinator.java (metadata, onLeaderElected), ConsumerProtocol.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steelyard.allocate.assignors.plan import Assignor, RebalanceProtocol, Subscriber
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from steelyard.wire.kafka.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)
from steelyard.wire.kafka.messages.sync_group import SyncGroupRequestAssignment


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest that all assignors of a member know: one that is eager makes the member eager."""
    return min(assignor.rebalance_protocol for assignor in assignors)


def protocols(
    assignors: Sequence[Assignor],
    topics: Sequence[str],
    owned: Sequence[TopicPartition],
    assigned: Sequence[TopicPartition],
    generation: int,
    rack: str | None,
) -> tuple[JoinGroupRequestProtocol, ...]:
    """What a member says of itself, once for each assignor that it knows.

    `owned`: what it holds while it joins; `assigned`: what it was given last, in `generation`.
    """
    grouped = by_topic(owned)
    return tuple(
        JoinGroupRequestProtocol(
            assignor.name,
            write_subscription(
                Subscription(
                    tuple(topics),
                    assignor.user_data(assigned, generation),
                    grouped,
                    generation,
                    rack,
                )
            ),
        )
        for assignor in assignors
    )


def subscribers(members: Iterable[JoinGroupResponseMember]) -> list[Subscriber]:
    """The members as an assignor sees them. Raises ProtocolError."""
    found = []
    for member in members:
        said = read_subscription(member.metadata)
        found.append(
            Subscriber(
                member.member_id,
                said.topics,
                tuple(
                    TopicPartition(part.topic, number)
                    for part in said.owned_partitions
                    for number in part.partitions
                ),
                said.generation_id,
                member.group_instance_id,
                said.rack_id,
                said.user_data,
            )
        )
    return found


def topics_of(members: Iterable[Subscriber]) -> tuple[str, ...]:
    """All topics of the group, sorted."""
    return tuple(sorted({topic for member in members for topic in member.topics}))


def shares(
    assignor: Assignor, members: Sequence[Subscriber], partitions: Mapping[str, int]
) -> tuple[SyncGroupRequestAssignment, ...]:
    """What the leader sends: every member's share."""
    assignment = assignor.assign(members, partitions)
    return tuple(
        SyncGroupRequestAssignment(member, write_assignment(Assignment(by_topic(share))))
        for member, share in sorted(assignment.items())
    )


def share(data: bytes) -> tuple[TopicPartition, ...]:
    """What a member was given, sorted. Raises ProtocolError."""
    return tuple(
        sorted(
            {
                TopicPartition(part.topic, number)
                for part in read_assignment(data).assigned_partitions
                for number in part.partitions
            }
        )
    )


def by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Partitions as they go over the wire: sorted, and by topic."""
    grouped: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        grouped.setdefault(partition.topic, []).append(partition.partition)
    return tuple(TopicPartitions(topic, tuple(numbers)) for topic, numbers in grouped.items())
