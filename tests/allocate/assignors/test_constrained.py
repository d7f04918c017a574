"""The plan where all subscribe alike, by example; its laws are in `test_sticky`."""

from __future__ import annotations

from steelyard.allocate.assignors import constrained
from steelyard.allocate.assignors.holdings import claim_of_cooperative, settle
from steelyard.allocate.assignors.plan import Subscriber
from steelyard.types import TopicPartition


def shares(held: dict[str, str], partitions: dict[str, int]) -> dict[str, str]:
    """Topics have names of one letter: `t0 u3`."""
    subscribers = [
        Subscriber(
            member,
            list(partitions),
            [TopicPartition(one[0], int(one[1:])) for one in text.split()],
            1,
        )
        for member, text in held.items()
    ]
    plan = constrained.assign(settle(subscribers, partitions, claim_of_cooperative))
    return {
        member: " ".join(f"{topic}{number}" for topic, number in share)
        for member, share in plan.items()
    }


def test_a_new_group_is_dealt_to_one_by_one() -> None:
    assert shares({"b": "", "a": "", "c": ""}, {"u": 3, "t": 4}) == {
        "a": "t0 t3 u2",
        "b": "t1 u0",
        "c": "t2 u1",
    }


def test_fewer_partitions_than_members() -> None:
    assert shares({"a": "", "b": "", "c": "t0"}, {"t": 2}) == {"a": "t1", "b": "", "c": "t0"}


def test_who_has_more_already_keeps_the_longer_shares() -> None:
    assert shares({"a": "t0", "b": "t1 t2 t3", "c": "t4"}, {"t": 7}) == {
        "a": "t0 t5",
        "b": "t1 t2 t3",
        "c": "t4 t6",
    }


def test_the_highest_numbers_are_given_up() -> None:
    assert shares({"a": "t0 t1 t2 u0 u1 u2", "b": ""}, {"t": 3, "u": 3}) == {
        "a": "t0 u0 t1",
        "b": "t2 u1 u2",
    }


def test_no_members() -> None:
    assert shares({}, {"t": 3}) == {}
