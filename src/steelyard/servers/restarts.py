"""The restarts of servers that ended: when to restart, and when to give up.

The first restart follows after `first_seconds`; each further one after twice the previous pause, up
to `longest_seconds`. Once a server was ready for `steady_seconds`, the count starts again: its end
then has a different cause. After `restarts_max` restarts in a row that did not last, it is given
up.
"""

from __future__ import annotations

from dataclasses import dataclass

RESTARTS_MAX = 10
"""Default number of restarts: with the default pauses it is reached after a minute and a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The restart policy; see the module docstring."""

    restarts_max: int = RESTARTS_MAX
    """Restarts in a row; 0: never restart."""
    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    steady_seconds: float = 60.0


class Restarts:
    """The restarts of one server. `now`: seconds of a monotonic clock."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._ready_at: float | None = None
        self.in_row = 0
        """Consecutive ends without a steady run."""

    def ready(self, now: float) -> None:
        """Note that clients can use the server."""
        self._ready_at = now

    def ended(self, now: float) -> float | None:
        """Note an end of the server; return the seconds until its restart, None to give up."""
        policy = self._policy
        if self._ready_at is not None and now - self._ready_at >= policy.steady_seconds:
            self.in_row = 0
        self._ready_at = None
        self.in_row += 1
        if self.in_row > policy.restarts_max:
            return None
        doublings = min(self.in_row - 1, 64)
        return min(policy.first_seconds * 2.0**doublings, policy.longest_seconds)
