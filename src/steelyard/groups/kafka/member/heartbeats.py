"""Liveness of a member: its heartbeats, session and polls.

Heartbeats are sent once per interval, one at a time. The interval counts from the sending: brokers
may delay the answer until there is news, and the next one then goes at once. A session without an
answered one is considered over: another broker may be the coordinator now. An application is silent
if `rebalance_timeout_ms` pass between the end of a poll and the beginning of the next; a waiting
poll is not silence. Source: clients/consumer/internals/Heartbeat.java; KIP-62.
"""

from __future__ import annotations

from steelyard.groups.kafka.member.states import Settings


class Heartbeats:
    """The timers of a member, in ms since the epoch."""

    def __init__(self, settings: Settings) -> None:
        self.silent = False
        """Whether the application fell silent and has not polled since."""
        self.beating: int | None = None
        """The turn of the unanswered heartbeat."""
        self._settings = settings
        self._beat_at = 0
        self._session_until = 0
        self._polling = False
        self._poll_until: int | None = None

    def alive(self, now: int) -> None:
        """Note a response of the coordinator to a JoinGroup or SyncGroup."""
        self.beaten(now)
        self._beat_at = now + self._settings.heartbeat_interval_ms

    def beaten(self, now: int) -> None:
        """Note a response of the coordinator to a heartbeat."""
        self._session_until = now + self._settings.session_timeout_ms
        if self._poll_until is None and not self._polling:
            self._poll_until = now + self._settings.rebalance_timeout_ms

    def coordinator_found(self, now: int) -> None:
        """Allow the coordinator a session's time to respond.

        Source: AbstractCoordinator.FindCoordinatorResponseHandler: resetSessionTimeout.
        """
        self._session_until = now + self._settings.session_timeout_ms

    def poll_began(self) -> None:
        self._polling, self.silent, self._poll_until = True, False, None

    def poll_ended(self, now: int) -> None:
        self._polling = False
        self._poll_until = now + self._settings.rebalance_timeout_ms

    def fell_silent(self, now: int) -> bool:
        """Return True once for each silence that has lasted too long."""
        if self._poll_until is None or now < self._poll_until:
            return False
        self._poll_until = None
        self.silent = True
        return True

    def session_is_over(self, now: int) -> bool:
        return now >= self._session_until

    def may_beat(self, now: int) -> bool:
        """Return whether a heartbeat is due."""
        return self.beating is None and now >= self._beat_at

    def beat(self, turn: int, now: int) -> None:
        """Note that a heartbeat is sent."""
        self.beating = turn
        self._beat_at = now + self._settings.heartbeat_interval_ms

    def due(self, *, beats: bool) -> int | None:
        """Return when something is due for a member; `beats`: it can send heartbeats."""
        times = [] if self._poll_until is None else [self._poll_until]
        if beats:
            times.append(self._session_until)
            if self.beating is None:
                times.append(self._beat_at)
        return min(times, default=None)
