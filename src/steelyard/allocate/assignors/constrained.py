"""The sticky plan for equal subscriptions: fair over all topics, with as few moves as possible.

With n partitions and m members, each member gets `n div m`, and `n mod m` of them one more: first
those that hold more already. Members keep that many of the partitions they hold (the lowest numbers
first); the others are assigned in the order of topics and partitions, one by one, to members below
`n div m`, then one each to the others.

Laws: complete, disjoint, sizes differ by at most one, and no such plan moves fewer partitions.
Takes O(partitions · log partitions). Source: AbstractStickyAssignor.ConstrainedAssignmentBuilder
(KAFKA-9987).
"""

from __future__ import annotations

from collections import deque

from steelyard.allocate.assignors.holdings import CurrentAssignment
from steelyard.allocate.assignors.plan import Assignment, unclaimed


def assign(group: CurrentAssignment) -> Assignment:
    size, longer = divmod(sum(group.partitions.values()), len(group.members) or 1)
    topic_order = {topic: position for position, topic in enumerate(group.partitions)}
    assignment: Assignment = {}
    for member in group.members:
        held = sorted(group.held[member], key=lambda one: (one.partition, topic_order[one.topic]))
        may_have_more = longer > 0 and len(held) > size
        longer -= may_have_more
        assignment[member] = held[: size + may_have_more]
    below = deque(member for member in group.members if len(assignment[member]) < size)
    full = deque(member for member in group.members if len(assignment[member]) == size)
    for partition in unclaimed(assignment, group.partitions):
        member = (below or full).popleft()
        share = assignment[member]
        share.append(partition)
        if len(share) < size:
            below.append(member)
        elif len(share) == size:
            full.append(member)
    return assignment
