"""The application's polls: one that stops polling must not keep its partitions.

It is silent if `max_poll_interval_ms` pass between the end of a poll and the beginning of the next;
a waiting poll is not silence. Source: clients/consumer/internals/Heartbeat.java,
AbstractHeartbeatRequestManager.java (pollTimer); KIP-62.
"""

from __future__ import annotations


class Polls:
    """When the application polled, in ms since the epoch."""

    def __init__(self, interval_max_ms: int) -> None:
        self.silent = False
        """Whether the application fell silent and has not polled since."""
        self._interval_max_ms = interval_max_ms
        self._polling = False
        self.until: int | None = None
        """When the next poll must have begun, if it must."""

    def watch(self, now: int) -> None:
        """Expect a poll from now on, if none is expected yet: the member is in its group."""
        if self.until is None and not self._polling:
            self.until = now + self._interval_max_ms

    def began(self) -> None:
        self._polling, self.silent, self.until = True, False, None

    def ended(self, now: int) -> None:
        self._polling = False
        self.until = now + self._interval_max_ms

    def fell_silent(self, now: int) -> bool:
        """Return True once for each silence that has lasted too long."""
        if self.until is None or now < self.until:
            return False
        self.until = None
        self.silent = True
        return True
