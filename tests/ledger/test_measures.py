"""Pause, spike and percentiles, by hand."""

from __future__ import annotations

import pytest

from steelyard.ledger import measures


@pytest.mark.parametrize(
    ("last_at_old", "stored", "first_at_new", "pause"),
    [
        (1000, 900, 1500, 500),  # a message waited all the time
        (1000, 1400, 1500, 100),  # nothing waited before 1400
        (1000, 1500, 1500, 0),  # delivered as it came
        (1600, 900, 1500, 0),  # both were delivered for a while
        (1000, 1700, 1500, 0),  # a clock that is off
    ],
)
def test_pause(last_at_old: int, stored: int, first_at_new: int, pause: int) -> None:
    assert measures.pause_ms(last_at_old, stored, first_at_new) == pause


@pytest.mark.parametrize(
    ("before", "after", "spike"),
    [
        ([10, 20, 30], [5, 60], 3.0),
        ([10, 20], [60], 4.0),  # the median is 15
        ([0, 0, 9], [7], 7.0),  # a median of 0 counts as 1
        ([10], [4], 0.4),
        ([], [4], None),
        ([10], [], None),
    ],
)
def test_spike(before: list[int], after: list[int], spike: float | None) -> None:
    assert measures.spike(before, after) == spike


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0), ([7], 0.5, 7), ([4, 1], 0.5, 1), ([1, 2, 3], 0.5, 2), ([1, 2, 3], 0.99, 3)],
)
def test_percentile_is_nearest_rank(values: list[int], share: float, expected: int) -> None:
    assert measures.percentile(values, share) == expected
    assert measures.percentile(list(range(1, 101)), 0.99) == 99
