"""A client's first contact with its servers: who waits for it, and when failures are logged.

- `Begin` is answered once the servers have responded and accept the configuration, with the error
  if they reject it, and with ConnectError when its time is over. Without a time limit it is
  answered with None at the first failure, or after SILENCE_MS: the client keeps trying by itself.
- Servers that do not respond are logged after SILENCE_MS, and every COMPLAINT_MS while they are
  silent. Other failures are logged by the part that made the request (`Troubles`).
- Until the servers have been reached, or the client stops, `due` tells when to try them again.
"""

from __future__ import annotations

import msgspec

from steelyard.errors import ConnectError, SteelyardError
from steelyard.nodes.seam import Address, Answer, Call, Effect, SetTimer
from steelyard.types import LogLine

START_TIMER = "start"

SILENCE_MS = 900
"""Delay after which servers that do not respond are logged: less than a second."""

AGAIN_MS = 200
"""Delay before trying servers again whose answer may be about to change."""

COMPLAINT_MS = 30_000
"""Interval between log lines about a server that keeps failing."""


class Begin(Call[None], frozen=True):
    """Call: wait for the first contact. Answer: None, or an exception; see the module."""

    timeout_ms: int | None = None


class Starting:
    """The first contact. `servers`: a description of the servers to reach."""

    def __init__(self, servers: str) -> None:
        self.open = False
        """Whether contact was requested and the servers have not been reached."""
        self._servers = servers
        self._call: int | None = None
        self._timed = False
        self._until = 0
        """The deadline for answering the call."""
        self._trouble: SteelyardError | None = None
        self._tell_at = 0

    def asked(self, call_id: int, call: Begin, now: int, effects: list[Effect]) -> None:
        self.open = True
        self._call = call_id
        self._timed = call.timeout_ms is not None
        self._until = now + (SILENCE_MS if call.timeout_ms is None else call.timeout_ms)
        self._tell_at = now + SILENCE_MS
        effects.append(self._timer(now, SILENCE_MS))

    def _timer(self, now: int, wait_ms: int) -> SetTimer:
        at = now + wait_ms
        if self._call is not None:
            at = min(at, self._until)
        return SetTimer(START_TIMER, max(at, now + 1))

    def failed(self, error: SteelyardError, effects: list[Effect]) -> None:
        """Note a failure that was already logged."""
        self._trouble = error
        if not self._timed:
            self._answer(None, effects)

    def doubted(self, error: SteelyardError, now: int, effects: list[Effect]) -> None:
        """Note a rejection of the configuration that may end soon: the servers are tried again."""
        self._trouble = error
        effects.append(self._timer(now, AGAIN_MS))

    def reached(self, effects: list[Effect]) -> None:
        self.open = False
        self._answer(None, effects)

    def rejected(self, error: SteelyardError, effects: list[Effect]) -> bool:
        """Note that the servers reject the configuration.

        False: the call was answered before, so nobody knows.
        """
        self.open = False
        return self._answer(error, effects)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Handle the timer: try the servers again while this is `open`."""
        if not self.open:
            return
        if self._trouble is None and now >= self._tell_at:
            self._tell_at = now + COMPLAINT_MS
            effects.append(LogLine("WARNING", f"no answer from {self._servers} yet; trying again"))
        if now >= self._until:
            self._answer(self._late() if self._timed else None, effects)
        effects.append(self._timer(now, COMPLAINT_MS if self._call is None else SILENCE_MS))

    def _late(self) -> ConnectError:
        why = self._trouble or "no answer"
        error = ConnectError(f"not connected to {self._servers} within the time-out: {why}")
        error.__cause__ = self._trouble
        return error

    def _answer(self, result: object, effects: list[Effect]) -> bool:
        call, self._call = self._call, None
        if call is not None:
            effects.append(Answer(call, result))
        return call is not None


class _Trouble(msgspec.Struct):
    """State of a failing server: when to log again, and the failures since the last time."""

    tell_at: int
    failures: int = 0


class Troubles:
    """Failing servers: logs first failures, one more every COMPLAINT_MS, and recoveries."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._of: dict[Address, _Trouble] = {}

    def ill(self, server: Address, complaint: str, now: int, effects: list[Effect]) -> None:
        trouble = self._of.get(server)
        if trouble is None:
            self._of[server] = _Trouble(now + COMPLAINT_MS)
            effects.append(LogLine("WARNING", complaint))
            return
        trouble.failures += 1
        if now >= trouble.tell_at:
            trouble.tell_at = now + COMPLAINT_MS
            failures, trouble.failures = trouble.failures, 0
            text = f"{complaint}; it failed {failures} times since the last warning"
            effects.append(LogLine("WARNING", text))

    def well(self, server: Address, effects: list[Effect]) -> None:
        if self._of.pop(server, None) is not None:
            effects.append(LogLine("INFO", f"{self._noun} {server} answers again"))
