"""The user's functions given to a client, and the conversion of their results for a node.

A function may be a plain one or return an awaitable (`async def`): `call` returns its result, which
the caller (`workers`) awaits before it calls `verdict`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from steelyard.client.serialization import BodyDeserializer
from steelyard.client.settings import Verdict as ListenerVerdict
from steelyard.client.settings import verdict
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError, DeserializationError
from steelyard.nodes.consumer.remoting.contract import (
    Assigned,
    ConsumeBatch,
    ConsumeDirectly,
    DescribeThreads,
    Lost,
    QueuesChanged,
    Revoked,
)
from steelyard.nodes.seam import Verdict
from steelyard.types import ConsumeStatus, MessageQueue
from steelyard.wire.remoting.message import Body, MessageView

Hook = Callable[[tuple[MessageQueue, ...]], object]
"""Called with queues that are assigned, revoked or lost."""

ChangeHook = Callable[[str, tuple[MessageQueue, ...], tuple[MessageQueue, ...]], object]
"""Called with a topic, all its queues, and those of them assigned to this member."""


MessageListener = Callable[[MessageView[Body]], ListenerVerdict | Awaitable[ListenerVerdict]]
BatchListener = Callable[
    [Sequence[MessageView[Body]]], ListenerVerdict | Awaitable[ListenerVerdict]
]


class Application(Protocol):
    """The receiver of a node's deliveries."""

    def call(self, handed: object) -> object:
        """Call the function for this delivery; its exceptions propagate."""

    def verdict(self, handed: object, returned: object) -> Verdict:
        """Return the verdict for what `call` returned."""

    def failure(self, handed: object, error: BaseException) -> Verdict:
        """Return the verdict for an exception of `call` or its awaitable.

        The exception is logged.
        """

    def abandoned(self, handed: object) -> None:
        """The function was cancelled because the client is closed; there is no verdict."""


class Functions(msgspec.Struct, frozen=True):
    """The user's functions: at most one listener.

    For a pulling consumer only `on_queues_changed`.
    """

    listener: Callable[..., object] | None = None
    batch_listener: Callable[..., object] | None = None
    on_assigned: Hook | None = None
    on_revoked: Hook | None = None
    on_lost: Hook | None = None
    on_queues_changed: ChangeHook | None = None


def check_functions(functions: Functions) -> None:
    """Raise ConfigError unless each of them is a function."""
    for name in Functions.__struct_fields__:
        function = getattr(functions, name)
        if function is not None and not callable(function):
            raise ConfigError(f"{name} is {function!r}; it must be a function")


BESIDE_LISTENERS = (Assigned, Revoked, Lost, DescribeThreads)
"""Deliveries that do not wait until a listener has ended.

The other members wait for the answer to `Revoked`, and listeners that hang are the reason why an
operator asks what the threads are doing.
"""


class ConsumerApplication:
    """The application of a RocketMQ consumer."""

    def __init__(
        self,
        functions: Functions,
        *,
        orderly: bool,
        deserializer: BodyDeserializer[Any] | None = None,
    ) -> None:
        self._functions = functions
        self._listen = functions.batch_listener or _one_by_one(functions.listener)
        self._orderly = orderly
        self._content = verdict(True, orderly=orderly)
        self._later = verdict(False, orderly=orderly)
        self._log = logger("steelyard.consumer")
        self._deserializer = deserializer
        self._refused: dict[int, tuple[bool, ...]] = {}
        """Which messages of a batch the deserializer refused, by the identity of the delivery."""

    def call(self, handed: object) -> object:
        if type(handed) is ConsumeBatch:  # first and cheap: nearly always the case
            if self._deserializer is None:
                return self._listen(handed.messages)
            return self._listen(self._deserialized(handed, self._deserializer))
        functions = self._functions
        match handed:
            case ConsumeDirectly(message=message):
                if self._deserializer is not None:
                    self._deserializer.fill(message)
                return self._listen((message,))
            case Assigned(queues=queues):
                return functions.on_assigned and functions.on_assigned(queues)
            case Revoked(queues=queues):
                return functions.on_revoked and functions.on_revoked(queues)
            case Lost(queues=queues):
                return functions.on_lost and functions.on_lost(queues)
            case QueuesChanged(topic=topic, all=every, mine=mine):
                hook = functions.on_queues_changed
                return hook and hook(topic, every, mine)
            case DescribeThreads():
                return describe_threads()
            case _:
                raise AssertionError(f"a consumer's application cannot take {handed!r}")

    def _deserialized(
        self, handed: ConsumeBatch, deserializer: BodyDeserializer[Any]
    ) -> Sequence[MessageView[Any]]:
        """Return the messages with their values.

        What cannot be deserialized is delivered again alone, not with the whole batch; of an
        orderly one, whose order that would break, with it. Raises DeserializationError.
        """
        errors: list[DeserializationError | None] = []
        for message in handed.messages:
            try:
                deserializer.fill(message)
                errors.append(None)
            except DeserializationError as error:
                errors.append(error)
        failed = [error for error in errors if error is not None]
        if not failed:
            return handed.messages
        if self._orderly or len(failed) == len(errors):
            for other in failed[1:]:
                self._log.warning("%s", other)
            raise failed[0]
        for each in failed:
            self._log.warning("%s", each)
        self._refused[id(handed)] = tuple(error is not None for error in errors)
        return [
            message for message, error in zip(handed.messages, errors, strict=True) if error is None
        ]

    def _whole(self, handed: object, status: Verdict) -> Verdict:
        """Return the status of a listener, for each message if it was not given all of them."""
        refused = self._refused.pop(id(handed), None) if self._refused else None
        if refused is None or not isinstance(status, ConsumeStatus):
            return status
        return tuple(ConsumeStatus.RECONSUME_LATER if each else status for each in refused)

    def verdict(self, handed: object, returned: object) -> Verdict:
        if type(handed) is ConsumeBatch or type(handed) is ConsumeDirectly:
            content = returned is None or returned is True
            status = self._content if content else verdict(returned, orderly=self._orderly)
            return self._whole(handed, status)
        return str(returned) if isinstance(handed, DescribeThreads) else None

    def failure(self, handed: object, error: BaseException) -> Verdict:
        self._refused.pop(id(handed), None)
        match handed:
            case ConsumeBatch() if isinstance(error, DeserializationError):
                self._log.warning("%s", error)
                return self._later
            case ConsumeBatch(queue=queue):
                did = "was cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
                text = "the listener %s on %s; the message will be delivered again"
                self._log.error(text, did, queue, exc_info=error)
                return self._later
            case ConsumeDirectly(message=message):
                text = "the listener failed on %s, which an operator had it consume"
                self._log.error(text, message.message_id, exc_info=error)
                return f"{type(error).__name__}: {error}"
            case _:
                name = type(handed).__name__
                self._log.error("the hook for %s failed", name, exc_info=error)
                return None

    def abandoned(self, handed: object) -> None:
        """Forget it: the broker delivers it again."""
        self._refused.pop(id(handed), None)


def _one_by_one(listener: Callable[..., object] | None) -> Callable[..., object]:
    """Convert a listener of single messages to one of batches, which then have one message each."""

    def listen(messages: Sequence[MessageView]) -> object:
        assert listener is not None
        return listener(messages[0])

    return listen


def describe_threads() -> str:
    """Return the stack traces of all threads of this process, the newest call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"{names.get(ident, '?')} ({ident})\n{stack}")
    return "\n".join(parts)
