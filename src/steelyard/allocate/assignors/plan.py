"""What an assignor takes in and gives out, and what a group member has to know about one.

An assignor is a pure function of the whole group, called by the member that the coordinator made leader.
Source: clients/consumer/ConsumerPartitionAssignor.java, internals/AbstractPartitionAssignor.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from steelyard.types import TopicPartition

DEFAULT_GENERATION = -1
"""Of a member that was in no generation yet, or does not say in which."""


class RebalanceProtocol(IntEnum):
    """What a member does with its partitions while its group rebalances; a group uses the highest that all know.

    Source: ConsumerPartitionAssignor.RebalanceProtocol.
    """

    EAGER = 0
    """It gives up all of them before it joins."""
    COOPERATIVE = 1
    """It keeps them, gives up what the next assignment takes away, and joins again so that others get that."""


class Subscriber(msgspec.Struct, frozen=True):
    """One member's part in an assignment, as it told the coordinator.

    `member`: unique in the group. `topics`: in any order; one twice is one. `owned`: what it still holds (empty
    before an eager rebalance), `generation`: in which it got that. `instance`: `group.instance.id` of a static
    member. `user_data`: what the assignor's `user_data` made on the member's side; any bytes may come.
    """

    member: str
    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = DEFAULT_GENERATION
    instance: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


Assignment = dict[str, list[TopicPartition]]
"""What each member is to read, by topic and partition; a member that gets nothing has an empty list."""


class AssignFunction(Protocol):
    """`(subscribers, partitions) -> Assignment`; `partitions` has the number of each topic's partitions.

    Topics that `partitions` lacks, or that have none, are left out. The order of the subscribers does not
    matter. No partition is given to two members, nor to one that did not subscribe to its topic.
    """

    def __call__(
        self, subscribers: Sequence[Subscriber], partitions: Mapping[str, int], /
    ) -> Assignment: ...


class UserData(Protocol):
    """`(assigned, generation) -> bytes | None`: what a member sends that was assigned this in that generation."""

    def __call__(self, assigned: Sequence[TopicPartition], generation: int, /) -> bytes | None: ...


def no_user_data(assigned: Sequence[TopicPartition], generation: int) -> None:
    """Of an assignor that remembers nothing."""


class Assignor(msgspec.Struct, frozen=True):
    """An assignor under its name on the wire, and the highest rebalance protocol that it is made for."""

    name: str
    rebalance_protocol: RebalanceProtocol
    assign: AssignFunction
    user_data: UserData = no_user_data


def java_order(text: str) -> bytes:
    """Sorts as Java's `String.compareTo` does, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(subscriber: Subscriber) -> tuple[bool, bytes, bytes]:
    """Sorts static members by their instance before all others by their member id.

    So a static member that comes back under a new member id keeps its place.
    Source: AbstractPartitionAssignor.MemberInfo.
    """
    instance = subscriber.instance
    return (instance is None, java_order(instance or ""), java_order(subscriber.member))


def topics_of(
    subscribers: Iterable[Subscriber], partitions: Mapping[str, int]
) -> dict[str, list[Subscriber]]:
    """Who subscribed to each topic that has partitions. Topics sorted as Java does, subscribers as they come."""
    readers: dict[str, list[Subscriber]] = {}
    for subscriber in subscribers:
        for topic in dict.fromkeys(subscriber.topics):
            if partitions.get(topic, 0) > 0:
                readers.setdefault(topic, []).append(subscriber)
    return {topic: readers[topic] for topic in sorted(readers, key=java_order)}


def unclaimed(
    kept: Mapping[str, Sequence[TopicPartition]], partitions: Mapping[str, int]
) -> list[TopicPartition]:
    """The partitions of these topics that no member keeps, topics as they come."""
    taken = {partition for share in kept.values() for partition in share}
    return [
        partition
        for topic, count in partitions.items()
        for number in range(count)
        if (partition := TopicPartition(topic, number)) not in taken
    ]
