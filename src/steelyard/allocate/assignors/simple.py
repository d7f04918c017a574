"""simple: the coordinator's assignor for share groups, in which members may share partitions.

Members sort by `member_order`, topics and partitions by name and number. `owned` is the member's
target assignment. If all members subscribe to the same topics, all their partitions are assigned
together, otherwise those of each topic among its subscribers.

With p partitions and m members, each partition is to have ceil(m / p) members, and each member its
part of these p * ceil(m / p) places. Members keep what they have up to that; what a partition has
too many of is taken from the first ones, and the free places are filled in turns.

Laws: every partition has a member; none has more than ceil(m / p); the numbers of partitions of two
members differ by at most one, where all subscribe to the same topics.
Source: group-coordinator/assignor/SimpleAssignor.java, SimpleHomogeneousAssignmentBuilder.java,
SimpleHeterogeneousAssignmentBuilder.java, KIP-932. Kafka processes members and topics in the order
of its hash tables, so other members may have a partition more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate.assignors.plan import Assignment, Subscriber, member_order, topics_of
from steelyard.types import TopicPartition


def assign(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Assign partitions; unlike other assignors, one may be given to several members."""
    members = sorted(subscribers, key=member_order)
    readers = topics_of(members, partitions)
    assignment: Assignment = {member.member: [] for member in members}
    every = {
        topic: [TopicPartition(topic, number) for number in range(partitions[topic])]
        for topic in readers
    }
    if all(len(subscribed) == len(members) for subscribed in readers.values()):
        _share(members, [one for some in every.values() for one in some], assignment)
    else:
        for topic, subscribed in readers.items():
            _share(subscribed, every[topic], assignment)
    return {member: sorted(share) for member, share in assignment.items()}


def _share(
    members: Sequence[Subscriber], partitions: Sequence[TopicPartition], assignment: Assignment
) -> None:
    """Add each member's part of these partitions to its assignment."""
    if not partitions:
        return
    sharing = -(-len(members) // len(partitions))
    places = sharing * len(partitions)
    ends = [-(-places * (number + 1) // len(members)) for number in range(len(members))]
    quotas = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    known = set(partitions)
    held = [
        set(sorted(known.intersection(member.owned))[:quota])
        for member, quota in zip(members, quotas, strict=True)
    ]
    having = dict.fromkeys(partitions, 0)
    for share in held:
        for partition in share:
            having[partition] += 1
    for share in held:
        for partition in [one for one in share if having[one] > sharing]:
            share.remove(partition)
            having[partition] -= 1
    _fill(partitions, sharing, quotas, held, having)
    for member, share in zip(members, held, strict=True):
        assignment[member.member] += share


def _fill(
    partitions: Sequence[TopicPartition],
    sharing: int,
    quotas: Sequence[int],
    held: Sequence[set[TopicPartition]],
    having: dict[TopicPartition, int],
) -> None:
    """Give partitions with free places to members below their quotas, in turns."""
    unfilled = [number for number, share in enumerate(held) if len(share) < quotas[number]]
    for partition in partitions:
        passed: list[int] = []
        while having[partition] < sharing and unfilled:
            number = unfilled.pop(0)
            if partition in held[number]:
                passed.append(number)
                continue
            held[number].add(partition)
            having[partition] += 1
            if len(held[number]) < quotas[number]:
                unfilled.append(number)
        unfilled = passed + unfilled
