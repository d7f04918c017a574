"""The pulse of a server's node, by which it notices that it did not run: see `session_clock`."""

from __future__ import annotations

from steelyard.nodes.seam import Effect, SetTimer
from steelyard.session_clock import SessionClock
from steelyard.types import LogLine

PULSE_TIMER = "pulse"


class Pulse:
    """The node's clock for sessions, kept going.

    Call `beat` with every event before it is handled. Nothing else need be done when `PULSE_TIMER`
    is due.
    """

    def __init__(self) -> None:
        self.clock = SessionClock()
        self.stood_still_ms = 0
        """For how long the node has stood still since it started."""

    def beat(self, now: int, effects: list[Effect]) -> None:
        """Note that the node runs, and log it if it had stood still."""
        clock = self.clock
        if clock.next_at is not None and now < clock.next_at:
            return
        stopped_ms = clock.pulse(now)
        assert clock.next_at is not None
        effects.append(SetTimer(PULSE_TIMER, clock.next_at))
        if stopped_ms:
            self.stood_still_ms += stopped_ms
            text = (
                f"stood still for {stopped_ms / 1000:.1f} s: the process was stopped, got no"
                " processor time, or the system's clock was set forward. Nothing was answered"
                " meanwhile; no session ends for it. Look for a suspended or overloaded machine,"
                " swapping or a hanging disk"
            )
            effects.append(LogLine("WARNING", text))
