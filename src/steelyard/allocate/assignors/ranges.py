"""range: topic by topic, every subscriber gets a run of neighbouring partitions.

With n partitions and m subscribers of a topic, in the order of `member_order`, the first `n mod m`
get `n div m + 1`, the others `n div m`. Laws: complete, disjoint, fair within a topic but not over
all of them: the first members get the longer runs of every topic. Topics with equal numbers of
partitions and equal subscribers are divided equally (co-partitioned), so that one member reads
partition p of all of them. Takes O(subscriptions + partitions).

Unlike Kafka's, it ignores racks (KIP-881). Source: clients/consumer/RangeAssignor.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate import contiguous
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
    for topic, readers in topics_of(sorted(subscribers, key=member_order), partitions).items():
        runs = contiguous.runs(len(readers), partitions[topic])
        for reader, run in zip(readers, runs, strict=True):
            assignment[reader.member] += [TopicPartition(topic, number) for number in run]
    return assignment


ASSIGNOR = Assignor("range", RebalanceProtocol.EAGER, assign)
