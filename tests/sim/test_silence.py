"""The rule that nobody is expelled because its broker did not run."""

from __future__ import annotations

import pytest
from tests.sim.planted import run

from steelyard.session_clock import PULSE_MS, SessionClock
from steelyard.sim.scenario import Fault, Scenario
from steelyard.sim.silence import paused_ms

SUSPENDED = Scenario(
    seed=3,
    members=1,
    kafka_members=2,
    kafka_session_timeout_ms=6_000,
    messages=30,
    settle_ms=60_000,
    faults=(Fault(kind="suspend", target="broker-a", at_ms=12_000, for_ms=20_000),),
)


def test_a_broker_that_blames_its_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(SUSPENDED).failure is None

    def pulse(self: SessionClock, now: int) -> int:
        self.next_at = now + PULSE_MS
        return 0

    monkeypatch.setattr(SessionClock, "pulse", pulse)
    failure = run(SUSPENDED).failure
    assert failure is not None
    assert "is expelled by broker-a, which ran for only" in failure


def test_pauses_that_overlap_count_once() -> None:
    pauses = [(10_000, 20_000), (15_000, 25_000), (40_000, 41_000), (50_000, 60_000)]
    assert paused_ms(pauses, 12_000, 55_000) == 13_000 + 5_000
    assert paused_ms(pauses, 26_000, 49_000) == 0
