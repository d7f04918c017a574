"""Faults of the disk: people hear of one in an interval."""

from __future__ import annotations

from steelyard.nodes.broker.faults import FAULT_INTERVAL_MS, REPEAT_MS, Faults
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine


def test_one_fault_is_told_in_an_interval() -> None:
    faults = Faults()
    effects: list[Effect] = []
    for now in (5, 5, 4 + FAULT_INTERVAL_MS, 5 + FAULT_INTERVAL_MS, 6 + FAULT_INTERVAL_MS):
        faults.tell(f"at {now}", now, effects)
    assert effects == [LogLine("ERROR", "at 5"), LogLine("ERROR", f"at {5 + FAULT_INTERVAL_MS}")]


def test_the_same_fault_is_told_again_after_a_while() -> None:
    """A full disk is met every second; what else goes wrong meanwhile is told."""
    faults = Faults()
    told = []
    for now in range(0, 2 * REPEAT_MS + 1, FAULT_INTERVAL_MS // 2):
        effects: list[Effect] = []
        faults.tell("other" if now == 5 * FAULT_INTERVAL_MS else "full", now, effects)
        told += [(now, effect.text) for effect in effects if isinstance(effect, LogLine)]
    assert told == [
        (0, "full"),
        (5 * FAULT_INTERVAL_MS, "other"),
        (REPEAT_MS, "full"),
        (2 * REPEAT_MS, "full"),
    ]
    assert len(faults._again_at) <= 2
