"""When a server that ended is started again, and when it is given up.

The first start follows after `first_seconds`; each further one after twice the pause before, up to
`longest_seconds`. A server that was ready for `steady_seconds` starts from the beginning: what ended it
then is not what ended it before. After `restarts_max` starts in a row that did not last, it is given up.
"""

from __future__ import annotations

from dataclasses import dataclass

RESTARTS_MAX = 10
"""With the pauses below: given up after a minute and a half of failed starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How often and how fast; see the module's text."""

    restarts_max: int = RESTARTS_MAX
    """0: a server that ended is never started again."""
    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    steady_seconds: float = 60.0


class Restarts:
    """The account of one server. `now`: seconds of a clock that never goes back."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._ready_at: float | None = None
        self.in_row = 0
        """Ends so far of which none came after a steady run."""

    def ready(self, now: float) -> None:
        """Clients can use the server."""
        self._ready_at = now

    def ended(self, now: float) -> float | None:
        """The server ended on its own, or did not start: seconds until the next start, None to give it up."""
        policy = self._policy
        if self._ready_at is not None and now - self._ready_at >= policy.steady_seconds:
            self.in_row = 0
        self._ready_at = None
        self.in_row += 1
        if self.in_row > policy.restarts_max:
            return None
        doublings = min(self.in_row - 1, 64)
        return min(policy.first_seconds * 2.0**doublings, policy.longest_seconds)
