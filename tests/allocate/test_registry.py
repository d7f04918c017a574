"""Strategies by name, and the laws that each of them keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.allocate import pinned, rooms
from steelyard.allocate.plan import Claim, Plan, Strategy
from steelyard.allocate.registry import STRATEGIES, strategy
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue

FAIR = frozenset({"AVG", "AVG_BY_CIRCLE", "EVEN"})

client_ids = st.lists(
    st.text("abc-@1", min_size=1, max_size=4).filter(lambda text: text[0] != "-"),
    max_size=12,
    unique=True,
).map(sorted)
brokers = st.text("ab-@", min_size=1, max_size=4).filter(lambda text: text[0] != "-")
queue_lists = st.lists(
    st.builds(MessageQueue, st.sampled_from(["T", "U"]), brokers, st.integers(0, 7)),
    max_size=40,
    unique=True,
).map(sorted)


def claims_of(members: list[str]) -> list[Claim[MessageQueue]]:
    return [Claim(member) for member in members]


def test_the_names() -> None:
    assert sorted(STRATEGIES) == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        "EVEN",
        "MACHINE_ROOM_NEARBY-AVG",
        "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE",
        "MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
    ]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@given(members=client_ids, queues=queue_lists)
def test_laws_of_the_named_ones(name: str, members: list[str], queues: list[MessageQueue]) -> None:
    plan = strategy(name)(claims_of(members), queues)
    assert plan == strategy(name)(claims_of(members), queues)
    assert plan.members == tuple(members)
    assert len(plan.shares) == len(members)
    shared = sorted(queue for share in plan.shares for queue in share)
    assert shared == (queues if members else [])
    sizes = [len(share) for share in plan.shares]
    if name in FAIR and members:
        assert max(sizes) - min(sizes) <= 1


@given(members=client_ids, queues=queue_lists)
def test_laws_of_those_that_leave_queues_out(
    members: list[str], queues: list[MessageQueue]
) -> None:
    lists = {member: queues[position::3] for position, member in enumerate(["a", "b"])}
    those: list[Strategy] = [rooms.machine_room({"a", "ab"}), pinned.pinned(lists)]
    for allocate in those:
        plan = allocate(claims_of(members), queues)
        assert plan == allocate(claims_of(members), queues)
        assert plan.members == tuple(members)
        assert len(plan.shares) == len(members)
        shared = [queue for share in plan.shares for queue in share]
        assert len(set(shared)) == len(shared)
        assert set(shared) <= set(queues)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_nobody_gets_nothing(name: str) -> None:
    assert strategy(name)([], [MessageQueue("T", "b", 0)]) == Plan((), ())


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_who_made_no_claim_has_no_share(name: str) -> None:
    plan = strategy(name)(claims_of(["c1", "c2"]), [MessageQueue("T", "b", 0)])
    assert plan.share("c3") == ()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("BEST", r"unknown allocation strategy 'BEST'; expected one of: AVG, AVG_BY_C"),
        ("MACHINE_ROOM", r"MACHINE_ROOM needs arguments, .* allocate=.*machine_room\(rooms\)"),
        ("CONFIG", r"CONFIG needs arguments, .* allocate=.*pinned\(lists\)"),
    ],
)
def test_a_name_that_is_not_enough_is_told_with_what_would_be(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        strategy(name)
