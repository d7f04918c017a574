"""The target assignment of a group: what each member is to read once all have come that far.

Computed from the subscriptions and the target before, not from what members have by now: so a second change in the
middle of a rebalance moves no more than it must. Source: modern/TargetAssignmentBuilder.java.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from steelyard.allocate.assignors import ranges, uniform
from steelyard.allocate.assignors.plan import AssignFunction, Subscriber
from steelyard.groups.kafka.consumer.member import ConsumerGroupMember
from steelyard.groups.kafka.consumer.reconciliation import Partitions

DEFAULT_ASSIGNOR = "uniform"

ASSIGNORS: dict[str, AssignFunction] = {DEFAULT_ASSIGNOR: uniform.assign, "range": ranges.assign}
"""group.consumer.assignors. Kafka's range on the server makes runs as the one on the client does."""


def most_wanted(votes: Mapping[str, int]) -> str:
    """What most members prefer, of those that prefer one; the default first where two are wanted alike."""
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
    """Who is to read what. `partitions`: how many each topic has; `before`: the last target assignment."""
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
