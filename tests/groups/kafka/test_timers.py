"""Timers: against the simplest thing that could do the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from steelyard.groups.kafka.timers import Key, Timers
from steelyard.session_clock import SessionClock

KEYS: list[Key] = [("g", "session", name) for name in "abc"]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 20)),
        st.tuples(st.just("drop"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("wait"), st.just(KEYS[0]), st.integers(0, 8)),
    ),
    max_size=40,
)


@given(STEPS)
def test_timers_fall_due_when_they_were_set_for(steps: list[tuple[str, Key, int]]) -> None:
    timers = Timers()
    model: dict[Key, int] = {}
    now = 0
    for what, key, amount in steps:
        if what == "set":
            timers.set(key, now + amount)
            model[key] = now + amount
        elif what == "drop":
            timers.drop(key)
            model.pop(key, None)
        else:
            now += amount
            expected = sorted((at, key) for key, at in model.items() if at <= now)
            assert list(timers.due(now)) == [key for _, key in expected]
            model = {key: at for key, at in model.items() if at > now}
        timers.check()
        assert len(timers) == len(model)
        assert all(timers.at(key) == at for key, at in model.items())
        if model:
            assert timers.next_at is not None
            assert timers.next_at <= min(model.values())


def test_what_is_done_for_one_counts_for_those_that_follow() -> None:
    """The first member's end begins a new phase, in which the second one has time again."""
    timers = Timers()
    for key in KEYS:
        timers.set(key, 10)
    fallen = []
    for key in timers.due(10):
        fallen.append(key)
        if key == KEYS[0]:
            timers.set(KEYS[1], 11)
            timers.drop(KEYS[2])
    assert fallen == [KEYS[0]]
    assert list(timers.due(11)) == [KEYS[1]]
    assert timers.next_at is None


def test_a_session_that_goes_on_has_one_place() -> None:
    timers = Timers()
    for now in range(10_000):
        timers.set(KEYS[0], now + 1_000)
        list(timers.due(now))
    assert len(timers._heap) == 1


def test_all_timers_are_later_by_the_time_that_the_coordinator_stood_still() -> None:
    clock = SessionClock()
    clock.pulse(0)
    timers = Timers(clock)
    timers.set(KEYS[0], 6_000)
    clock.pulse(60_000)
    timers.set(KEYS[1], 66_000)
    assert not list(timers.due(60_000))
    assert (timers.at(KEYS[0]), timers.next_at) == (6_000 + clock.lost_ms, 66_000)
    timers.check()
    assert list(timers.due(66_000)) == [KEYS[1]]
    assert list(timers.due(6_000 + clock.lost_ms)) == [KEYS[0]]
