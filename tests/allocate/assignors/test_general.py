"""The plan where subscriptions differ: nothing makes it more even, found in a bounded number of steps."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate.assignors.groups import (
    check_shares,
    counts,
    imbalance,
    moves,
    readable,
    some_subscribers,
    spread,
)
from tests.allocate.assignors.groups import given as given_by

from steelyard.allocate.assignors import general
from steelyard.allocate.assignors.holdings import claim_of_cooperative, settle
from steelyard.allocate.assignors.plan import Assignment, Subscriber
from steelyard.types import TopicPartition


def assign(subscribers: list[Subscriber], partitions: dict[str, int]) -> Assignment:
    return general.assign(settle(subscribers, partitions, claim_of_cooperative))


def some(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def reached_from(member: str, plan: Assignment, subscribers: list[Subscriber]) -> set[str]:
    """All members that a partition can come to, one handed on after the other, if `member` gives one away."""
    reached, front = {member}, [member]
    while front:
        topics = {topic for topic, _ in plan[front.pop()]}
        readers = {one.member for one in subscribers if not topics.isdisjoint(one.topics)}
        front += readers - reached
        reached |= readers
    return reached


@given(subscribers=some_subscribers(), partitions=counts)
def test_no_chain_of_hand_overs_makes_it_more_even(
    subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    plan = assign(subscribers, partitions)
    check_shares(plan, subscribers)
    assert given_by(plan) == readable(subscribers, partitions)
    for member, share in plan.items():
        for other in reached_from(member, plan, subscribers):
            assert len(share) <= len(plan[other]) + 1


subscriptions = st.lists(st.lists(st.sampled_from("ab"), unique=True), min_size=1, max_size=3)


@given(
    topics=subscriptions,
    a=st.integers(0, 3),
    b=st.integers(0, 3),
    owners=st.tuples(*[st.integers(0, 3)] * 6),
)
def test_as_even_as_the_best_of_all_plans(
    topics: list[list[str]], a: int, b: int, owners: tuple[int, ...]
) -> None:
    every = some("a", a) + some("b", b)
    owned: list[list[TopicPartition]] = [[] for _ in range(4)]
    for partition, owner in zip(every, owners, strict=False):
        owned[owner].append(partition)
    subscribers = [
        Subscriber(str(place), names, owned[place], 1) for place, names in enumerate(topics)
    ]
    there = sorted(readable(subscribers, {"a": a, "b": b}))
    ways = product(*[[one for one in subscribers if topic in one.topics] for topic, _ in there])
    best = min(
        sum(sum(one is reader for one in way) ** 2 for reader in subscribers) for way in ways
    )
    assert imbalance(assign(subscribers, {"a": a, "b": b})) == best


def test_what_is_new_goes_to_those_who_have_least() -> None:
    held = {"a": some("t", 3), "b": some("u", 1)}
    plan = assign(
        [Subscriber("a", ["t", "v"], held["a"]), Subscriber("b", ["u", "v"], held["b"])],
        {"t": 3, "u": 1, "v": 2},
    )
    assert plan == {"a": held["a"], "b": [*held["b"], *some("v", 2)]}


def test_a_chain_where_nobody_with_few_reads_what_the_one_with_many_has() -> None:
    """Kafka's assignor leaves a with three here: b has but one fewer, and c does not read t."""
    held = {"a": some("t", 3), "b": some("u", 2), "c": some("v", 1)}
    topics = {"a": ["t"], "b": ["t", "u"], "c": ["u", "v"]}
    plan = assign(
        [Subscriber(member, topics[member], held[member]) for member in "abc"],
        {"t": 3, "u": 2, "v": 1},
    )
    assert {member: len(share) for member, share in plan.items()} == {"a": 2, "b": 2, "c": 2}
    assert moves(held, plan) == 2


def test_the_one_with_a_direct_way_gives_before_others_need_a_chain() -> None:
    held = {"a": some("t", 2), "b": [*some("u", 1), TopicPartition("t", 2)], "c": []}
    topics = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}
    plan = assign(
        [Subscriber(member, topics[member], held[member]) for member in "abc"], {"t": 3, "u": 1}
    )
    assert plan == {"a": some("t", 2), "b": [TopicPartition("t", 2)], "c": some("u", 1)}


@pytest.mark.parametrize("readers_per_topic", [2, 3, 5])
def test_a_ring_of_topics_that_all_begin_at_one_reader(readers_per_topic: int) -> None:
    """Each topic overlaps with the next only: every partition that moves far takes a chain through many members."""
    size = 60
    names = [f"t{number:02}" for number in range(size)]
    partitions = dict.fromkeys(names, 1) | {names[0]: 10 * size}
    subscribers = [
        Subscriber(
            f"m{number:02}",
            [names[(number + step) % size] for step in range(readers_per_topic)],
            some(names[0], 10 * size) if number == 0 else [],
            1,
        )
        for number in range(size)
    ]
    plan = assign(subscribers, partitions)
    readers = [one.member for one in subscribers if names[0] in one.topics]
    check_shares(plan, subscribers)
    assert given_by(plan) == readable(subscribers, partitions)
    assert spread({member: plan[member] for member in readers}) <= 1


def test_members_that_read_nothing_and_no_members() -> None:
    assert assign([Subscriber("a", []), Subscriber("b", ["t"])], {"t": 1}) == {
        "a": [],
        "b": some("t", 1),
    }
    assert assign([], {"t": 1}) == {}
