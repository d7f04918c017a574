"""Heartbeats and session of a classic member.

Heartbeats are sent once per interval, one at a time. The interval counts from the sending: brokers
may delay the answer until there is news, and the next one then goes at once. A session without an
answered one is considered over: another broker may be the coordinator now. Source:
clients/consumer/internals/Heartbeat.java; KIP-62.
"""

from __future__ import annotations

from steelyard.groups.kafka.member.classic.states import ClassicMemberSettings


class Heartbeats:
    """The timers of a member, in ms since the epoch."""

    def __init__(self, settings: ClassicMemberSettings) -> None:
        self.beating: int | None = None
        """The turn of the unanswered heartbeat."""
        self._settings = settings
        self._beat_at = 0
        self._session_until = 0

    def alive(self, now: int) -> None:
        """Note a response of the coordinator to a JoinGroup or SyncGroup."""
        self.beaten(now)
        self._beat_at = now + self._settings.heartbeat_interval_ms

    def beaten(self, now: int) -> None:
        """Note a response of the coordinator to a heartbeat."""
        self._session_until = now + self._settings.session_timeout_ms

    def coordinator_found(self, now: int) -> None:
        """Allow the coordinator a session's time to respond.

        Source: AbstractCoordinator.FindCoordinatorResponseHandler: resetSessionTimeout.
        """
        self._session_until = now + self._settings.session_timeout_ms

    def session_is_over(self, now: int) -> bool:
        return now >= self._session_until

    def may_beat(self, now: int) -> bool:
        """Return whether a heartbeat is due."""
        return self.beating is None and now >= self._beat_at

    def beat(self, turn: int, now: int) -> None:
        """Note that a heartbeat is sent."""
        self.beating = turn
        self._beat_at = now + self._settings.heartbeat_interval_ms

    @property
    def due(self) -> int:
        """Return when something is due for a member that knows its coordinator."""
        if self.beating is not None:
            return self._session_until
        return min(self._session_until, self._beat_at)
