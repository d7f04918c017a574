"""What strategies would do: laws for all of them, and plans that were worked out by hand."""

from __future__ import annotations

import pytest

from steelyard.errors import RouteError
from steelyard.web.console.answers import Dialect, GroupPicture, GroupQueue, MemberView
from steelyard.web.console.what_if import KAFKA_NAMES, REMOTING_NAMES, what_if


def group(dialect: Dialect, owners: list[str | None], members: list[str]) -> GroupPicture:
    """One topic with a queue for each owner."""
    broker = None if dialect == "kafka" else "room1@b"
    prefix = "t/" if dialect == "kafka" else f"t/{broker}/"
    return GroupPicture(
        dialect=dialect,
        kind="classic" if dialect == "kafka" else "rocketmq",
        name="g",
        state="Stable",
        protocol=None,
        generation=3,
        assignment_epoch=None,
        topology=None,
        members=[
            MemberView(
                id=name,
                client_id=name,
                host="",
                version=None,
                state="stable",
                waited_for=False,
                since=None,
                assigned=owners.count(name),
                tasks=None,
            )
            for name in members
        ],
        queues=[
            GroupQueue(
                key=f"{prefix}{number}",
                topic="t",
                broker=broker,
                queue=number,
                owner=owner,
                next_owner=None,
                committed=0,
                end=0,
                lag=0,
                wait_ms=0,
                readers=[],
                share_start=None,
                task=None,
                standbys=[],
                warmups=[],
            )
            for number, owner in enumerate(owners)
        ],
        rebalance=None,
        warning=None,
    )


ALL = [("rocketmq", name) for name in REMOTING_NAMES] + [("kafka", name) for name in KAFKA_NAMES]


@pytest.mark.parametrize(("dialect", "name"), ALL)
@pytest.mark.parametrize("members", [1, 2, 3, 7, 30])
def test_each_queue_has_one_member_and_the_figures_are_right(
    dialect: Dialect, name: str, members: int
) -> None:
    owners: list[str | None] = [*["a"] * 4, *["b"] * 4, *["c"] * 3]
    (found,) = what_if(group(dialect, owners, ["a", "b", "c"]), members, name).results
    ids = [share.id for share in found.members]
    there = ["a", "b", "c"][:members]
    assert ids == [*there, *(f"new-{n}" for n in range(1, members - len(there) + 1))]
    keys = [key for share in found.members for key in share.queues]
    prefix = "t/" if dialect == "kafka" else "t/room1@b/"
    wanted = {f"{prefix}{number}" for number in range(11)}
    assert len(keys) == len(set(keys))
    if name == "CONFIG":  # who has left took its list along
        assert set(keys) == {
            k for k, o in zip(sorted_keys(prefix), owners, strict=True) if o in ids
        }
    else:
        assert set(keys) == wanted
    now = {f"{prefix}{number}": owner for number, owner in enumerate(owners)}
    then = {key: share.id for share in found.members for key in share.queues}
    assert found.moved == sum(then.get(key) != owner for key, owner in now.items())
    sizes = [len(share.queues) for share in found.members]
    assert (found.smallest, found.largest) == (min(sizes), max(sizes))
    assert found.idle == sizes.count(0)


def sorted_keys(prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in range(11)]


def test_plans_by_hand() -> None:
    owners: list[str | None] = ["a", "a", "b", "b"]
    found = what_if(group("rocketmq", owners, ["a", "b"]), 3, None)
    plans = {
        one.strategy: [[key[-1] for key in share.queues] for share in one.members]
        for one in found.results
    }
    assert found.strategies == list(REMOTING_NAMES)
    assert plans["AVG"] == [["0", "1"], ["2"], ["3"]]
    assert plans["AVG_BY_CIRCLE"] == [["0", "3"], ["1"], ["2"]]
    assert plans["CONFIG"] == [["0", "1"], ["2", "3"], []]
    moved = {one.strategy: one.moved for one in found.results}
    assert (moved["AVG"], moved["AVG_BY_CIRCLE"], moved["CONFIG"], moved["EVEN"]) == (1, 3, 0, 1)
    kafka = {
        one.strategy: one for one in what_if(group("kafka", owners, ["a", "b"]), 3, None).results
    }
    assert [share.queues for share in kafka["range"].members] == [["t/0", "t/1"], ["t/2"], ["t/3"]]
    assert kafka["roundrobin"].moved == 3
    for name in ("sticky", "cooperative-sticky", "uniform", "even"):
        assert kafka[name].moved == 1, name


def test_the_sentence() -> None:
    (found,) = what_if(group("kafka", ["a", None], ["a"]), 3, "range").results
    assert found.text == (
        "Each member reads 0 to 1 queues, and 0 queues change hands; 1 member has nothing to read."
    )


def test_without_a_number_all_members_stay_and_a_group_without_any_gets_one() -> None:
    (stays,) = what_if(group("kafka", ["a", "b"], ["a", "b"]), None, "sticky").results
    assert [share.id for share in stays.members] == ["a", "b"]
    (first,) = what_if(group("kafka", [None, None], []), None, "sticky").results
    assert [(share.id, len(share.queues)) for share in first.members] == [("new-1", 2)]


def test_no_broker_in_a_room() -> None:
    picture = group("rocketmq", ["a"], ["a"])
    (queue,) = picture.queues
    plain = GroupPicture(
        **{
            **{name: getattr(picture, name) for name in picture.__struct_fields__},
            "queues": [
                GroupQueue(
                    **{
                        **{name: getattr(queue, name) for name in queue.__struct_fields__},
                        "broker": "b",
                    }
                )
            ],
        }
    )
    (found,) = what_if(plain, 1, "MACHINE_ROOM").results
    assert found.text.endswith("; 1 member has nothing to read; nobody reads 1 queue.")


@pytest.mark.parametrize(
    ("dialect", "name"), [("kafka", "AVG"), ("rocketmq", "range"), ("kafka", "")]
)
def test_a_strategy_of_the_other_dialect_is_refused(dialect: Dialect, name: str) -> None:
    with pytest.raises(RouteError, match="unknown strategy"):
        what_if(group(dialect, ["a"], ["a"]), 1, name)
