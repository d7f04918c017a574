"""The backlog over time, and what a rebalance does to it."""

from __future__ import annotations

import pytest
from tests.ledger.records import joined, waits

from steelyard.ledger import cost
from steelyard.ledger.backlog import backlogs
from steelyard.ledger.events import Record


def test_a_backlog_is_on_straight_lines_between_its_points() -> None:
    """Broker a goes from 10 to 30 (its peak) to 0, broker b stays at 4; what is not known yet counts as nothing."""
    records = [
        waits(1_000, 7, 3),
        waits(3_000, 0, 0, peak=30, peak_at=2_000),
        waits(1_500, 4, broker="b"),
    ]
    backlog = backlogs(records, "g")
    assert backlog.total() == ([1_000, 1_500, 2_000, 3_000], [10, 24, 34, 4])
    assert [backlog.at(at) for at in (999, 1_250, 2_500, 9_000)] == [None, 15, 19, 4]
    assert backlog.over(2_250, 2_500) == ([2_250, 2_500], [26.5, 19])
    assert backlog.over(0, 500) == ([], [])
    assert backlogs(records, "another").total() == ([], [])


def test_a_backlog_that_rises_where_a_rebalance_begins_rises_by_it() -> None:
    """It is recorded once a second, and before and after the event at 10 300; of both brokers."""
    records: list[Record] = [
        *(waits(at, 1) for at in range(0, 10_001, 1_000)),
        *(waits(at + 250, 1, broker="b") for at in range(0, 10_001, 1_000)),
        joined(5_100, "A", "A"),
        joined(10_300, "B", "AB"),
        waits(11_000, 701),
        waits(11_250, 901, broker="b"),
    ]
    assert backlogs(records, "g").over(5_100, 10_300).totals[-1] == 2
    first, second = cost.rebalances(records)
    assert (first.spike, first.drain_ms) == (1.0, 0)
    assert second.spike is not None
    assert second.spike > 700


@pytest.mark.parametrize(
    ("peak", "spike", "drain_ms"),
    [
        (40, 40 / 3, 2_700),  # 6 again 1 700 ms after the peak, which falls by 20 a second
        (6, 2.0, 0),  # no more than it varies anyhow
    ],
)
def test_a_backlog_drains_when_it_is_back_within_what_is_usual(
    peak: int, spike: float, drain_ms: int
) -> None:
    """It was between 2 and 4 before, its median 3: so up to 6 is usual."""
    before = [waits(at, 2 + at // 1_000 % 2 * 2) for at in range(0, 10_000, 1_000)]
    before += [waits(at + 500, 3) for at in range(0, 10_000, 1_000)]
    records: list[Record] = [
        *before,
        waits(10_000, 2),
        joined(10_000, "B", "AB"),
        waits(11_000, peak),
        waits(13_000, 0),
    ]
    (row,) = cost.rebalances(records)
    assert row.spike == pytest.approx(spike)
    assert row.drain_ms == drain_ms


def test_backlog_that_does_not_drain() -> None:
    """Before the next rebalance, or not before the records end."""
    records: list[Record] = [
        waits(-9_000, 3),
        waits(1_000, 3),
        joined(1_000, "B", "AB"),
        waits(1_500, 9),
        joined(3_000, "C", "ABC"),
        waits(3_000, 12),
        waits(4_000, 99),
    ]
    first, second = cost.rebalances(records)
    assert (first.spike, first.drain_ms) == (4.0, None)
    # Once a second before the second one: 3 eight times, then 3 (at 1 000) and 10 (at 2 000).
    assert (second.spike, second.drain_ms) == (33.0, None)
