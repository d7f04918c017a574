"""Faults of the disk: people hear of one in an interval."""

from __future__ import annotations

from steelyard.nodes.broker.faults import FAULT_INTERVAL_MS, Faults
from steelyard.nodes.seam import Effect, Tell


def test_one_fault_is_told_in_an_interval() -> None:
    faults = Faults()
    effects: list[Effect] = []
    for now in (5, 5, 4 + FAULT_INTERVAL_MS, 5 + FAULT_INTERVAL_MS, 6 + FAULT_INTERVAL_MS):
        faults.tell(f"at {now}", now, effects)
    assert effects == [Tell("ERROR", "at 5"), Tell("ERROR", f"at {5 + FAULT_INTERVAL_MS}")]
