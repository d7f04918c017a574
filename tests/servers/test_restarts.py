"""When a server is started again, and when it is given up."""

from __future__ import annotations

from steelyard.servers.restarts import RestartPolicy, Restarts


def test_pauses_double_up_to_the_longest() -> None:
    restarts = Restarts(RestartPolicy(restarts_max=9, first_seconds=1, longest_seconds=30))
    assert [restarts.ended(0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_server_that_never_lasts_is_given_up() -> None:
    restarts = Restarts(RestartPolicy(restarts_max=3, first_seconds=1, steady_seconds=60))
    for now in (0.0, 100.0, 200.0):
        restarts.ready(now)
        assert restarts.ended(now + 59.9) is not None
    restarts.ready(300)
    assert restarts.ended(359.9) is None
    assert restarts.in_row == 4


def test_a_steady_run_begins_the_account_anew() -> None:
    restarts = Restarts(RestartPolicy(restarts_max=2, first_seconds=1, steady_seconds=60))
    assert [restarts.ended(0), restarts.ended(0)] == [1, 2]
    restarts.ready(0)
    assert [restarts.ended(60), restarts.ended(60), restarts.ended(60)] == [1, 2, None]


def test_time_before_it_was_ready_does_not_count() -> None:
    """1 it ran for long, 2 it is started and takes long to fail: that is not a steady run."""
    restarts = Restarts(RestartPolicy(restarts_max=2, first_seconds=1, steady_seconds=60))
    restarts.ready(0)
    assert restarts.ended(1_000) == 1
    assert restarts.ended(2_000) == 2
    assert restarts.ended(3_000) is None


def test_none_means_none() -> None:
    assert Restarts(RestartPolicy(restarts_max=0)).ended(1_000) is None


def test_the_pause_stays_bounded_for_ever() -> None:
    restarts = Restarts(RestartPolicy(restarts_max=1_000_000))
    pauses = [restarts.ended(0) for _ in range(2_000)]
    assert pauses[0] == 0.2
    assert set(pauses[8:]) == {30.0}
