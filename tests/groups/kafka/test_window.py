"""The window that makes changes that follow each other one rebalance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.groups.kafka.window import QUIET_MS_MIN, JoinWindow

MOST_MS = 1_000


def play(most_ms: int, *changes: tuple[str, int]) -> list[int]:
    """When changes take effect: `join` and `urgent` ones, each so many ms after the one before."""
    window = JoinWindow(most_ms)
    now, ends = 10_000, []
    for kind, after in (*changes, ("end", 10 * MOST_MS)):
        now += after
        while window.due_at is not None and window.due_at <= now:
            ends.append(window.due_at - 10_000)
            window.ended(window.due_at)
        if kind == "join":
            window.joined(now)
        elif kind == "urgent":
            window.urgent(now)
        if window.due_at is not None and window.is_due(now):
            ends.append(now - 10_000)
            window.ended(now)
    return ends


@pytest.mark.parametrize(
    ("changes", "ends"),
    [
        ([("join", 0)], [0]),  # alone in a group at rest
        ([("join", 0), ("join", 501)], [0, 501]),  # the group was at rest again
        ([("join", 0), ("join", 10)], [0, 10 + QUIET_MS_MIN]),
        ([("join", 0), ("join", 100)], [0, 300]),  # quiet for twice the time between the two
        ([("join", 0), ("join", 100), ("join", 40)], [0, 140 + 80]),  # adapts
        ([("join", 0), ("join", 500), ("join", 100)], [0, 800]),
        ([("join", 0), ("join", 500), ("join", 400)], [0, 1_500]),  # no longer than the limit
        ([("join", 0), *[("join", 100)] * 20], [0, 1_100, 2_100]),
        ([("join", 0), ("join", 100), ("urgent", 60)], [0, 160]),  # takes the join along
        ([("urgent", 0), ("urgent", 10), ("urgent", 10)], [0, QUIET_MS_MIN]),
        ([("urgent", 0), ("urgent", 10), ("join", 10)], [0, QUIET_MS_MIN]),
        ([("urgent", 0), ("join", 10)], [0, 10]),
    ],
)
def test_window(changes: list[tuple[str, int]], ends: list[int]) -> None:
    assert play(MOST_MS, *changes) == ends


def test_without_a_limit_everything_takes_effect_at_once() -> None:
    assert play(0, ("join", 0), ("join", 0), ("urgent", 1), ("join", 1)) == [0, 0, 1, 2]


def test_urgent_change_takes_effect_at_once_if_it_must() -> None:
    window = JoinWindow(MOST_MS)
    window.urgent(5)
    window.ended(5)
    window.urgent(6, at_once=True)
    assert window.is_due(6)


changes = st.lists(
    st.tuples(st.sampled_from(["join", "join", "urgent"]), st.integers(0, 2 * MOST_MS)), max_size=40
)


@given(changes, st.sampled_from([0, 1, 20, MOST_MS]))
def test_no_change_waits_longer_than_the_limit_and_urgent_ones_hardly_at_all(
    changes: list[tuple[str, int]], most_ms: int
) -> None:
    ends = play(most_ms, *changes)
    assert ends == sorted(ends)
    at = 0
    for kind, after in changes:
        at += after
        effect = next(end for end in ends if end >= at)
        assert effect - at <= (most_ms if kind == "join" else min(QUIET_MS_MIN, 50 * most_ms))


@given(st.lists(st.integers(0, 200), min_size=2, max_size=60))
def test_members_deployed_one_by_one_are_a_rebalance_per_window(gaps: list[int]) -> None:
    ends = play(MOST_MS, *[("join", gap) for gap in gaps])
    assert len(ends) <= 2 + sum(gaps) // QUIET_MS_MIN
    if max(gaps[1:]) < 2 * min(gaps[1:]):  # at an even pace
        assert len(ends) <= 2 + sum(gaps[1:]) // (MOST_MS - 200)
