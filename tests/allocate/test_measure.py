"""Moves, spread, and the fewest moves: beside trying out every even plan."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.allocate import measure

from steelyard.allocate.plan import Plan

ABC = Plan(("a", "b", "c"), ((0, 1), (2,), ()))


def test_spread() -> None:
    assert measure.spread(ABC) == 2
    assert measure.spread(Plan[int]((), ())) == 0


def test_owners() -> None:
    assert measure.owners(ABC) == {0: "a", 1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (ABC, 0),
        (Plan(("a", "b"), ((1,), (0, 2))), 1),
        (Plan(("c", "d"), ((2,), (0, 1))), 3),
        (Plan(("a",), ((0, 1, 3),)), 0),  # 2 is read by nobody now, 3 was not read before
        (Plan[int]((), ()), 0),
    ],
)
def test_moves(after: Plan[int], expected: int) -> None:
    assert measure.moves(ABC, after) == expected


def all_even_plans(members: list[str], queues: range) -> list[Plan[int]]:
    plans = []
    for owners in product(range(len(members)), repeat=len(queues)):
        shares = tuple(
            tuple(queue for queue in queues if owners[queue] == position)
            for position in range(len(members))
        )
        plan = Plan(tuple(members), shares)
        if measure.spread(plan) <= 1:
            plans.append(plan)
    return plans


some = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True).map(sorted)


@given(
    before=some, after=some, owners=st.lists(st.integers(0, 2), max_size=6), count=st.integers(0, 5)
)
def test_the_fewest_moves_are_the_fewest(
    before: list[str], after: list[str], owners: list[int], count: int
) -> None:
    shares = tuple(
        tuple(queue for queue, owner in enumerate(owners) if owner % len(before) == position)
        for position in range(len(before))
    )
    old = Plan(tuple(before), shares)
    fewest = min(measure.moves(old, plan) for plan in all_even_plans(after, range(count)))
    assert measure.moves_min(old, after, range(count)) == fewest


def test_without_members_nothing_moves() -> None:
    assert measure.moves_min(ABC, [], range(3)) == 0
