"""Has a handler answer a request whose answer is changed before the client gets it."""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from steelyard.nodes.broker.kafka.requests.channel import Handler, OpenRequest
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.schema import ApiMessage

Complete = Callable[[ApiMessage], ApiMessage]
"""The handler's answer -> the client's. Called once, when the answer is there."""


class _CompletedCall(OpenRequest):
    """What a handler sees of a request whose answer is completed."""

    __slots__ = ("_call", "_complete")

    def __init__(self, call: OpenRequest, message: ApiMessage, complete: Complete) -> None:
        request = msgspec.structs.replace(call.request, message=message)
        super().__init__(call._channel, call._slot, call.peer, request)
        self._call = call
        self._complete = complete

    def answer(self, message: ApiMessage, effects: list[Effect]) -> None:
        self._call.answer(self._complete(message), effects)

    def answer_in_turns(self, message: ApiMessage, now: int, effects: list[Effect]) -> None:
        self._call.answer_in_turns(self._complete(message), now, effects)

    def no_reply(self, effects: list[Effect]) -> None:
        self._call.no_reply(effects)


def completed(
    handler: Handler,
    call: OpenRequest,
    message: ApiMessage,
    complete: Complete,
    now: int,
    effects: list[Effect],
) -> ApiMessage | Steps[ApiMessage] | None:
    """Have `handler` answer `message` in place of the request, and complete what it answers."""
    answer = handler(_CompletedCall(call, message, complete), now, effects)
    if isinstance(answer, Generator):
        return _steps(answer, complete)
    return None if answer is None else complete(answer)


def _steps(steps: Steps[ApiMessage], complete: Complete) -> Steps[ApiMessage]:
    return complete((yield from steps))
