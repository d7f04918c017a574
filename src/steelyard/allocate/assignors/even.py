"""even: like cooperative-sticky, but each topic is also spread over the members where possible.

This assignor is Steelyard's own; a group can use it if all its members know it. It corresponds to
`allocate.even` for RocketMQ groups, but the leader knows what all members hold: the longer shares
go to members that have more already, and no even plan moves fewer partitions.

Choices that cooperative-sticky makes by the order of names are used to spread topics. A member that
has to give up partitions chooses the topics of which it has most, and among these the ones that
others have given up least; a free partition goes to the member with room that has fewest partitions
of its topic, and among these to the one that has fewest in all. This keeps a busy topic from
concentrating on a few members as others join and leave.

If members subscribe to different topics, the plan is that of `general`. Laws: those of
cooperative-sticky.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from steelyard.allocate.assignors import general
from steelyard.allocate.assignors.holdings import CurrentAssignment, claim_of_cooperative, settle
from steelyard.allocate.assignors.plan import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscriber,
    unclaimed,
)
from steelyard.allocate.assignors.user_data import write_generation
from steelyard.types import TopicPartition


def assign(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    group = settle(subscribers, partitions, claim_of_cooperative)
    plan = _spread(group) if group.all_read_the_same else general.assign(group)
    return group.without_moving({member: sorted(share) for member, share in plan.items()})


def _spread(group: CurrentAssignment) -> Assignment:
    size, longer = divmod(sum(group.partitions.values()), len(group.members) or 1)
    assignment: Assignment = {}
    given_up = dict.fromkeys(group.partitions, 0)
    counts: dict[str, dict[str, int]] = {topic: {} for topic in group.partitions}
    for member in group.members:
        held = group.held[member]
        may_have_more = longer > 0 and len(held) > size
        longer -= may_have_more
        kept = assignment[member] = _keep(held, size + may_have_more, given_up)
        for topic, _ in kept:
            counts[topic][member] = counts[topic].get(member, 0) + 1
    free: dict[str, list[TopicPartition]] = {topic: [] for topic in group.partitions}
    for partition in unclaimed(assignment, group.partitions):
        free[partition.topic].append(partition)
    # Once all have `size`, the remaining partitions go to as many others, one each.
    for size_max in (size, size + 1):
        for topic, rest in free.items():
            free[topic] = _fill(rest, counts[topic], assignment, size_max)
    return assignment


def _keep(
    held: Sequence[TopicPartition], size_max: int, given_up: dict[str, int]
) -> list[TopicPartition]:
    """Return what a member keeps.

    `given_up` counts by topic what members gave up; it is updated.
    """
    if len(held) <= size_max:
        return list(held)
    of_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(held):
        of_topic.setdefault(partition.topic, []).append(partition)
    most = [(-len(of_topic[topic]), given_up[topic], topic) for topic in of_topic]
    heapify(most)
    for _ in range(len(held) - size_max):
        count, times, topic = most[0]
        of_topic[topic].pop()
        given_up[topic] += 1
        heapreplace(most, (count + 1, times + 1, topic))
    return [partition for partitions in of_topic.values() for partition in partitions]


def _fill(
    free: list[TopicPartition], counts: dict[str, int], assignment: Assignment, size_max: int
) -> list[TopicPartition]:
    """Assign a topic's free partitions to members with these counts; return those left over."""
    if not free:
        return []
    room = [
        (counts.get(member, 0), len(share), position, member)
        for position, (member, share) in enumerate(assignment.items())
        if len(share) < size_max
    ]
    heapify(room)
    for done, partition in enumerate(free):
        if not room:
            return free[done:]
        count, size, position, member = room[0]
        assignment[member].append(partition)
        counts[member] = count + 1
        if size + 1 < size_max:
            heapreplace(room, (count + 1, size + 1, position, member))
        else:
            heappop(room)
    return []


ASSIGNOR = Assignor("even", RebalanceProtocol.COOPERATIVE, assign, write_generation)
