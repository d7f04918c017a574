"""What blocking and asyncio producers share: messages, queues chosen by a function, and what users say of transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypedDict

import msgspec

from steelyard.client.settings import DEFAULT_GROUP, client_config
from steelyard.config import ProducerConfig
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError, MessageError, RouteError
from steelyard.nodes.producer import Half, TransactionCheck
from steelyard.types import Message, MessageQueue, SendStatus, TransactionState
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import UNIQ_KEY

log = logger("steelyard.producer")

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses a queue for a message. The queues are in the order of the route: by broker name and number."""

TransactionVerdict = TransactionState | bool | None
"""What `execute` and `transaction_check` may return."""

Says = Awaitable[TransactionVerdict] | TransactionVerdict
"""The same of functions that may be coroutine functions."""


class MessageFields(TypedDict, total=False):
    """Fields of the message, beside topic and body; with a whole `Message` they take the place of its own:

    - `tags`: a tag, by which consumers filter.
    - `keys`: one key or several, by which messages are found.
    - `properties`: a mapping of names to texts.
    - `delay_level`: 1 to 18: the broker keeps the message from consumers for 1 s to 2 h; 0: no delay.
    - `sharding_key`: messages with one key go to one queue, in their order.
    """

    tags: str
    keys: str | Sequence[str]
    properties: Mapping[str, str] | None
    delay_level: int
    sharding_key: str


def as_message(message: Message | str, body: bytes | str | None, fields: MessageFields) -> Message:
    """The message that `send` was given: whole, or as topic and body. Text is sent as UTF-8."""
    if fields.get("properties", "") is None:
        fields = {**fields, "properties": {}}
    if isinstance(message, Message):
        if body is not None:
            raise MessageError("give either a Message, or a topic and a body, not both")
        return msgspec.structs.replace(message, **fields) if fields else message
    if not isinstance(message, str):
        raise MessageError(f"expected a Message, or a topic and a body, not {message!r}")
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise MessageError(f"the body of a message must be bytes or str, not {type(body).__name__}")
    return Message(message, bytes(body), **fields)  # type: ignore[arg-type]  # properties are no longer None


def producer_config(
    config: ProducerConfig | None, given: Mapping[str, object], *, checks: bool
) -> ProducerConfig:
    """The configuration of a producer, complete. `checks`: it has a transaction_check. Raises ConfigError."""
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


def selected(
    selector: Selector, queues: tuple[MessageQueue, ...], message: Message
) -> MessageQueue:
    """The queue that the user's function chooses. Raises MessageError where it is none of the topic's, RouteError
    where there are none."""
    if not queues:
        raise RouteError(f"topic {message.topic} has no writable queue")
    queue = selector(queues, message)
    if queue not in queues:
        raise MessageError(f"the selector returned {queue!r}; it must return one of the queues")
    return queue


def transaction_state(returned: object) -> TransactionState:
    """What a user's function says: True commits, False rolls back; None, or anything else, is UNKNOWN."""
    if isinstance(returned, TransactionState):
        return returned
    if isinstance(returned, bool):
        return TransactionState.COMMIT if returned else TransactionState.ROLLBACK
    return TransactionState.UNKNOWN


def fate_without_execute(half: Half) -> TransactionState | None:
    """ROLLBACK where the half message was stored with a reservation: then nothing is executed. None otherwise."""
    return None if half.result.status is SendStatus.SEND_OK else TransactionState.ROLLBACK


def executed_message(message: Message, half: Half) -> Message:
    """What `execute` gets: the message, with the transaction's id as its property UNIQ_KEY."""
    properties = {**message.properties, UNIQ_KEY: half.result.message_id}
    return msgspec.structs.replace(message, properties=properties)


def failed_remark(error: Exception, half: Half) -> str:
    """For the broker's log, of an `execute` that raised; logged here, too."""
    log.error(
        "execute failed for transaction %s; its state is UNKNOWN, so the broker will ask",
        half.result.message_id,
        exc_info=error,
    )
    return f"executeLocalTransactionBranch exception: {error!r}"
