"""roundrobin: partitions of all topics are assigned in turn, skipping members not subscribed.

Topics come by name, members by `member_order`. Laws: complete, disjoint; fair (sizes differ by at
most one) if all members subscribe to the same topics, but possibly unfair if not. Nearly everything
moves when a member joins or leaves. Takes O(subscriptions + partitions · log members). Source:
clients/consumer/RoundRobinAssignor.java.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from steelyard.allocate.assignors.plan import (
    Assignment,
    Assignor,
    RebalanceProtocol,
    Subscriber,
    member_order,
    topics_of,
)
from steelyard.types import TopicPartition


def assign(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    assignment: Assignment = {subscriber.member: [] for subscriber in subscribers}
    members = [subscriber.member for subscriber in sorted(subscribers, key=member_order)]
    seat_of = {member: seat for seat, member in enumerate(members)}
    following = 0  # the seat whose turn it is
    for topic, readers in topics_of(subscribers, partitions).items():
        seats = sorted(seat_of[reader.member] for reader in readers)
        turn = bisect_left(seats, following)
        for number in range(partitions[topic]):
            seat = seats[(turn + number) % len(seats)]
            assignment[members[seat]].append(TopicPartition(topic, number))
            following = seat + 1
    return assignment


ASSIGNOR = Assignor("roundrobin", RebalanceProtocol.EAGER, assign)
