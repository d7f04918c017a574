"""even: as cooperative-sticky, and each topic by itself is spread over the members as well as that allows.

This assignor is Steelyard's own; a group can use it if all its members know it. It is what `allocate.even` is to
RocketMQ's groups, but the leader sees what everybody holds: so the longer shares go to members that have more
already, and no even plan moves fewer partitions.

What cooperative-sticky leaves to the order of names is put to use. A member that has to give partitions up gives
those of the topics of which it has most, and of these such as others gave up least; and a partition that is free
goes, among the members with room, to the one that has fewest of its topic, and of these to the one that has fewest
at all. So a busy topic gathers less at few members as others come and go.

Where members subscribe to different topics the plan is that of `general`. Laws: those of cooperative-sticky.
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
    # What is left when everybody has `size` goes to as many others, one each.
    for size_max in (size, size + 1):
        for topic, rest in free.items():
            free[topic] = _fill(rest, counts[topic], assignment, size_max)
    return assignment


def _keep(
    held: Sequence[TopicPartition], size_max: int, given_up: dict[str, int]
) -> list[TopicPartition]:
    """What a member stays with. `given_up` counts by topic what members gave up so far, and is brought up to date."""
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
    """Deal out what is free of a topic, of which members have these counts; what there is no room for is returned."""
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
