"""What the judge says of a Kafka group's members and shares."""

from __future__ import annotations

from steelyard.nodes.consumer.kafka.contract import MemberState
from steelyard.sim.kafka.judge import (
    not_as_assigned,
    not_caught_up,
    not_one_group,
    not_shared_out,
)
from steelyard.types import TopicPartition


def state(generation: int, name: str = "stable") -> MemberState:
    return MemberState(name, "m", generation, "range", False, "")


def parts(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


def test_one_group_is_stable_in_one_generation() -> None:
    assert not_one_group({"a": state(3), "b": state(3)}) is None
    assert not_one_group({"a": state(3), "b": state(4)}) == (
        "the Kafka group is in generations [3, 4]"
    )
    assert not_one_group({"a": state(3, "joining")}) == "a is joining in the Kafka group"
    assert not_one_group({"a": None}) == "a does not describe itself: None"


def test_every_partition_has_one_owner() -> None:
    assert not_shared_out({"t": 3}, {"a": parts(0, 2), "b": parts(1)}) is None
    assert not_shared_out({"t": 3}, {"a": parts(0, 2)}) == f"{parts(1)[0]} is held by nobody"
    assert not_shared_out({"t": 1}, {"a": parts(0), "b": parts(0)}) == (
        f"{parts(0)[0]} is held by ['a', 'b']"
    )
    assert not_shared_out({"t": 1}, {"a": parts(0, 1)}) == (
        f"a has {parts(1)[0]}, which does not exist"
    )


def test_shares_are_those_of_the_assignor() -> None:
    ranges = {"a": parts(0, 1), "b": parts(2)}
    others = {"a": parts(0, 2), "b": parts(1)}
    uneven = {"a": parts(0, 1, 2), "b": ()}
    assert not_as_assigned("range", {"t": 3}, ranges) is None
    assert "range gives it" in str(not_as_assigned("range", {"t": 3}, others))
    assert not_as_assigned("cooperative-sticky", {"t": 3}, others) is None
    assert not_as_assigned("sticky", {"t": 3}, uneven) == (
        "the shares of sticky are uneven: {'a': 3, 'b': 0}"
    )


def test_owners_have_read_what_their_group_has_finished() -> None:
    first, second = parts(0, 1)
    assert not_caught_up({first: 5, second: 0}, {first: 5, second: 0}) is None
    assert not_caught_up({first: 6, second: None}, {first: 5, second: 0}) is None
    assert not_caught_up({first: 5, second: 3}, {first: 5, second: 4}) == (
        f"the owner of {second} is at 3, its group was at 4"
    )
    assert not_caught_up({first: None}, {first: 5}) == (
        f"the owner of {first} is at None, its group was at 5"
    )
