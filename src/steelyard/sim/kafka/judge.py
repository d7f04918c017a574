"""Checks that the members of the Kafka group agree, and have the assignor's assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.allocate.assignors.plan import Subscriber
from steelyard.allocate.assignors.registry import assignor
from steelyard.groups.kafka.member.classic.states import ClassicMemberState
from steelyard.groups.kafka.member.consumer.states import ConsumerMemberState
from steelyard.nodes.consumer.kafka.contract import MemberState
from steelyard.types import TopicPartition

Shares = Mapping[str, Sequence[TopicPartition]]


def not_one_group(states: Mapping[str, object]) -> str | None:
    """Return None if all members are stable in one generation or epoch; otherwise what is wrong.

    `states`: the members' own reports.
    """
    generations = set()
    for name, state in states.items():
        if not isinstance(state, MemberState):
            return f"{name} does not describe itself: {state!r}"
        if state.state not in (ClassicMemberState.STABLE, ConsumerMemberState.STABLE):
            return f"{name} is {state.state} in the Kafka group"
        generations.add(state.generation)
    return (
        f"the Kafka group is in generations {sorted(generations)}" if len(generations) > 1 else None
    )


def not_shared_out(partitions: Mapping[str, int], held: Shares) -> str | None:
    """Return None if every partition has one owner; otherwise what is wrong.

    `partitions`: number per topic.
    """
    owners: dict[TopicPartition, list[str]] = {
        TopicPartition(topic, number): []
        for topic in sorted(partitions)
        for number in range(partitions[topic])
    }
    for member in sorted(held):
        for partition in held[member]:
            if partition not in owners:
                return f"{member} has {partition}, which does not exist"
            owners[partition].append(member)
    for partition, members in owners.items():
        if len(members) != 1:
            return f"{partition} is held by {members or 'nobody'}"
    return None


def not_caught_up(
    positions: Mapping[TopicPartition, int | None], reached: Mapping[TopicPartition, int]
) -> str | None:
    """Return None if every owner has read what its group has finished; otherwise what is wrong.

    `positions`: of the owners, None if one does not know its own; `reached`: by the group, whoever
    read it. An owner that lost its partitions, and has them again, begins where it last committed.
    """
    for partition in sorted(positions):
        position, end = positions[partition], reached[partition]
        if end and (position is None or position < end):
            return f"the owner of {partition} is at {position}, its group was at {end}"
    return None


def not_as_assigned(name: str, partitions: Mapping[str, int], held: Shares) -> str | None:
    """Return None if the assignment is that of the assignor `name`; otherwise what is wrong.

    For sticky ones, which depend on the past, only the sizes are known. `held`: by member id, of
    members of all topics.
    """
    if name == "range":
        subscribers = [Subscriber(member, tuple(partitions)) for member in sorted(held)]
        right = assignor(name).assign(subscribers, dict(partitions))
        for member in sorted(held):
            if sorted(held[member]) != sorted(right[member]):
                return f"{member} has {held[member]}, range gives it {right[member]}"
        return None
    sizes = {member: len(held[member]) for member in sorted(held)}
    if max(sizes.values()) - min(sizes.values()) > 1:
        return f"the shares of {name} are uneven: {sizes}"
    return None
