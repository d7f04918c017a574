"""Who holds what: claims of several, of the past, and of what is not there."""

from __future__ import annotations

from hypothesis import given
from tests.allocate.assignors.groups import counts, groups

from steelyard.allocate.assignors.holdings import (
    claim_of_cooperative,
    claim_of_eager,
    settle,
)
from steelyard.allocate.assignors.plan import Subscriber
from steelyard.allocate.assignors.user_data import MemberData, write_sticky
from steelyard.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
U0 = TopicPartition("u", 0)


def held(*subscribers: Subscriber) -> dict[str, list[TopicPartition]]:
    return settle(subscribers, {"t": 3, "u": 1}, claim_of_cooperative).held


def test_the_highest_generation_holds_what_several_claim() -> None:
    assert held(
        Subscriber("a", ["t"], [T0, T1], 4),
        Subscriber("b", ["t"], [T1, T2], 5),
        Subscriber("c", ["t"], [T1], -1),
    ) == {"a": [T0], "b": [T1, T2], "c": []}


def test_nobody_holds_what_several_claim_in_the_highest_generation() -> None:
    group = settle(
        [
            Subscriber("a", ["t"], [T0, T1], 5),
            Subscriber("b", ["t"], [T1], 5),
            Subscriber("c", ["t"], [T1], 4),
        ],
        {"t": 3},
        claim_of_cooperative,
    )
    assert group.held == {"a": [T0], "b": [], "c": []}
    assert group.holders == {T0: "a", T1: None}


def test_what_is_not_there_or_not_subscribed_to_is_not_held() -> None:
    gone = [TopicPartition("gone", 0), TopicPartition("t", 3), TopicPartition("t", -1)]
    assert held(Subscriber("a", ["t"], [T0, T0, U0, *gone], 1), Subscriber("b", ["u"])) == {
        "a": [T0],
        "b": [],
    }


def test_a_holder_that_no_longer_subscribes_must_let_go_first() -> None:
    group = settle(
        [Subscriber("a", ["t"], [U0], 1), Subscriber("b", ["u"])],
        {"t": 3, "u": 1},
        claim_of_cooperative,
    )
    assert group.without_moving({"a": [T0], "b": [U0]}) == {"a": [T0], "b": []}


def test_nobody_is_given_what_several_may_hold() -> None:
    group = settle(
        [Subscriber("a", ["t"], [T0, T1], 1), Subscriber("b", ["t"], [T0], 1)],
        {"t": 3},
        claim_of_cooperative,
    )
    assert group.without_moving({"a": [T0, T1], "b": [T2]}) == {"a": [T1], "b": [T2]}


def test_eager_members_tell_in_their_user_data_what_they_held() -> None:
    data = write_sticky([T0], 3)
    assert claim_of_eager(Subscriber("a", ["t"], [T1], 9, user_data=data)) == MemberData([T0], 3)
    assert claim_of_eager(Subscriber("a", ["t"], [T1], 9)) == MemberData([T1], 9)
    assert claim_of_eager(Subscriber("a", ["t"], user_data=b"\1")) == MemberData()


def test_cooperative_members_tell_their_generation_in_either_place() -> None:
    data = b"\0\0\0\3"
    assert claim_of_cooperative(Subscriber("a", ["t"], [T1], 9, user_data=data)) == MemberData(
        [T1], 9
    )
    assert claim_of_cooperative(Subscriber("a", ["t"], [T1], -1, user_data=data)) == MemberData(
        [T1], 3
    )
    assert claim_of_cooperative(Subscriber("a", ["t"], [T1])) == MemberData([T1], -1)


@given(subscribers=groups, partitions=counts)
def test_the_order_in_which_claims_are_heard_does_not_matter(
    subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    shuffled = sorted(subscribers, key=lambda one: one.member[::-1])
    group, other = (
        settle(who, partitions, claim_of_cooperative) for who in (subscribers, shuffled)
    )
    assert group == other
    every = [partition for share in group.held.values() for partition in share]
    assert len(every) == len(set(every))
