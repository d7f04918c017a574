"""An administrator: sends single requests to any address and returns the replies to the caller.

The node keeps links open between calls. It responds to nothing: requests from peers are dropped,
because an administrator belongs to no group.
"""

from __future__ import annotations

from steelyard.config import ClientConfig
from steelyard.errors import ClosedError, RemotingError
from steelyard.nodes.calls.remoting import CALLS_TIMER, Calls, Outcome
from steelyard.nodes.seam import (
    Address,
    Answer,
    Asked,
    Call,
    Closed,
    Due,
    Effect,
    Event,
    Opened,
    Received,
    Refused,
)
from steelyard.wire.remoting.acl import signer_of
from steelyard.wire.remoting.command import Command, is_response


class Invoke(Call[Command], frozen=True):
    """Send `command` to `address`.

    The answer is the response, whatever its code, or a RemotingError.
    """

    address: Address
    command: Command
    timeout_ms: int


class AdminNode:
    """Implements the module's protocol.

    The purpose of a call is the number of the `Asked` it answers.
    """

    def __init__(self, config: ClientConfig | None = None) -> None:
        self._calls: Calls[int] = Calls(signer=signer_of(config or ClientConfig()))

    def start(self, now: int) -> list[Effect]:
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Asked(call_id=call_id, call=Invoke() as invoke):
                self._invoke(call_id, invoke, now, effects)
            case Asked(call_id=call_id):
                effects.append(Answer(call_id, ClosedError("an admin node takes only Invoke")))
            case Received(link=link, message=Command() as command) if is_response(command):
                outcome = self._calls.replied(link, command)
                if outcome is not None:
                    _answers([outcome], effects)
            case Opened(dialed=True):
                self._calls.opened(event, effects)
            case Refused():
                _answers(self._calls.refused(event), effects)
            case Closed():
                _answers(self._calls.closed(event), effects)
            case Due(key=key) if key == CALLS_TIMER:
                _answers(self._calls.expire(now, effects), effects)
            case _:
                pass
        return effects

    def _invoke(self, call_id: int, invoke: Invoke, now: int, effects: list[Effect]) -> None:
        try:
            self._calls.call(
                invoke.address, invoke.command, call_id, now, invoke.timeout_ms, effects
            )
        except RemotingError as error:
            effects.append(Answer(call_id, error))

    def check(self) -> None:
        self._calls.check()


def _answers(outcomes: list[Outcome[int]], effects: list[Effect]) -> None:
    effects += [Answer(outcome.purpose, outcome.reply) for outcome in outcomes]
