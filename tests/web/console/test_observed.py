"""Rebalances that are seen by comparing pictures, and the members that flap in them."""

from __future__ import annotations

from steelyard.groups.flapping import FLAPS_MIN
from steelyard.web.console import observed
from steelyard.web.console.answers import GroupPicture, GroupQueue, MemberView, RebalanceNow
from steelyard.web.console.contract import GroupId
from steelyard.web.console.observed import Observer

GROUP: GroupId = ("kafka", "g")


def member(name: str) -> MemberView:
    return MemberView(
        id=f"{name}-id",
        client_id=name,
        host="h",
        version=None,
        state="stable",
        waited_for=False,
        since=None,
        assigned=0,
        tasks=None,
    )


def picture(
    owners: dict[str, str | None], members: str = "ab", rebalance: RebalanceNow | None = None
) -> GroupPicture:
    """A group of members with these letters as names; `owners`: of each queue."""
    return GroupPicture(
        dialect="kafka",
        kind="classic",
        name="g",
        state="Stable",
        protocol="classic: range",
        generation=None,
        assignment_epoch=None,
        topology=None,
        members=[member(name) for name in members],
        queues=[
            GroupQueue(
                key=key,
                topic="t",
                broker=None,
                queue=0,
                owner=owner,
                next_owner=None,
                committed=None,
                end=None,
                lag=None,
                wait_ms=None,
                readers=[],
                share_start=None,
                task=None,
                standbys=[],
                warmups=[],
            )
            for key, owner in owners.items()
        ],
        rebalance=rebalance,
        warning=None,
    )


def untold(since: int) -> RebalanceNow:
    return RebalanceNow(
        since=since, trigger="unknown", reason="unknown", waits_for=[], text="Busy."
    )


def test_a_rebalance_has_members_moves_and_its_time() -> None:
    observer = Observer(0)
    observer.look(picture({"t/0": "a-id", "t/1": "b-id"}), 1_000)
    seen = observer.look(picture({"t/0": None, "t/1": None}, "abc", untold(2_000)), 2_000)
    assert [queue.owner for queue in seen.queues] == ["a-id", "b-id"]  # as before
    assert seen.rebalance is not None
    assert (seen.rebalance.since, seen.rebalance.trigger) == (2_000, "joined")
    assert observer.is_rebalancing(GROUP, 2_500)
    later = observer.look(picture({"t/0": None, "t/1": None}, "abc", untold(3_000)), 3_000)
    assert later.rebalance is not None
    assert later.rebalance.since == 2_000
    assert later.rebalance.text == "Rebalancing for 1.0 s (c-id joined). Busy."
    observer.look(picture({"t/0": "a-id", "t/1": "c-id"}, "abc"), 4_500)
    (found,) = observer.rebalances(GROUP, 10)
    assert (found.at, found.took_ms, found.moved, found.trigger) == (2_000, 2_500, 1, "joined")
    assert (found.members_before, found.members_after) == (
        ["a-id", "b-id"],
        ["a-id", "b-id", "c-id"],
    )
    assert [(one.queue, one.from_, one.to, one.pause_ms) for one in found.handoffs] == [
        ("t/1", "b-id", "c-id", None)
    ]
    assert (found.pause_ms, found.reprocessed, found.confidence) == (None, None, "observed")
    assert observer.last_at(GROUP) == 2_000
    assert not observer.is_rebalancing(GROUP, 4_500)


def test_a_rebalance_at_which_nobody_looks_any_more_has_no_known_end() -> None:
    """Two rebalances are under way when somebody looks; what was between the looks is unknown."""
    observer = Observer(0)
    observer.look(picture({"t/0": "a-id"}), 1_000)
    observer.look(picture({"t/0": None}, "abc", untold(2_000)), 2_000)
    later = 2_000 + observed.STALE_MS
    assert observer.is_rebalancing(GROUP, later - 1)
    assert not observer.is_rebalancing(GROUP, later)
    seen = observer.look(picture({"t/0": None}, "abc", untold(later)), later)
    assert seen.rebalance is not None
    assert seen.rebalance.since == later
    observer.look(picture({"t/0": "c-id"}, "abc"), later + observed.STALE_MS)
    (found,) = observer.rebalances(GROUP, 10)
    assert (found.at, found.ended_at, found.took_ms) == (later, None, None)
    assert (found.moved, found.trigger) == (1, "joined")


def test_one_between_two_looks_is_seen_and_nothing_is_not() -> None:
    observer = Observer(0)
    observer.look(picture({"t/0": "a-id"}), 1_000)
    observer.look(picture({"t/0": "a-id"}), 2_000)
    assert observer.rebalances(GROUP, 10) == []
    observer.look(picture({"t/0": "b-id"}, "b"), 3_000)
    (found,) = observer.rebalances(GROUP, 10)
    assert (found.at, found.took_ms, found.reason) == (2_000, None, "a-id left")


def test_what_servers_tell_is_left_as_it_is() -> None:
    told = RebalanceNow(since=5, trigger="left", reason="x", waits_for=["a-id"], text="Told.")
    observer = Observer(0)
    assert observer.look(picture({"t/0": "a-id"}, rebalance=told), 9).rebalance == told


def test_members_that_come_and_go_flap() -> None:
    observer = Observer(0)
    for number in range(FLAPS_MIN):
        observer.look(picture({"t/0": "a-id"}, "a"), 10_000 * number)
        observer.look(picture({"t/0": "a-id"}, "ab"), 10_000 * number + 3_000)
    assert observer.flapping(GROUP, 10_000 * FLAPS_MIN) == []
    observer.look(picture({"t/0": "a-id"}, "a"), 10_000 * FLAPS_MIN)
    (found,) = observer.flapping(GROUP, 10_000 * FLAPS_MIN)
    assert (found.member, found.joins) == ("b h", FLAPS_MIN)


def test_limits() -> None:
    observer = Observer(0)
    for number in range(observed.REBALANCES_MAX + 10):
        observer.look(picture({"t/0": "ab"[number % 2]}), number)
    assert len(observer.rebalances(GROUP, 10_000)) == observed.REBALANCES_MAX
    assert len(observer.rebalances(GROUP, 3)) == 3
    latest = [one.at for one in observer.rebalances(GROUP, 3)]
    assert latest == sorted(latest, reverse=True)
