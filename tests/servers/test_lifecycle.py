"""When a server is started again, and when it is given up."""

from __future__ import annotations

import math

import pytest
from tests.edges import assert_every_edge

from steelyard.servers.lifecycle import (
    SERVERS,
    SLOW_START_SECONDS,
    Lifecycle,
    RestartPolicy,
    ServerState,
)


def ready_server(policy: RestartPolicy, now: float) -> Lifecycle:
    life = Lifecycle(policy)
    run(life, now)
    return life


def run(life: Lifecycle, now: float) -> None:
    """Start it; it is ready at once."""
    life.started(now)
    life.reported(now)


# -- restarts --------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest() -> None:
    life = Lifecycle(RestartPolicy(restarts_max=9, first_seconds=1, longest_seconds=30))
    assert [life.failed(0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_server_that_never_lasts_is_given_up() -> None:
    life = Lifecycle(RestartPolicy(restarts_max=3, first_seconds=1, steady_seconds=60))
    for now in (0.0, 100.0, 200.0):
        run(life, now)
        assert life.failed(now + 59.9) is not None
    run(life, 300)
    assert life.failed(359.9) is None
    assert (life.in_row, life.state, life.due_at) == (4, ServerState.GIVEN_UP, math.inf)


def test_a_steady_run_begins_the_account_anew() -> None:
    life = Lifecycle(RestartPolicy(restarts_max=2, first_seconds=1, steady_seconds=60))
    assert [life.failed(0), life.failed(0)] == [1, 2]
    run(life, 0)
    assert [life.failed(60), life.failed(60), life.failed(60)] == [1, 2, None]


def test_time_before_it_was_ready_does_not_count() -> None:
    """1 it ran for long, 2 it is started and takes long to fail: that is not a steady run."""
    life = ready_server(RestartPolicy(restarts_max=2, first_seconds=1, steady_seconds=60), 0)
    assert life.failed(1_000) == 1
    life.started(1_001)
    assert life.failed(2_000) == 2
    life.started(2_002)
    assert life.failed(3_000) is None


def test_none_means_none() -> None:
    assert Lifecycle(RestartPolicy(restarts_max=0)).failed(1_000) is None


def test_the_pause_stays_bounded_for_ever() -> None:
    life = Lifecycle(RestartPolicy(restarts_max=1_000_000))
    pauses = [life.failed(0) for _ in range(2_000)]
    assert pauses[0] == 0.2
    assert set(pauses[8:]) == {30.0}


# -- states ----------------------------------------------------------------------------------------


def life_with_a_slow_start() -> None:
    life = Lifecycle(RestartPolicy(first_seconds=1))
    assert (life.state, life.due_at) == (ServerState.WAITING, math.inf)
    life.started(0)
    assert (life.state, life.due_at) == (ServerState.STARTING, SLOW_START_SECONDS)
    life.overdue()
    assert (life.state, life.due_at) == (ServerState.SLOW, math.inf)
    assert life.awaits_report
    life.reported(31)
    assert (life.state, life.due_at) == (ServerState.READY, math.inf)
    assert not life.awaits_report
    assert life.failed(32) == 1
    assert (life.state, life.due_at) == (ServerState.WAITING, 33)
    assert life.failed(33) == 2
    assert (life.state, life.due_at) == (ServerState.WAITING, 35)
    run(life, 35)


def in_each_state(restarts_max: int) -> list[Lifecycle]:
    """A server in each state in which it can fail."""
    waiting, starting, slow, ready = (
        Lifecycle(RestartPolicy(restarts_max=restarts_max)) for _ in range(4)
    )
    starting.started(0)
    slow.started(0)
    slow.overdue()
    run(ready, 0)
    return [waiting, starting, slow, ready]


def fails_in_each_state() -> None:
    for restarts_max, state in ((0, ServerState.GIVEN_UP), (1, ServerState.WAITING)):
        for life in in_each_state(restarts_max):
            life.failed(1)
            assert life.state is state


def stops_in_each_state() -> None:
    """Whatever it was waiting for, nothing is due any more."""
    given_up = Lifecycle(RestartPolicy(restarts_max=0))
    given_up.failed(0)
    for life in (*in_each_state(1), given_up):
        life.stopped()
        assert (life.state, life.due_at) == (ServerState.STOPPING, math.inf)
        assert not life.awaits_report


def test_every_edge_is_taken() -> None:
    assert_every_edge(SERVERS, life_with_a_slow_start, fails_in_each_state, stops_in_each_state)


def test_what_cannot_happen_is_a_bug() -> None:
    life = ready_server(RestartPolicy(), 0)
    with pytest.raises(AssertionError, match="STARTED in ready"):
        life.started(1)
    with pytest.raises(AssertionError, match="OVERDUE in ready"):
        life.overdue()
    with pytest.raises(AssertionError, match="REPORTED in ready"):
        life.reported(1)
    life.stopped()
    with pytest.raises(AssertionError, match="FAILED in stopping"):
        life.failed(1)
