"""sticky, cooperative-sticky and even: the laws that they share, and members that come and go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.allocate.assignors.groups import (
    TOPICS,
    again,
    check_shares,
    counts,
    groups,
    imbalance,
    moves,
    readable,
    some_subscribers,
    spread,
)
from tests.allocate.assignors.groups import given as given_by
from tests.examples import examples

from steelyard.allocate.assignors import even, sticky
from steelyard.allocate.assignors.holdings import (
    claim_of_cooperative,
    claim_of_eager,
    settle,
)
from steelyard.allocate.assignors.plan import Assignment, Assignor, RebalanceProtocol, Subscriber
from steelyard.types import TopicPartition

STICKY = [sticky.STICKY, sticky.COOPERATIVE_STICKY, even.ASSIGNOR]
COOPERATIVE = STICKY[1:]

every_sticky = pytest.mark.parametrize("assignor", STICKY, ids=lambda assignor: assignor.name)
every_cooperative = pytest.mark.parametrize(
    "assignor", COOPERATIVE, ids=lambda assignor: assignor.name
)


def settled(
    assignor: Assignor,
    subscribers: list[Subscriber],
    partitions: dict[str, int],
    held: Assignment,
    generation: int,
) -> Assignment:
    """The assignment after the rebalance, with the second round that cooperative members need at most."""
    plan = assignor.assign(again(assignor, subscribers, held, generation), partitions)
    if assignor.rebalance_protocol is RebalanceProtocol.COOPERATIVE:
        for member in held.keys() & plan.keys():
            others = {one for other in plan if other != member for one in plan[other]}
            assert others.isdisjoint(held[member]), "given away before its holder let go"
        last = assignor.assign(again(assignor, subscribers, plan, generation + 1), partitions)
        for member, share in plan.items():
            assert set(share) <= set(last[member]), "the second round takes something away"
        return last
    return plan


def fewest_moves(held: Assignment, plan: Assignment, partitions: dict[str, int]) -> int:
    """Of all complete and even plans for the members of `plan`, which all read everything; see allocate.measure."""
    size, longer = divmod(sum(partitions.values()), len(plan))
    there = {member: len(held[member]) for member in held if member in plan}
    kept = sum(min(count, size) for count in there.values())
    kept += min(longer, sum(count > size for count in there.values()))
    return sum(len(share) for share in held.values()) - kept


@every_sticky
@settings(max_examples=examples(50))
@given(subscribers=groups, partitions=counts)
def test_whatever_is_claimed_all_is_given_that_nobody_else_may_hold(
    assignor: Assignor, subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    plan = assignor.assign(subscribers, partitions)
    check_shares(plan, subscribers)
    missing = readable(subscribers, partitions) - given_by(plan)
    if assignor.rebalance_protocol is RebalanceProtocol.EAGER:
        assert not missing
    else:
        holders = settle(subscribers, partitions, claim_of_cooperative).holders
        assert missing <= holders.keys()
        for member, share in plan.items():
            assert all(holders.get(partition, member) == member for partition in share)


@every_sticky
@settings(max_examples=examples(50))
@given(subscribers=groups, partitions=counts)
def test_the_order_of_the_subscribers_does_not_matter(
    assignor: Assignor, subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    plan = assignor.assign(subscribers, partitions)
    assert plan == assignor.assign(subscribers[::-1], dict(sorted(partitions.items())))
    assert all(share == sorted(share) for share in plan.values())


@every_sticky
@settings(max_examples=examples(50))
@given(subscribers=some_subscribers(alike=True), partitions=counts)
def test_where_all_subscribe_alike_sizes_differ_by_one_and_the_fewest_move(
    assignor: Assignor, subscribers: list[Subscriber], partitions: dict[str, int]
) -> None:
    """Also from claims that no assignor would make; of a cooperative plan what is left out counts as moved."""
    plan = assignor.assign(subscribers, partitions)
    eager = assignor.rebalance_protocol is RebalanceProtocol.EAGER
    group = settle(subscribers, partitions, claim_of_eager if eager else claim_of_cooperative)
    held = group.held
    kept = sum(len(set(share) & set(plan[member])) for member, share in held.items())
    if plan:
        assert kept == sum(map(len, held.values())) - fewest_moves(held, plan, group.partitions)
    if eager:
        assert spread(plan) <= 1


@every_sticky
@settings(max_examples=examples(50))
@given(
    subscribers=some_subscribers(sane=True),
    partitions=counts,
    steps=st.lists(
        st.tuples(
            st.sampled_from(["join", "leave", "grow", "subscribe"]),
            st.integers(0, 9),
            st.lists(st.sampled_from(TOPICS), unique=True),
        ),
        max_size=6,
    ),
)
def test_members_come_and_go(
    assignor: Assignor,
    subscribers: list[Subscriber],
    partitions: dict[str, int],
    steps: list[tuple[str, int, list[str]]],
) -> None:
    """After each change the group is as even as a new one would be, in two rounds at most; without one nothing moves."""
    held = settled(assignor, subscribers, partitions, {}, 0)
    for generation, (change, number, topics) in enumerate(steps, 1):
        place = number % len(subscribers) if subscribers else 0
        if change == "join":
            subscribers = [*subscribers, Subscriber(f"new{generation}", topics)]
        elif change == "leave":
            subscribers = subscribers[:place] + subscribers[place + 1 :]
        elif change == "grow":
            partitions = {**partitions, TOPICS[number % 5]: number + 1}
        elif subscribers:
            changed = Subscriber(subscribers[place].member, topics)
            subscribers = [*subscribers[:place], changed, *subscribers[place + 1 :]]
        plan = settled(assignor, subscribers, partitions, held, 10 * generation)
        check_shares(plan, subscribers)
        assert given_by(plan) == readable(subscribers, partitions)
        new = assignor.assign(again(assignor, subscribers, {}, 0), partitions)
        assert imbalance(plan) == imbalance(new)
        assert plan == assignor.assign(
            again(assignor, subscribers, plan, 10 * generation + 5), partitions
        )
        held = plan


@every_sticky
@settings(max_examples=examples(50))
@given(members=st.integers(2, 30), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_a_leave_moves_what_the_leaver_had_and_a_join_what_the_newcomer_gets(
    assignor: Assignor, members: int, sizes: list[int]
) -> None:
    partitions = dict(zip(TOPICS, sizes, strict=False))
    group = [Subscriber(f"m{number:02}", list(partitions)) for number in range(members)]
    full = settled(assignor, group, partitions, {}, 0)
    left = settled(assignor, group[1:], partitions, full, 1)
    assert moves(full, left) == len(full["m00"])
    back = settled(assignor, group, partitions, left, 3)
    assert moves(left, back) == len(back["m00"]) == sum(sizes) // members


def test_the_first_round_leaves_out_what_is_to_move() -> None:
    held = [TopicPartition("t", number) for number in range(4)]
    old, new = Subscriber("old", ["t"], held, 1), Subscriber("new", ["t"])
    first = sticky.assign_cooperative([old, new], {"t": 4})
    assert first == {"old": held[:2], "new": []}
    let_go = Subscriber("old", ["t"], first["old"], 2)
    assert sticky.assign_cooperative([let_go, new], {"t": 4}) == {
        "old": held[:2],
        "new": held[2:],
    }


def test_a_member_of_an_older_generation_does_not_take_its_partitions_back() -> None:
    """Kafka's KAFKA-12984: it missed a rebalance in which they were given to others."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    late = Subscriber("late", ["t"], [t0, t1], 3)
    now = Subscriber("now", ["t"], [t0], 4)
    assert sticky.assign_cooperative([late, now], {"t": 2}) == {"late": [t1], "now": [t0]}


def test_an_eager_group_keeps_what_its_user_data_tells() -> None:
    t = [TopicPartition("t", number) for number in range(4)]
    subscribers = [
        Subscriber("a", ["t"], user_data=sticky.STICKY.user_data([t[3], t[1]], 7)),
        Subscriber("b", ["t"], user_data=sticky.STICKY.user_data([t[0], t[2]], 7)),
    ]
    assert sticky.assign_eager(subscribers, {"t": 4}) == {"a": [t[1], t[3]], "b": [t[0], t[2]]}
