"""How long peers were silent, without the time in which nobody could have heard them.

A process that was stopped (SIGSTOP, a suspended or overloaded machine) continues with every session
over, although what its peers sent meanwhile waits in its sockets. So a node has a timer, the pulse,
every `PULSE_MS`, and measures sessions by this clock: if the pulse comes more than
`STOOD_STILL_MS` late, the node did not run, and sessions do not count that time. Nor do they count
the following `READING_MS`, in which the node reads what waits.

Only durations are measured so; all time stamps are true. A system clock that was set forward looks
like a process that was stopped, and ends no session, either.
"""

from __future__ import annotations

from collections import deque

PULSE_MS = 1_000
"""Interval of the pulse."""

STOOD_STILL_MS = 1_500
"""How late the pulse may be. Together with `PULSE_MS` it is less than half of the shortest session
(6 s), in which members send three heartbeats.
"""

READING_MS = 2_000
"""Time to read what waits, in which no session ends."""

STOPS_MAX = 1_000
"""Most stops that are remembered; time that was lost in earlier ones counts again."""


class SessionClock:
    """The clock of one node. Call `pulse` when it is `next_at`, before anything else is done."""

    def __init__(self) -> None:
        self.next_at: int | None = None
        """When the next pulse is due; None before the first one."""
        self.lost_ms = 0
        """All time so far that does not count, in ms."""
        self._stops: deque[tuple[int, int]] = deque(maxlen=STOPS_MAX)
        """From when until when time does not count, in order."""

    def pulse(self, now: int) -> int:
        """Set the next pulse; return for how many ms the node had stood still, usually 0."""
        due_at, self.next_at = self.next_at, now + PULSE_MS
        if due_at is None or now - due_at <= STOOD_STILL_MS:
            return 0
        begin = max(due_at, self._stops[-1][1]) if self._stops else due_at
        until = max(begin, now + READING_MS)
        self._stops.append((begin, until))
        self.lost_ms += until - begin
        return now - due_at

    def ago(self, duration_ms: int, now: int) -> int:
        """Return the time since which `duration_ms` have passed that count.

        A peer with a time-out of `duration_ms` has been silent for too long if it was last heard
        before that.
        """
        at = now
        for begin, until in reversed(self._stops):
            counted_ms = max(0, at - until)
            if duration_ms < counted_ms:
                break
            duration_ms -= counted_ms
            at = min(at, begin)
        return at - duration_ms
