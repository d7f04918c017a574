"""MACHINE_ROOM and MACHINE_ROOM_NEARBY beside the original's way of going about it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.allocate import circle, contiguous, ring, rooms
from steelyard.allocate.plan import Claim, Strategy
from steelyard.errors import ConfigError
from steelyard.types import MessageQueue

ROOMS = ["r1", "r2", "r3", "中", "\U0001f40d"]
"""The last one comes before 中 in Java's order, and after it in Python's."""

members_of = st.lists(
    st.builds("{}-{}".format, st.sampled_from(ROOMS), st.integers(0, 5)), min_size=1, max_size=9
).map(sorted)
names = st.sampled_from([f"{room}-broker" for room in ROOMS])
queues_of = st.lists(
    st.builds(MessageQueue, st.just("T"), names, st.integers(0, 9)), max_size=40, unique=True
).map(sorted)


def claims_of(members: list[str]) -> list[Claim[MessageQueue]]:
    return [Claim(member) for member in members]


# -- MACHINE_ROOM ----------------------------------------------------------------------------------


def java_split(text: str) -> list[str]:
    """String.split("@"): without the empty strings at the end."""
    parts = text.split("@")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def java_machine_room(
    index: int, member_count: int, queues: list[MessageQueue], idcs: set[str]
) -> list[MessageQueue]:
    """AllocateMessageQueueByMachineRoom."""
    near = []
    for queue in queues:
        parts = java_split(queue.broker_name)
        if len(parts) == 2 and parts[0] in idcs:
            near.append(queue)
    mod, rem = divmod(len(near), member_count)
    mine = [near[position] for position in range(mod * index, mod * index + mod)]
    if rem > index:
        mine.append(near[index + mod * member_count])
    return mine


@given(
    broker_names=st.lists(st.text("ab@", max_size=5), max_size=20, unique=True),
    member_count=st.integers(1, 7),
)
def test_machine_room_is_the_originals(broker_names: list[str], member_count: int) -> None:
    queues = sorted(MessageQueue("T", name, number) for name in broker_names for number in range(3))
    members = [f"c{number}" for number in range(member_count)]
    plan = rooms.machine_room({"a", "bb"})(claims_of(members), queues)
    for index, member in enumerate(members):
        original = java_machine_room(index, member_count, queues, {"a", "bb"})
        assert list(plan.share(member)) == original


def test_machine_room_reads_its_rooms_only() -> None:
    queues = [MessageQueue("T", name, 0) for name in ("a@1", "a@2", "b@1", "plain", "x@y@z")]
    plan = rooms.machine_room("a")(claims_of(["c1", "c2", "c3"]), queues)
    assert plan.shares == ((queues[0],), (queues[1],), ())


def test_machine_room_needs_a_room() -> None:
    with pytest.raises(ConfigError, match="no room; name one"):
        rooms.machine_room([])


# -- MACHINE_ROOM_NEARBY ---------------------------------------------------------------------------


def java_nearby(
    inner: Strategy, current: str, queues: list[MessageQueue], members: list[str]
) -> list[MessageQueue]:
    """AllocateMachineRoomNearby: what one member gets, asking the inner strategy for itself each time."""

    def room_of(text: str) -> str:
        return text.split("-")[0]

    queues_in: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        queues_in.setdefault(room_of(queue.broker_name), []).append(queue)
    members_in: dict[str, list[str]] = {}
    for member in members:
        members_in.setdefault(room_of(member), []).append(member)
    mine: list[MessageQueue] = []
    here = queues_in.pop(room_of(current), None)
    if here:
        mine += inner(claims_of(members_in[room_of(current)]), here).share(current)
    for room in sorted(queues_in, key=lambda name: name.encode("utf-16-be")):
        if room not in members_in:
            mine += inner(claims_of(members), queues_in[room]).share(current)
    return mine


@pytest.mark.parametrize("inner", [contiguous.allocate, circle.allocate, ring.allocate])
@given(members=members_of, queues=queues_of)
def test_nearby_is_the_originals(
    inner: Strategy, members: list[str], queues: list[MessageQueue]
) -> None:
    plan = rooms.nearby(inner)(claims_of(members), queues)
    for member in members:
        assert list(plan.share(member)) == java_nearby(inner, member, queues, members)


def test_a_room_keeps_to_itself_while_it_has_a_member() -> None:
    queues = [
        MessageQueue("T", name, number) for name in ("r1-a", "r2-a", "r3-a") for number in (0, 1)
    ]
    allocate = rooms.nearby(contiguous.allocate)
    plan = allocate(claims_of(["r1-x", "r2-x", "r2-y"]), queues)
    assert plan.shares == (
        (queues[0], queues[1], queues[4]),
        (queues[2], queues[5]),
        (queues[3],),
    )


def test_members_of_no_room_share_what_has_none() -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    claims = claims_of(["10.0.0.1@7", "10.0.0.2@7"])
    plan = rooms.nearby(contiguous.allocate)(claims, queues)
    assert plan == contiguous.allocate(claims, queues)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        (["r1-x", "-y"], "no machine room for '-y'"),
        (["r1-x"], f"no machine room for {MessageQueue('T', '-a', 0)!r}"),
    ],
)
def test_an_empty_room_is_told(claims: list[str], told: str) -> None:
    queues = [MessageQueue("T", "-a" if len(claims) == 1 else "r1-a", 0)]
    with pytest.raises(ConfigError, match=re.escape(told)):
        rooms.nearby(contiguous.allocate)(claims_of(claims), queues)
