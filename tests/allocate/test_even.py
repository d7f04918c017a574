"""Even: the seeds' case, the laws, and the number of moves beside the fewest possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate import measure

from steelyard.allocate import contiguous, even
from steelyard.allocate.plan import Claim, Plan
from steelyard.types import MessageQueue


def plan_of(members: list[str], queue_count: int, before: Plan[int] | None = None) -> Plan[int]:
    claims: list[Claim[int]] = [
        Claim(member, before.share(member) if before else ()) for member in members
    ]
    return even.allocate(claims, range(queue_count))


@pytest.mark.parametrize(
    ("members", "queues", "expected"),
    [
        (0, 5, ()),
        (1, 5, (5,)),
        (3, 10, (4, 3, 3)),
        (4, 2, (1, 1, 0, 0)),
        (3, 0, (0, 0, 0)),
        (3, 9, (3, 3, 3)),
    ],
)
def test_quotas(members: int, queues: int, expected: tuple[int, ...]) -> None:
    assert even.quotas(members, queues) == expected


@given(members=st.integers(1, 50), queues=st.integers(0, 500))
def test_quotas_are_the_sizes_of_avg(members: int, queues: int) -> None:
    claims: list[Claim[int]] = [Claim(str(number)) for number in range(members)]
    shares = contiguous.allocate(claims, range(queues)).shares
    assert even.quotas(members, queues) == tuple(len(share) for share in shares)


def test_keep() -> None:
    assert even.keep("dcba", 2) == ("d", "c")
    assert even.keep("dc", 5) == ("d", "c")
    assert even.keep("dc", 0) == ()


def test_two_topics_of_two_queues_give_one_to_each_of_four_members() -> None:
    """Seeds 000 and 001, where RocketMQ leaves two members without any."""
    queues = [
        MessageQueue(topic, "b", number) for topic in ("TopicX", "TopicY") for number in (0, 1)
    ]
    claims: list[Claim[MessageQueue]] = [Claim(f"192.168.0.{number}") for number in (1, 2, 3, 4)]
    assert even.allocate(claims, queues).shares == tuple((queue,) for queue in queues)


def test_without_anything_held_the_queues_are_dealt_out() -> None:
    plan = plan_of(["a", "b", "c"], 8)
    assert plan == Plan(("a", "b", "c"), ((0, 3, 6), (1, 4, 7), (2, 5)))


def test_a_member_keeps_what_it_names_first() -> None:
    claims: list[Claim[str]] = [Claim("a", ("z", "y", "x")), Claim("b")]
    assert even.allocate(claims, ["x", "y", "z"]).shares == (("y", "z"), ("x",))


def test_the_first_of_two_that_claim_a_queue_has_it_and_what_is_gone_is_forgotten() -> None:
    claims: list[Claim[str]] = [Claim("a", ("x", "x", "gone")), Claim("b", ("x", "y"))]
    assert even.allocate(claims, ["x", "y"]).shares == (("x",), ("y",))


names = st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=12).map(sorted)
held_by_chance = st.lists(st.lists(st.integers(0, 45), max_size=30), max_size=12)


@given(members=names, held=held_by_chance, queue_count=st.integers(0, 40))
def test_laws_whatever_is_held(members: list[str], held: list[list[int]], queue_count: int) -> None:
    held += [[]] * len(members)
    claims: list[Claim[int]] = [
        Claim(member, tuple(queues)) for member, queues in zip(members, held, strict=False)
    ]
    plan = even.allocate(claims, range(queue_count))
    assert plan == even.allocate(claims, range(queue_count))
    shared = sorted(queue for share in plan.shares for queue in share)
    assert shared == (list(range(queue_count)) if members else [])
    assert tuple(len(share) for share in plan.shares) == even.quotas(len(members), queue_count)


@given(members=names, queue_count=st.integers(0, 60))
def test_nothing_moves_without_a_change(members: list[str], queue_count: int) -> None:
    before = plan_of(members, queue_count)
    assert plan_of(members, queue_count, before) == before


changes = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=15)


@given(members=names, queue_count=st.integers(0, 60), toggled=changes)
def test_a_leave_moves_the_fewest_and_a_join_at_most_one_more(
    members: list[str], queue_count: int, toggled: list[str]
) -> None:
    """Members join and leave one after another; each name of `toggled` does the one or the other."""
    plan = plan_of(members, queue_count)
    for name in toggled:
        joins = name not in members
        members = sorted([*members, name] if joins else set(members) - {name})
        after = plan_of(members, queue_count, plan)
        fewest = measure.moves_min(plan, members, range(queue_count))
        if members and plan.members:
            assert fewest <= measure.moves(plan, after) <= fewest + joins
        plan = after


def test_a_join_among_the_first_ranks_costs_the_one_more() -> None:
    before = plan_of(["b", "c"], 5)
    after = plan_of(["a", "b", "c"], 5, before)
    assert [len(share) for share in before.shares] == [3, 2]
    assert [len(share) for share in after.shares] == [2, 2, 1]
    assert measure.moves(before, after) == 2
    assert measure.moves_min(before, ["a", "b", "c"], range(5)) == 1


def test_large_groups() -> None:
    """2,000 members, 20,000 queues: a join and a leave."""
    members = [f"m{number:05}" for number in range(2_000)]
    before = plan_of(members, 20_000)
    joined = plan_of(["m00000a", *members], 20_000, before)
    left = plan_of(members[1:], 20_000, before)
    assert measure.spread(joined) == measure.spread(left) == 1
    assert measure.moves(before, joined) == 10
    assert measure.moves(before, left) == 10
