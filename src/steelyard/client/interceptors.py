"""Interceptors: what an application, or a library such as OpenTelemetry's, is told of messages.

`Interceptor` is the base class to override. Its methods get a context: one object for the calls
before and after one send, or one delivery to a listener, in which an interceptor may keep what it
likes (`notes`). Contexts are those of RocketMQ's SendMessageHook and ConsumeMessageHook; that
exceptions of interceptors are only logged is Kafka's rule for its interceptors.

A client without interceptors does none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import msgspec

from steelyard.client.application import ConsumerApplication, Functions
from steelyard.client.serialization import BodyDeserializer
from steelyard.config import ConsumerConfig, ProducerConfig
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
from steelyard.nodes.consumer.remoting.contract import ConsumeBatch, ConsumeDirectly
from steelyard.nodes.producer import (
    Half,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
)
from steelyard.nodes.seam import Call, Verdict
from steelyard.types import (
    ConsumeOrderlyStatus,
    ConsumeStatus,
    Message,
    MessageModel,
    MessageQueue,
    SendResult,
)
from steelyard.wire.remoting.message import MessageView

T = TypeVar("T")

OfSeveral = SendMessages | SendOneway
Sending = OfSeveral | SendHalf | SendRequest | SendReply

_log = logger("steelyard.interceptors")


class SendKind(Enum):
    """How a message is sent."""

    NORMAL = "normal"
    """By `send`, `send_async` or `send_batch`."""
    ONEWAY = "oneway"
    """Without waiting for a broker."""
    TRANSACTION = "transaction"
    """As a half message, whose transaction ends later."""
    REQUEST = "request"
    """By `request`; the send ends with the reply."""
    REPLY = "reply"
    """In reply to a request."""


KINDS: Mapping[type, SendKind] = {
    SendMessages: SendKind.NORMAL,
    SendOneway: SendKind.ONEWAY,
    SendHalf: SendKind.TRANSACTION,
    SendRequest: SendKind.REQUEST,
    SendReply: SendKind.REPLY,
}


@dataclass(slots=True, kw_only=True)
class SendContext:
    """One send, of a message or of a batch for one topic.

    `kind`: how; `group`, `client_id`: of the producer.
    """

    kind: SendKind
    group: str
    client_id: str
    messages: tuple[Message, ...]
    """What is sent. `before_send` may replace them by as many others, of the same topic."""
    result: SendResult | MessageView | None = None
    """In `after_send`: the broker's answer; of a request the reply; None after an error or without
    an answer (ONEWAY)."""
    error: BaseException | None = None
    """In `after_send`: why it failed."""
    notes: dict[object, Any] = field(default_factory=dict)
    """For interceptors: what they keep from `before_send` to `after_send`."""


@dataclass(slots=True, kw_only=True)
class ReceiveContext:
    """Messages that a poll returns to the application.

    `group`, `client_id`: of the consumer; the group of a Kafka consumer may be empty.
    """

    group: str
    client_id: str
    messages: Sequence[MessageView] | Sequence[ConsumerRecord]
    """At least one, in the order in which they are returned."""
    began_at_ns: int
    """When the poll began, in nanoseconds since the epoch."""


@dataclass(slots=True, kw_only=True)
class ConsumeContext:
    """Messages of one queue that are passed to a listener.

    `group`, `client_id`, `message_model`: of the consumer. `messages`: one, or those of a batch.
    """

    group: str
    client_id: str
    message_model: MessageModel
    queue: MessageQueue
    """Where they were read: of a message that is delivered again, the group's retry topic."""
    messages: tuple[MessageView, ...]
    status: ConsumeStatus | ConsumeOrderlyStatus | None = None
    """In `after_consume`: the outcome; None if the listener was cancelled; RECONSUME_LATER, too, if
    the deserializer refused some messages of the batch."""
    error: BaseException | None = None
    """In `after_consume`: what the listener or the deserializer raised."""
    notes: dict[object, Any] = field(default_factory=dict)
    """For interceptors: what they keep from `before_consume` to `after_consume`."""


class Interceptor:
    """Is told of every message that a client sends, returns from a poll, or passes to a listener.

    Override what you need; the other methods do nothing. They must be quick and must not block:
    they run in the caller's thread or task, except for `after_send` of `send_async`, which runs in
    the event loop's thread. Exceptions are logged and have no effect. Several interceptors are
    called in the order given, after a send or a delivery in the reverse order. Bodies, keys and
    values are bytes: interceptors come after a serializer, and before a deserializer.
    """

    def before_send(self, context: SendContext) -> None:
        """Is called before messages are sent; may replace `context.messages`."""

    def after_send(self, context: SendContext) -> None:
        """Is called when a send has ended: `context.result` or `context.error` is set."""

    def after_receive(self, context: ReceiveContext) -> None:
        """Is called before a poll returns messages; not if there are none."""

    def before_consume(self, context: ConsumeContext) -> None:
        """Is called before a listener, in its thread or task."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Is called after a listener, in its thread or task."""


_everywhere: list[Interceptor] = []


def register(interceptor: Interceptor) -> None:
    """Give this interceptor to all clients of this process that are made from now on."""
    _everywhere.append(interceptor)


