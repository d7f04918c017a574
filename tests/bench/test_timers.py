"""The bench of delayed messages at its smallest: nothing is early, and the figures are there."""

from __future__ import annotations

from bench.timers import run


def test_delayed_messages_come_in_time_while_others_wait() -> None:
    found = run(2_000, 300, 2)
    assert found["early"] == 0
    assert found["late_p50_ms"] < 5_000  # of a machine that does much else
    assert found["delayed_send_us"] > 0
