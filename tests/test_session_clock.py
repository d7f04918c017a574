"""Silence is measured without the time in which nobody could have heard anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.session_clock import PULSE_MS, READING_MS, STOOD_STILL_MS, SessionClock


def ticking(until: int) -> SessionClock:
    """A clock that ran from 0 on."""
    clock = SessionClock()
    for now in range(0, until + 1, PULSE_MS):
        assert clock.pulse(now) == 0
    return clock


def test_a_clock_that_runs_is_any_clock() -> None:
    clock = ticking(100_000)
    assert clock.pulse(101_000 + STOOD_STILL_MS) == 0
    assert (clock.ago(30_000, 102_500), clock.lost_ms) == (72_500, 0)


def test_the_time_of_a_stop_does_not_count_nor_does_the_time_to_read() -> None:
    """Stopped from 10 s to 70 s; the pulse was due at 11 s."""
    clock = ticking(10_000)
    assert clock.pulse(70_000) == 59_000
    assert clock.lost_ms == 59_000 + READING_MS
    assert clock.ago(5_000, 70_000) == clock.ago(5_000, 72_000) == 6_000
    assert clock.ago(5_000, 76_000) == 10_000
    assert clock.ago(5_000, 78_000) == 73_000


def test_stops_in_a_row_are_one() -> None:
    clock = ticking(10_000)
    clock.pulse(20_000)
    assert clock.pulse(30_000) == 9_000
    assert clock.lost_ms == 30_000 + READING_MS - 11_000
    assert clock.ago(1_000, 32_000) == 10_000


@given(
    st.lists(st.integers(1, 20_000), max_size=30),
    st.integers(0, 30_000),
    st.integers(0, 5_000),
)
def test_a_longer_silence_began_earlier(steps: list[int], duration: int, more: int) -> None:
    clock = SessionClock()
    now = 0
    clock.pulse(now)
    stood_still = 0
    for step in steps:
        now += step
        assert clock.next_at is not None
        if now >= clock.next_at:
            stood_still += clock.pulse(now)
    assert clock.lost_ms >= stood_still
    assert clock.ago(duration + more, now) <= clock.ago(duration, now) <= now - duration
    assert clock.ago(duration, now) >= now - duration - clock.lost_ms
