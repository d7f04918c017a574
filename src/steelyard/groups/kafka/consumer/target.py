"""The target assignment of a group, which all members are to reach.

It is computed from the subscriptions and the previous target, not from what members have at
present, so that a second change in the middle of a rebalance moves no more than necessary.
Source: modern/TargetAssignmentBuilder.java.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from steelyard.allocate.assignors import ranges, uniform
from steelyard.allocate.assignors.plan import AssignFunction, Subscriber
from steelyard.groups.kafka.consumer.member import ConsumerGroupMember
from steelyard.groups.kafka.consumer.reconciliation import Partitions

DEFAULT_ASSIGNOR = "uniform"

ASSIGNORS: dict[str, AssignFunction] = {DEFAULT_ASSIGNOR: uniform.assign, "range": ranges.assign}
"""The assignors (group.consumer.assignors).

On the server, as on the client, Kafka's range assigns runs of consecutive partitions.
"""


def most_wanted(votes: Mapping[str, int]) -> str:
    """Return the assignor that most members prefer; in a tie, the default first."""
    wanted = {name: count for name, count in votes.items() if count > 0}
    order = list(ASSIGNORS)
    return min(
        wanted, key=lambda name: (-wanted[name], order.index(name)), default=DEFAULT_ASSIGNOR
    )


def target_assignment(
    members: Mapping[str, ConsumerGroupMember],
    before: Mapping[str, Partitions],
    partitions: Mapping[str, int],
    topics_of: Callable[[ConsumerGroupMember], Collection[str]],
    assignor: str,
) -> dict[str, Partitions]:
    """Compute the target. `partitions`: number per topic; `before`: the last target assignment."""
    subscribers = [
        Subscriber(
            member.member_id,
            sorted(topics_of(member)),
            tuple(before.get(member.member_id, ())),
            instance=member.instance_id,
            rack=member.rack_id,
        )
        for member in members.values()
    ]
    assignment = ASSIGNORS[assignor](subscribers, partitions)
    return {member_id: frozenset(assignment[member_id]) for member_id in members}
