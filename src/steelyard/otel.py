"""OpenTelemetry: spans of the clients, and the context of a trace in messages (extra `otel`).

>>> from steelyard.otel import SteelyardInstrumentor                   # doctest: +SKIP
>>> SteelyardInstrumentor().instrument()                               # doctest: +SKIP

Every client made afterwards has these spans, by OpenTelemetry's semantic conventions for messaging:

- `send TOPIC` (PRODUCER) around each send. Its context goes with the messages, by the configured
  propagators, by default as `traceparent` and `tracestate`: properties of RocketMQ messages, which
  Kafka consumers see as headers.
- `process TOPIC` (CONSUMER) around each call of a push consumer's listener. For one message its
  parent is the span of the sender, so that both are in one trace; of a batch it links to all.
- `poll TOPIC` (CLIENT) for each poll of a pulling consumer or KafkaConsumer that returned messages,
  with links to the spans of the senders. What the application does with a message it may put into
  a span of its own: `with processing(message): ...`.

`opentelemetry-instrument` does the same without a change of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from steelyard.client.interceptors import (
    ConsumeContext,
    Interceptor,
    ReceiveContext,
    SendContext,
    SendKind,
    register,
    unregister,
)
from steelyard.errors import BrokerError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
from steelyard.types import (
    ConsumeOrderlyStatus,
    ConsumeStatus,
    Message,
    MessageModel,
    SendResult,
    SendStatus,
)
from steelyard.version import __version__
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import KEYS, SHARDING_KEY, TAGS

__all__ = ["SteelyardInstrumentor", "TracingInterceptor", "context_of", "processing"]

LINKS_MAX = 128
"""Most links of a span, the default limit of the SDK; a batch may have more messages."""

FAILED = (
    ConsumeStatus.RECONSUME_LATER,
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
)

Attributes = dict[str, Any]

AnyMessage = MessageView | ConsumerRecord


class SteelyardInstrumentor:
    """Switches the spans on and off, like the instrumentors of other libraries."""

    _interceptor: Interceptor | None = None
    """The one that is registered; there is one for all instances."""

    def instrument(self, *, tracer_provider: TracerProvider | None = None, **_: object) -> None:
        """Give spans to all clients made from now on. A second call does nothing.

        `tracer_provider`: default: the global one.
        """
        if SteelyardInstrumentor._interceptor is None:
            SteelyardInstrumentor._interceptor = TracingInterceptor(tracer_provider)
            register(SteelyardInstrumentor._interceptor)

    def uninstrument(self, **_: object) -> None:
        """Undo `instrument` for clients made from now on."""
        if SteelyardInstrumentor._interceptor is not None:
            unregister(SteelyardInstrumentor._interceptor)
            SteelyardInstrumentor._interceptor = None

    def instrumentation_dependencies(self) -> tuple[str, ...]:
        """Return no packages, because the library instruments itself."""
        return ()


class TracingInterceptor(Interceptor):
    """The spans of the clients that have this interceptor: `Producer(interceptors=[...])`."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(tracer_provider)

    # -- sends -------------------------------------------------------------------------------------

    def before_send(self, context: SendContext) -> None:
        topic = context.messages[0].topic
        attributes = _common("rocketmq", "send", "send", topic, context.client_id)
        attributes |= _sent(context.messages, context.kind)
        span = self._tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        carried: dict[str, str] = {}
        propagate.inject(carried, trace.set_span_in_context(span))
        context.messages = tuple(
            msgspec.structs.replace(message, properties={**message.properties, **carried})
            for message in context.messages
        )
        context.notes[self] = span

    def after_send(self, context: SendContext) -> None:
        span: Span | None = context.notes.pop(self, None)
        if span is None:
            return
        result = context.result
        if isinstance(result, SendResult):
            span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
            if len(context.messages) == 1:
                span.set_attribute("messaging.message.id", result.message_id)
            if result.status is not SendStatus.SEND_OK:
                _fail(span, result.status.name)
        if context.error is not None:
            _failed(span, context.error)
        span.end()

    # -- polls -------------------------------------------------------------------------------------

    def after_receive(self, context: ReceiveContext) -> None:
        topics = sorted({message.topic for message in context.messages})
        first = context.messages[0]
        attributes = _common(_system(first), "poll", "receive", topics[0], context.client_id)
        if len(topics) > 1:
            del attributes["messaging.destination.name"]
        if context.group:
            attributes["messaging.consumer.group.name"] = context.group
        attributes["messaging.batch.message_count"] = len(context.messages)
        span = self._tracer.start_span(
            f"poll {topics[0]}" if len(topics) == 1 else "poll",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(context.messages),
            start_time=context.began_at_ns,
        )
        span.end()

    # -- listeners ---------------------------------------------------------------------------------

    def before_consume(self, context: ConsumeContext) -> None:
        span = _started(self._tracer, context.messages, context.group, context.client_id)
        model = "broadcasting" if context.message_model is MessageModel.BROADCASTING else ""
        span.set_attribute("messaging.rocketmq.consumption_model", model or "clustering")
        token = contexts.attach(trace.set_span_in_context(span))
        context.notes[self] = (span, token)

    def after_consume(self, context: ConsumeContext) -> None:
        span, token = context.notes.pop(self, (None, None))
        if span is None or token is None:
            return
        contexts.detach(token)
        if context.error is not None:
            _failed(span, context.error)
        elif context.status in FAILED:
            assert context.status is not None
            _fail(span, context.status.name)
        elif context.status is None:
            _fail(span, "cancelled")
        span.end()


