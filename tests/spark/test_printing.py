"""What people see of tables: whole names and reasons, within the width of their terminal."""

from __future__ import annotations

import pytest

from steelyard.incident.tables import HIGH, IncidentRebalance
from steelyard.spark.incidents.output import SHOWN
from steelyard.spark.printing import (
    known_groups,
    printed_rebalances,
    short_names,
    terminal_width,
    text_table,
)

M1 = "m1-06795a61-030b-bd42-b2a7-8a764774bb4f"
M2 = "m2-8763f387-db52-fdb0-9208-1d97f73a7541"


def died(group: str = "stock") -> IncidentRebalance:
    return IncidentRebalance(
        group=group,
        rebalance=f"{group}/1",
        generation=5,
        started_at=1_795_660_148_538,
        started_error_ms=500,
        reason=f"{M2} died: its session timed out; {M1} joined\x1b[31m",
        trigger="left (expired)",
        confidence=HIGH,
        members_before=(M1, M2),
        members_after=(M1,),
        detect_ms=None,
        rebalance_ms=None,
        queues_moved=1,
        queues_stalled=0,
        pause_max_ms=6_119,
        pause_error_ms=1_003,
    )


def test_a_table_fits_its_terminal_and_has_the_whole_reason() -> None:
    assert printed_rebalances([died(), died("other")], SHOWN, 100).splitlines() == [
        "group other",
        "began (UTC)          moved  stalled  pause max, ms  ±, ms  confidence  reason",
        "2026-11-26 02:29:08      1        0          6,119  1,003  high        m2 died: its session timed",
        "                                                                       out; m1 joined\\x1b[31m",
        "",
        "group stock",
        "began (UTC)          moved  stalled  pause max, ms  ±, ms  confidence  reason",
        "2026-11-26 02:29:08      1        0          6,119  1,003  high        m2 died: its session timed",
        "                                                                       out; m1 joined\\x1b[31m",
    ]


def test_what_has_no_room_beside_its_row_is_below_it() -> None:
    lines = printed_rebalances([died()], SHOWN, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2:] == [
        "    reason",
        "2026-11-26 02:29:08      1        0          6,119  1,003  high",
        "    m2 died: its session timed out; m1 joined\\x1b[31m",
    ]


def test_a_word_that_is_too_long_stays_whole() -> None:
    assert text_table(["n", "text"], [["1", "a" * 50 + " b"]], [True, False], 30) == (
        f"n  text\n1  {'a' * 50}\n   b"
    )


@pytest.mark.parametrize(
    ("members", "names"),
    [
        ((M1, M2), ("m1", "m2")),
        (
            ("c-06795a61-030b-bd42-b2a7-8a764774bb4f", "c-06795f61-030b-bd42-b2a7-8a764774bb4f"),
            ("c-06795a", "c-06795f"),
        ),
        (("app-PR3jPRyVT7iLq-2wTkzP9g",), ("app",)),
        (("10.0.0.1@4711", "m-1", "app-very-long-service-name"), (None, None, None)),
    ],
    ids=["told apart by client ids", "not told apart", "KIP-848", "none is random"],
)
def test_short_names(members: tuple[str, ...], names: tuple[str | None, ...]) -> None:
    short = short_names(members)
    assert tuple(short.get(one) for one in members) == names


def test_the_width_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert terminal_width() == 70


def test_groups_are_named_up_to_a_limit() -> None:
    assert known_groups([]) == "there are no groups"
    assert known_groups(map(str, range(12))).endswith("7 and 2 more")
