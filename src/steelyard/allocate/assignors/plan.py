"""The input and output of assignors, and what a group member has to know about them.

An assignor is a pure function of the whole group, called by the member that the coordinator made
leader.
Source: clients/consumer/ConsumerPartitionAssignor.java, internals/AbstractPartitionAssignor.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

import msgspec

from steelyard.types import TopicPartition

DEFAULT_GENERATION = -1
"""Generation of a member that has not been in one, or does not report it."""


class RebalanceProtocol(IntEnum):
    """What a member does with its partitions during a rebalance.

    A group uses the highest protocol that all members support. Source:
    ConsumerPartitionAssignor.RebalanceProtocol.
    """

    EAGER = 0
    """The member gives up all partitions before it joins."""
    COOPERATIVE = 1
    """The member keeps its partitions, revokes what the next assignment takes away, and rejoins."""


class Subscriber(msgspec.Struct, frozen=True):
    """One member's part in an assignment, as reported to the coordinator.

    `member`: unique in the group. `topics`: in any order, possibly repeated. `owned`: what it still
    holds (empty before an eager rebalance), `generation`: in which it got that. `instance`:
    `group.instance.id` of a static member. `user_data`: the result of the assignor's `user_data` at
    the member; arbitrary bytes.
    """

    member: str
    topics: Sequence[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = DEFAULT_GENERATION
    instance: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by topic and partition; empty lists for members without any."""


class AssignFunction(Protocol):
    """`(subscribers, partitions) -> Assignment`.

    `partitions` has the number of each topic's partitions.

    `partitions` has the number of each topic's partitions.

    Topics without partitions, or not in `partitions`, are left out. The order of the subscribers
    does not matter. No partition is given to two members, nor to one that did not subscribe to its
    topic.
    """

    def __call__(
        self, subscribers: Sequence[Subscriber], partitions: Mapping[str, int], /
    ) -> Assignment: ...


class UserData(Protocol):
    """`(assigned, generation) -> bytes | None`: user data of a member with that assignment."""

    def __call__(self, assigned: Sequence[TopicPartition], generation: int, /) -> bytes | None: ...


def no_user_data(assigned: Sequence[TopicPartition], generation: int) -> None:
    """User data of a stateless assignor."""


class Assignor(msgspec.Struct, frozen=True):
    """An assignor with its name on the wire and the highest rebalance protocol that it supports."""

    name: str
    rebalance_protocol: RebalanceProtocol
    assign: AssignFunction
    user_data: UserData = no_user_data


def java_order(text: str) -> bytes:
    """Sort key that orders strings by UTF-16 units, as Java's `String.compareTo` does."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(subscriber: Subscriber) -> tuple[bool, bytes, bytes]:
    """Sort key that puts static members, by instance, before all others, by member id.

    A static member that returns under a new member id therefore keeps its place.
    Source: AbstractPartitionAssignor.MemberInfo.
    """
    instance = subscriber.instance
    return (instance is None, java_order(instance or ""), java_order(subscriber.member))


def topics_of(
    subscribers: Iterable[Subscriber], partitions: Mapping[str, int]
) -> dict[str, list[Subscriber]]:
    """Return the subscribers of each topic with partitions, topics in Java's order."""
    readers: dict[str, list[Subscriber]] = {}
    for subscriber in subscribers:
        for topic in dict.fromkeys(subscriber.topics):
            if partitions.get(topic, 0) > 0:
                readers.setdefault(topic, []).append(subscriber)
    return {topic: readers[topic] for topic in sorted(readers, key=java_order)}


def unclaimed(
    kept: Mapping[str, Sequence[TopicPartition]], partitions: Mapping[str, int]
) -> list[TopicPartition]:
    """Return the partitions of these topics that no member keeps, topics in the given order."""
    taken = {partition for share in kept.values() for partition in share}
    return [
        partition
        for topic, count in partitions.items()
        for number in range(count)
        if (partition := TopicPartition(topic, number)) not in taken
    ]
