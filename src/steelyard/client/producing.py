"""What blocking and asyncio producers share: queues chosen by a function, and what users say of transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from steelyard.client.settings import DEFAULT_GROUP, client_config
from steelyard.config import ProducerConfig
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError, MessageError, RouteError
from steelyard.nodes.producer import Half
from steelyard.types import Message, MessageQueue, SendStatus, TransactionState
from steelyard.wire.remoting.properties import UNIQ_KEY

log = logger("steelyard.producer")

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses a queue for a message. The queues are in the order of the route: by broker name and number."""

TransactionVerdict = TransactionState | bool | None
"""What `execute` and `transaction_check` may return."""


def producer_config(
    template: ProducerConfig | None,
    group: str,
    nameservers: str | Sequence[str] | None,
    client_id: str | None,
    *,
    checks: bool,
) -> ProducerConfig:
    """The configuration of a producer, complete. `checks`: it has a transaction_check. Raises ConfigError."""
    if checks and group == DEFAULT_GROUP:
        raise ConfigError("transactions need a group of their own; give group='...'")
    whole = replace(template or ProducerConfig(), checks=checks)
    return client_config(whole, group, nameservers, client_id)


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
        "execute failed for transaction %s; its state is UNKNOWN, the broker will ask",
        half.result.message_id,
        exc_info=error,
    )
    return f"executeLocalTransactionBranch exception: {error!r}"