def tracer_of(tracer_provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("steelyard", __version__, tracer_provider)


# -- for applications ------------------------------------------------------------------------------


def context_of(message: AnyMessage) -> Context:
    """Return the context that the sender of a message put into it; an empty one if it did not."""
    return propagate.extract(message, Context(), _GETTER)


@contextmanager
def processing(
    message: AnyMessage, group: str = "", *, tracer_provider: TracerProvider | None = None
) -> Iterator[Span]:
    """Put what is done in the block into a `process` span, in the trace of the message's sender.

    For messages that a poll returned. An exception in the block is recorded, and raised on.
    """
    span = _started(tracer_of(tracer_provider), (message,), group, "")
    with trace.use_span(span, end_on_exit=True):
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            raise


# -- spans -----------------------------------------------------------------------------------------


def _started(tracer: Tracer, messages: Sequence[AnyMessage], group: str, client_id: str) -> Span:
    """Start the span of what is done with messages of one queue."""
    first = messages[0]
    attributes = _common(_system(first), "process", "process", first.topic, client_id)
    if group:
        attributes["messaging.consumer.group.name"] = group
    attributes |= _place(first)
    is_one = len(messages) == 1
    if is_one:
        attributes |= _read(first)
    else:
        attributes["messaging.batch.message_count"] = len(messages)
    return tracer.start_span(
        f"process {first.topic}",
        context_of(first) if is_one and _is_traced(first) else None,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=() if is_one else _links(messages),
    )


def _is_traced(message: AnyMessage) -> bool:
    return trace.get_current_span(context_of(message)).get_span_context().is_valid


def _links(messages: Iterable[AnyMessage]) -> list[Link]:
    """Return a link to each sender's span, and no more than `LINKS_MAX`."""
    links: list[Link] = []
    for message in messages:
        if len(links) == LINKS_MAX:
            break
        sender = trace.get_current_span(context_of(message)).get_span_context()
        if sender.is_valid:
            links.append(Link(sender))
    return links


def _fail(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR))


def _failed(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    named = str(error.code) if isinstance(error, BrokerError) else type(error).__qualname__
    span.set_attribute("error.type", named)
    span.set_status(Status(StatusCode.ERROR, str(error)))


# -- attributes ------------------------------------------------------------------------------------


def _common(system: str, name: str, kind: str, topic: str, client_id: str) -> Attributes:
    attributes: Attributes = {
        "messaging.system": system,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
    if client_id:
        attributes["messaging.client.id"] = client_id
    return attributes


def _system(message: AnyMessage) -> str:
    return "kafka" if isinstance(message, ConsumerRecord) else "rocketmq"


def _sent(messages: Sequence[Message], kind: SendKind) -> Attributes:
    """Return attributes of messages that are sent; those of one message only if there is one."""
    if len(messages) > 1:
        return {"messaging.batch.message_count": len(messages)}
    (message,) = messages
    attributes: Attributes = {"messaging.message.body.size": len(message.body)}
    if message.tags:
        attributes["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = _keys(message.keys)
    if message.delay_level:
        attributes["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.sharding_key:
        attributes["messaging.rocketmq.message.group"] = message.sharding_key
    attributes["messaging.rocketmq.message.type"] = _type(message, kind)
    return attributes


def _type(message: Message, kind: SendKind) -> str:
    if kind is SendKind.TRANSACTION:
        return "transaction"
    if message.delay_level:
        return "delay"
    return "fifo" if message.sharding_key else "normal"


def _keys(keys: str | Sequence[str]) -> list[str]:
    return keys.split() if isinstance(keys, str) else list(keys)


def _place(message: AnyMessage) -> Attributes:
    number = message.partition if isinstance(message, ConsumerRecord) else message.queue_id
    return {"messaging.destination.partition.id": str(number)}


def _read(message: AnyMessage) -> Attributes:
    """Return attributes of one message that was read."""
    if isinstance(message, ConsumerRecord):
        attributes: Attributes = {"messaging.kafka.offset": message.offset}
        if message.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        else:
            attributes["messaging.message.body.size"] = len(message.value)
        if message.key is not None:
            attributes["messaging.kafka.message.key"] = message.key.decode(errors="replace")
        return attributes
    attributes = {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.stored_body),
        "messaging.rocketmq.message.offset": message.queue_offset,
    }
    tag, keys = message.property_of(TAGS), message.property_of(KEYS)
    if tag:
        attributes["messaging.rocketmq.message.tag"] = tag
    if keys:
        attributes["messaging.rocketmq.message.keys"] = _keys(keys)
    group = message.property_of(SHARDING_KEY)
    if group:
        attributes["messaging.rocketmq.message.group"] = group
    return attributes


class _MessageGetter(Getter[AnyMessage]):
    """Reads properties of RocketMQ messages and headers of Kafka records."""

    def get(self, carrier: AnyMessage, key: str) -> list[str] | None:
        if isinstance(carrier, MessageView):
            value = carrier.property_of(key)
            return None if value is None else [value]
        found = [
            value.decode(errors="replace")
            for name, value in carrier.headers
            if name == key and value is not None
        ]
        return found or None

    def keys(self, carrier: AnyMessage) -> list[str]:
        if isinstance(carrier, MessageView):
            names: Mapping[str, str] = carrier.properties
            return list(names)
        return [name for name, _ in carrier.headers]


_GETTER = _MessageGetter()
