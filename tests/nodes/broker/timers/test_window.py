"""Rows in memory: the lowest, up to a ceiling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.nodes.broker.timers import rows, window
from steelyard.nodes.broker.timers.window import NextRows, Window

ROWS = st.lists(st.integers(0, 300))


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "ROWS_MAX", 10)


def popped(kept: Window) -> list[int]:
    found = []
    while (row := kept.first) is not None:
        found.append(row)
        kept.pop()
    return found


def test_a_full_window_drops_the_latest_and_says_so() -> None:
    kept = Window(100)
    for row in (*range(50, 71), 120):
        kept.add(row)
        kept.check()
    assert kept.ceiling == 59
    assert not kept.has_room
    kept.add(60)
    kept.add(3)
    assert popped(kept) == [3, *range(50, 60)]


@given(ROWS, ROWS, ROWS)
def test_a_window_has_all_rows_up_to_its_ceiling(
    added: list[int], slot: list[int], later: list[int]
) -> None:
    kept = Window(150)
    for row in added:
        kept.add(row)
    if kept.ceiling == 150:
        gathering = NextRows(150, 200)
        for some in (slot[:5], slot[5:], slot):
            gathering.add(some)
        kept.extend(*gathering.result())
    else:
        slot = []
    for row in later:
        kept.add(row)
    kept.check()
    assert 0 <= kept.ceiling <= 200
    # Those that were added above the ceiling of the time are in the slot, where others are read again.
    known = {row for row in (*added, *later) if row <= 150} | {row for row in slot if row > 150}
    expected = {row for row in known if row <= kept.ceiling}
    found = popped(kept)
    assert expected <= set(found)
    assert found == sorted(found)


def test_rows_sort_by_time_and_recalls_come_first() -> None:
    last = rows.row_of(5, 2**43 - 1)
    ordered = [
        rows.first_row_at(5),
        rows.row_of(5, 7, recalls=True),
        rows.row_of(5, 0),
        last,
        rows.first_row_at(6),
    ]
    assert ordered == sorted(ordered)
    assert (rows.due_in(last), rows.offset_in(last), rows.is_recall(last)) == (5, 2**43 - 1, False)
    assert rows.is_recall(ordered[1])
    assert rows.unpack(rows.pack(ordered) + b"torn") == ordered
    assert rows.slot_of(rows.row_of(3_600_000, 1)) == 1
