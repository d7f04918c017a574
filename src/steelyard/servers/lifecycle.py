"""The lifecycle of a supervised server: when to start it, restart it, and give up.

- WAITING: there is no process yet, or one is started again at `due_at`.
- STARTING: its process has not reported its addresses yet.
- SLOW: nor has it after `SLOW_START_SECONDS`, which is mentioned once.
- READY: clients can use it.
- GIVEN_UP: it ended too often in a row and stays down.
- STOPPING: the supervisor ends; the server is not started any more.

The first restart follows after `first_seconds`; each further one after twice the previous pause, up
to `longest_seconds`. Once a server was ready for `steady_seconds`, the count starts again: its end
then has a different cause. After `restarts_max` restarts in a row that did not last, it is given
up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from steelyard.machine import Machine

RESTARTS_MAX = 10
"""Default number of restarts: with the default pauses it is reached after a minute and a half."""

SLOW_START_SECONDS = 30.0
"""Start-up time after which a start is slow: recovery of a large log takes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The restart policy; see the module docstring."""

    restarts_max: int = RESTARTS_MAX
    """Restarts in a row; 0: never restart."""
    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    steady_seconds: float = 60.0


class ServerState(StrEnum):
    WAITING = "waiting to be started"
    STARTING = "starting"
    SLOW = "starting for long"
    READY = "ready"
    GIVEN_UP = "given up"
    STOPPING = "stopping"


class ServerEvent(StrEnum):
    ADDED = "added"
    STARTED = "its process is started"
    OVERDUE = "not ready in time"
    REPORTED = "its addresses are reported"
    FAILED = "ended, or cannot be started"
    STOPPED = "the supervisor stops"


_FAILED = {
    ServerEvent.FAILED: (ServerState.WAITING, ServerState.GIVEN_UP),
    ServerEvent.STOPPED: (ServerState.STOPPING,),
}

SERVERS: Machine[ServerState, ServerEvent] = Machine(
    "Server under `steelyard up`",
    {
        None: {ServerEvent.ADDED: (ServerState.WAITING,)},
        ServerState.WAITING: {ServerEvent.STARTED: (ServerState.STARTING,), **_FAILED},
        ServerState.STARTING: {
            ServerEvent.REPORTED: (ServerState.READY,),
            ServerEvent.OVERDUE: (ServerState.SLOW,),
            **_FAILED,
        },
        ServerState.SLOW: {ServerEvent.REPORTED: (ServerState.READY,), **_FAILED},
        ServerState.READY: _FAILED,
        ServerState.GIVEN_UP: {ServerEvent.STOPPED: (ServerState.STOPPING,)},
        ServerState.STOPPING: {},
    },
)


class Lifecycle:
    """The state of one server. `now`: seconds of a monotonic clock."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._ready_at = 0.0
        self.state = SERVERS.move(None, ServerEvent.ADDED)
        self.due_at = math.inf
        """When to restart it (WAITING), or to call its start slow (STARTING); else never."""
        self.in_row = 0
        """Consecutive ends without a steady run."""

    def started(self, now: float) -> None:
        self._move(ServerEvent.STARTED, now + SLOW_START_SECONDS)

    def overdue(self) -> None:
        self._move(ServerEvent.OVERDUE)

    @property
    def awaits_report(self) -> bool:
        return SERVERS.can(self.state, ServerEvent.REPORTED)

    def reported(self, now: float) -> None:
        self._move(ServerEvent.REPORTED)
        self._ready_at = now

    def failed(self, now: float) -> float | None:
        """Note an end of the server; return the seconds until its restart, None to give up."""
        policy = self._policy
        if self.state is ServerState.READY and now - self._ready_at >= policy.steady_seconds:
            self.in_row = 0
        self.in_row += 1
        if self.in_row > policy.restarts_max:
            self._move(ServerEvent.FAILED, to=ServerState.GIVEN_UP)
            return None
        doublings = min(self.in_row - 1, 64)
        pause = min(policy.first_seconds * 2.0**doublings, policy.longest_seconds)
        self._move(ServerEvent.FAILED, now + pause, ServerState.WAITING)
        return pause

    def stopped(self) -> None:
        self._move(ServerEvent.STOPPED)

    def _move(
        self, event: ServerEvent, due_at: float = math.inf, to: ServerState | None = None
    ) -> None:
        self.state = SERVERS.move(self.state, event, to)
        self.due_at = due_at
