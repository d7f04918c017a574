"""The partitions held before a rebalance: the members' claims, with contradictions resolved.

- Claims to topics or partitions that do not exist are dropped.
- If several members claim a partition, the one of the highest generation holds it; if several claim
  it in that generation, none does. The result does not depend on the order of claims.
- A member does not keep a partition of a topic to which it no longer subscribes.

Source: AbstractStickyAssignor.allSubscriptionsEqual, KAFKA-12984, KIP-792.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from steelyard.allocate.assignors.plan import Assignment, Subscriber, java_order, topics_of
from steelyard.allocate.assignors.user_data import MemberData, read_generation, read_sticky
from steelyard.types import TopicPartition


class CurrentAssignment(msgspec.Struct, frozen=True):
    """A group before its rebalance.

    `members`: sorted. `partitions`: number per subscribed topic that has any, sorted by topic.
    `readers`: subscribers of each of these, sorted. `held`: what each member may keep. `holders`:
    the holder of each claimed partition; None if several hold it with equal right.
    """

    members: list[str]
    partitions: dict[str, int]
    readers: dict[str, list[str]]
    held: dict[str, list[TopicPartition]]
    holders: dict[TopicPartition, str | None]

    @property
    def all_read_the_same(self) -> bool:
        return all(len(readers) == len(self.members) for readers in self.readers.values())

    def without_moving(self, assignment: Assignment) -> Assignment:
        """Withhold partitions that others may hold: the first half of a cooperative rebalance.

        A member that has to give up a partition sees that it is missing, stops reading it and
        rejoins; then it is free. Source: CooperativeStickyAssignor.adjustAssignment.
        """
        holders = self.holders
        return {
            member: [one for one in share if holders.get(one, member) == member]
            for member, share in assignment.items()
        }


def claim_of_eager(subscriber: Subscriber) -> MemberData:
    """What sticky's user data says.

    A member without any may hold something yet: then that counts.
    """
    if subscriber.user_data:
        return read_sticky(subscriber.user_data)
    return MemberData(subscriber.owned, subscriber.generation)


def claim_of_cooperative(subscriber: Subscriber) -> MemberData:
    """What it holds.

    The generation stands in the user data where the subscription has no field for it.
    """
    if subscriber.generation >= 0:
        return MemberData(subscriber.owned, subscriber.generation)
    return MemberData(subscriber.owned, read_generation(subscriber.user_data))


def settle(
    subscribers: Sequence[Subscriber],
    partitions: Mapping[str, int],
    claim_of: Callable[[Subscriber], MemberData],
) -> CurrentAssignment:
    ordered = sorted(subscribers, key=lambda subscriber: java_order(subscriber.member))
    readers = topics_of(ordered, partitions)
    holders: dict[TopicPartition, str | None] = {}
    generations: dict[TopicPartition, int] = {}
    for subscriber in ordered:
        owned, generation = claim_of(subscriber)
        for partition in dict.fromkeys(owned):
            if partition.topic not in readers:
                continue
            if not 0 <= partition.partition < partitions[partition.topic]:
                continue
            known = generations.get(partition)
            if known is None or generation > known:
                holders[partition] = subscriber.member
                generations[partition] = generation
            elif generation == known:
                holders[partition] = None
    topics = {subscriber.member: frozenset(subscriber.topics) for subscriber in ordered}
    held: dict[str, list[TopicPartition]] = {subscriber.member: [] for subscriber in ordered}
    for partition, holder in holders.items():
        if holder is not None and partition.topic in topics[holder]:
            held[holder].append(partition)
    return CurrentAssignment(
        [subscriber.member for subscriber in ordered],
        {topic: partitions[topic] for topic in readers},
        {topic: [reader.member for reader in who] for topic, who in readers.items()},
        held,
        holders,
    )
