"""The shared part of blocking and asyncio producers: messages, queue selection, transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from steelyard.checks import is_right, kind_of
from steelyard.client.serialization import BodySerializer
from steelyard.client.settings import DEFAULT_GROUP, client_config
from steelyard.config import ProducerConfig
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError, MessageError, RouteError
from steelyard.nodes.producer import Half, TransactionCheck
from steelyard.produce.outgoing import reply_topic
from steelyard.types import Message, MessageQueue, SendStatus, TransactionState
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import UNIQ_KEY

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Sent = TypeVar("Sent", default=bytes | str)
else:  # Python 3.11 has no defaults of type variables
    from typing import TypeVar

    Sent = TypeVar("Sent")

log = logger("steelyard.producer")

_BODY = kind_of(bytes | str | None)

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses a queue for a message. The queues are in route order: by broker name and number."""

TransactionVerdict = TransactionState | bool | None
"""Results of `execute` and `transaction_check`."""

Says = Awaitable[TransactionVerdict] | TransactionVerdict
"""The same for functions that may be coroutine functions."""


class MessageFields(TypedDict, total=False):
    """Fields of the message besides topic and body; with a `Message` they override its own.

    - `tags`: a tag, by which consumers filter.
    - `keys`: one or several keys for queries.
    - `properties`: a mapping of names to texts.
    - `delay_level`: 1 to 18: the broker delays the message for 1 s to 2 h; 0: no delay.
    - `delay_ms`: the broker delays the message by so many ms, up to 3 days by default.
    - `deliver_at_ms`: the broker delays the message until then, in ms since the epoch.
    - `sharding_key`: messages with the same key go to the same queue, in order.
    """

    tags: str
    keys: str | Sequence[str]
    properties: Mapping[str, str] | None
    delay_level: int
    delay_ms: int
    deliver_at_ms: int
    sharding_key: str


def as_message(
    message: Message | str,
    body: object,
    fields: MessageFields,
    serializer: BodySerializer | None = None,
) -> Message:
    """Return the message given to `send`, whole or as topic and body.

    Without a serializer the body is bytes, or text that is encoded as UTF-8. Raises ArgumentError,
    MessageError, SerializationError.
    """
    if fields.get("properties", "") is None:
        fields = {**fields, "properties": {}}
    if serializer is None:
        body = _plain(body)
    if isinstance(message, Message):
        if body is not None:
            raise MessageError("give either a Message, or a topic and a body, not both")
        return msgspec.structs.replace(message, **fields) if fields else message
    if not isinstance(message, str):
        raise MessageError(f"expected a Message, or a topic and a body, not {message!r}")
    if body is None:
        raise MessageError("give a Message, or a topic and a body")
    if serializer is not None:
        body = serializer.body(message, fields.get("properties") or {}, body)
    data = body.encode() if isinstance(body, str) else body
    return Message(message, data, **fields)  # type: ignore[arg-type]  # checked; properties are no longer None


def as_reply(
    request: MessageView[Any],
    body: object,
    fields: MessageFields,
    serializer: BodySerializer | None,
) -> Message:
    """Return the message that replies to a request. Raises as `as_message` does."""
    if serializer is None:  # a wrong argument is told first
        body = _plain(body)
    return as_message(reply_topic(request), body, fields, serializer)


def _plain(body: object) -> object:
    """Return a body, or None, that needs no serializer. Raises ArgumentError."""
    return body if is_right(_BODY, body) else _BODY.take("body", body)


def producer_config(
    config: ProducerConfig | None, given: Mapping[str, object], *, checks: bool
) -> ProducerConfig:
    """Build the configuration of a producer. `checks`: it has a transaction_check.

    Raises ConfigError.
    """
    if not given["group"] and not (config and config.group):
        given = {**given, "group": DEFAULT_GROUP}
    whole = client_config(ProducerConfig, config, {**given, "checks": checks or None})
    if checks and whole.group == DEFAULT_GROUP:
        raise ConfigError("transactions need a group of their own; give group='...'")
    return whole


class Checks:
    """The application of a producer: its `transaction_check`."""

    def __init__(self, transaction_check: Callable[[MessageView], Says] | None) -> None:
        self._transaction_check = transaction_check

    def call(self, handed: object) -> object:
        assert isinstance(handed, TransactionCheck)
        assert self._transaction_check is not None
        return self._transaction_check(handed.message)

    def verdict(self, handed: object, returned: object) -> TransactionState:
        return transaction_state(returned)

    def failure(self, handed: object, error: BaseException) -> TransactionState:
        assert isinstance(handed, TransactionCheck)
        text = "transaction_check failed on %s"
        log.error(text, handed.message.message_id, exc_info=error)
        return TransactionState.UNKNOWN

    def abandoned(self, handed: object) -> None:
        """Nothing is to be done: the broker asks again."""


def selected(
    selector: Selector, queues: tuple[MessageQueue, ...], message: Message
) -> MessageQueue:
    """Return the queue chosen by the user's function.

    Raises MessageError if it is not one of the topic's, RouteError if there are none.
    """
    if not queues:
        raise RouteError(f"topic {message.topic} has no writable queue")
    queue = selector(queues, message)
    if queue not in queues:
        raise MessageError(f"the selector returned {queue!r}; it must return one of the queues")
    return queue


def transaction_state(returned: object) -> TransactionState:
    """Convert a user function's result: True commits, False rolls back, else UNKNOWN."""
    if isinstance(returned, TransactionState):
        return returned
    if isinstance(returned, bool):
        return TransactionState.COMMIT if returned else TransactionState.ROLLBACK
    return TransactionState.UNKNOWN


def fate_without_execute(half: Half) -> TransactionState | None:
    """Return ROLLBACK if the half message was not fully stored, so that nothing is executed."""
    return None if half.result.status is SendStatus.SEND_OK else TransactionState.ROLLBACK


def executed_message(message: Message, half: Half) -> Message:
    """Return the message for `execute`, with the transaction's id as its property UNIQ_KEY."""
    properties = {**message.properties, UNIQ_KEY: half.result.message_id}
    return msgspec.structs.replace(message, properties=properties)


def failed_remark(error: Exception, half: Half) -> str:
    """Return the remark on a failed `execute` for the broker's log.

    The error is logged here, too.
    """
    log.error(
        "execute failed for transaction %s; its state is UNKNOWN, so the broker will ask",
        half.result.message_id,
        exc_info=error,
    )
    return f"executeLocalTransactionBranch exception: {error!r}"
