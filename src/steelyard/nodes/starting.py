"""A client's first contact with its servers: who waits for it, what is in the way, and when people hear of it.

- `Begin` is answered once the servers have answered and take what the configuration wants, with the error where they
  reject it, and with ConnectError when its time is over. Without a time it is answered with None at the first failure,
  or after SILENCE_MS: the client goes on trying by itself.
- Servers that are silent are told of after SILENCE_MS, and every COMPLAINT_MS while they are. What fails otherwise is told by
  whoever asked (`Troubles`).
- Until the servers were reached, or the client stops, `due` says when to ask them again.
"""

from __future__ import annotations

import msgspec

from steelyard.errors import ConnectError, SteelyardError
from steelyard.nodes.seam import Address, Answer, Call, Effect, SetTimer
from steelyard.types import LogLine

START_TIMER = "start"

SILENCE_MS = 900
"""People hear within a second of servers that do not answer."""

AGAIN_MS = 200
"""When servers that may be about to know better are asked again."""

COMPLAINT_MS = 30_000
"""How often people hear of a server that goes on failing."""


class Begin(Call[None], frozen=True):
    """Call: wait for the first contact. Answer: None, or an exception; see the module's text."""

    timeout_ms: int | None = None


class Starting:
    """See the module's text. `servers`: whom to reach, in words."""

    def __init__(self, servers: str) -> None:
        self.open = False
        """It was asked for, and the servers have not been reached."""
        self._servers = servers
        self._call: int | None = None
        self._timed = False
        self._until = 0
        """When the call is answered at the latest."""
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
        """Something is in the way; it was told already."""
        self._trouble = error
        if not self._timed:
            self._answer(None, effects)

    def doubted(self, error: SteelyardError, now: int, effects: list[Effect]) -> None:
        """The servers do not take what the client wants, but may be about to: they are asked again soon."""
        self._trouble = error
        effects.append(self._timer(now, AGAIN_MS))

    def reached(self, effects: list[Effect]) -> None:
        self.open = False
        self._answer(None, effects)

    def rejected(self, error: SteelyardError, effects: list[Effect]) -> bool:
        """The servers do not take what the client wants. False: the call was answered before, so nobody was told."""
        self.open = False
        return self._answer(error, effects)

    def due(self, now: int, effects: list[Effect]) -> None:
        """The timer: ask the servers again where this is still `open`."""
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
    """Of a server that fails: when people are told again, and how often it failed since they were."""

    tell_at: int
    failures: int = 0


class Troubles:
    """Servers that fail: people are told when one begins to, every COMPLAINT_MS while it does, and when it answers again."""

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