def unregister(interceptor: Interceptor) -> None:
    """Undo `register`; clients that were made meanwhile keep it."""
    if interceptor in _everywhere:
        _everywhere.remove(interceptor)


class Interception:
    """The interceptors of one client. `is_on`: there are any."""

    def __init__(self, given: Sequence[Interceptor] | None) -> None:
        """Raise ConfigError for anything but interceptors."""
        for each in given or ():
            if not isinstance(each, Interceptor):
                raise ConfigError(f"{each!r} is not an Interceptor; make a subclass of it")
        self._interceptors = (*_everywhere, *(given or ()))
        self.is_on = bool(self._interceptors)

    # -- sends -------------------------------------------------------------------------------------

    def sending(self, call: Call[T], config: ProducerConfig) -> tuple[Call[T], SendContext]:
        """Return the call to make in place of a send, and the context for `sent`."""
        assert isinstance(call, Sending)
        context = SendContext(
            kind=KINDS[type(call)],
            group=config.group,
            client_id=config.client_id,
            messages=call.messages if isinstance(call, OfSeveral) else (call.message,),
        )
        for each in self._interceptors:
            before = context.messages
            _guarded(each.before_send, context)
            if len(context.messages) != len(before):
                name = type(each).__qualname__
                _log.error("%s changed the number of messages; its change is ignored", name)
                context.messages = before
        changed: Any
        if isinstance(call, OfSeveral):
            changed = msgspec.structs.replace(call, messages=context.messages)
        else:
            changed = msgspec.structs.replace(call, message=context.messages[0])
        return changed, context

    def sent(self, context: SendContext, result: object, error: BaseException | None) -> None:
        """A send has ended."""
        if isinstance(result, Half):
            result = result.result
        if isinstance(result, SendResult | MessageView):
            context.result = result
        context.error = error
        for each in reversed(self._interceptors):
            _guarded(each.after_send, context)

    def when_sent(self, context: SendContext) -> Callable[[Any], None]:
        """Return the callback for the future of a send."""

        def ended(future: Any) -> None:
            if future.cancelled():
                self.sent(context, None, CancelledError())
            else:
                error = future.exception()
                self.sent(context, None if error else future.result(), error)

        return ended

    # -- polls -------------------------------------------------------------------------------------

    def received(
        self,
        messages: Sequence[MessageView] | Sequence[ConsumerRecord],
        group: str,
        client_id: str,
        began_at_ns: int,
    ) -> None:
        """A poll is about to return messages."""
        context = ReceiveContext(
            group=group, client_id=client_id, messages=messages, began_at_ns=began_at_ns
        )
        for each in self._interceptors:
            _guarded(each.after_receive, context)

    # -- listeners ---------------------------------------------------------------------------------

    def consuming(self, context: ConsumeContext) -> None:
        """A listener is about to be called."""
        for each in self._interceptors:
            _guarded(each.before_consume, context)

    def consumed(self, context: ConsumeContext) -> None:
        """A listener has ended."""
        for each in reversed(self._interceptors):
            _guarded(each.after_consume, context)


class InterceptedApplication(ConsumerApplication):
    """The application of a consumer whose listener is watched by interceptors."""

    def __init__(
        self,
        functions: Functions,
        interception: Interception,
        config: ConsumerConfig,
        deserializer: BodyDeserializer[Any] | None,
    ) -> None:
        super().__init__(functions, orderly=config.orderly, deserializer=deserializer)
        self._interception = interception
        self._config = config
        self._contexts: dict[int, ConsumeContext] = {}
        """Of the deliveries that are with the listener now, by the identity of each."""

    def call(self, handed: object) -> object:
        if not isinstance(handed, ConsumeBatch | ConsumeDirectly):
            return super().call(handed)
        context = ConsumeContext(
            group=self._config.group,
            client_id=self._config.client_id,
            message_model=self._config.message_model,
            queue=handed.queue,
            messages=handed.messages if isinstance(handed, ConsumeBatch) else (handed.message,),
        )
        self._contexts[id(handed)] = context
        self._interception.consuming(context)
        return super().call(handed)

    def verdict(self, handed: object, returned: object) -> Verdict:
        verdict = super().verdict(handed, returned)
        self._ended(handed, verdict)
        return verdict

    def failure(self, handed: object, error: BaseException) -> Verdict:
        verdict = super().failure(handed, error)
        self._ended(handed, verdict, error)
        return verdict

    def abandoned(self, handed: object) -> None:
        super().abandoned(handed)
        self._ended(handed, None)

    def _ended(self, handed: object, verdict: Verdict, error: BaseException | None = None) -> None:
        context = self._contexts.pop(id(handed), None)
        if context is None:
            return
        if isinstance(verdict, tuple):  # some messages were refused by the deserializer
            context.status = ConsumeStatus.RECONSUME_LATER
        elif isinstance(verdict, ConsumeStatus | ConsumeOrderlyStatus):
            context.status = verdict
        context.error = error
        self._interception.consumed(context)


def _guarded(method: Callable[[Any], None], context: object) -> None:
    """Call a method of an interceptor; its exceptions must not affect messages."""
    try:
        method(context)
    except Exception:
        _log.exception("%s failed", getattr(method, "__qualname__", method))
