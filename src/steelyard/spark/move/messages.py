"""RocketMQ messages as a move carries them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from steelyard.spark.move.contract import CHUNK_BYTES
from steelyard.wire.remoting.flags import SysFlag
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import (
    CLUSTER,
    DELAY,
    MAX_OFFSET,
    MIN_OFFSET,
    MSG_REGION,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)

LEFT_OUT = frozenset(
    {CLUSTER, MSG_REGION, TRACE_ON, WAIT, MIN_OFFSET, MAX_OFFSET, DELAY, TRAN_MSG}
    | {"TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DEL_UNIQKEY"}
)
"""Properties that brokers write themselves, and those that would make the target delay a message
or begin a transaction, which is over for a message that can be read."""

SENT_FLAGS = SysFlag.COMPRESSED | SysFlag.MULTI_TAGS | SysFlag.COMPRESSION_MASK
"""What of the system flag comes from the producer."""
OVERHEAD_BYTES = 22
"""Of a message in a batch, besides body and properties."""


class MovedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message without what the target's broker gives it.

    `stored_body` is compressed if `sys_flag` says so, `body` is not.
    """

    offset: int
    born_timestamp: int
    flag: int
    sys_flag: int
    reconsume_times: int
    stored_body: bytes
    body: bytes
    properties: dict[str, str]


def moved(view: MessageView) -> MovedMessage:
    """Return a message as it is sent on.

    One without a UNIQ_KEY gets the id that its broker gave it, because Apache's brokers would make
    another one.
    """
    properties = {name: text for name, text in view.properties.items() if name not in LEFT_OUT}
    properties.setdefault(UNIQ_KEY, view.offset_message_id)
    return MovedMessage(
        view.queue_offset,
        view.born_timestamp,
        view.flag,
        view.sys_flag & SENT_FLAGS,
        view.reconsume_times,
        view.stored_body,
        view.body,
        properties,
    )


def size_of(message: MovedMessage) -> int:
    """Return roughly how many bytes a message has in a request."""
    texts = sum(len(name) + len(text) + 2 for name, text in message.properties.items())
    return OVERHEAD_BYTES + len(message.stored_body) + texts


def requests(messages: Sequence[MovedMessage]) -> Iterator[list[MovedMessage]]:
    """Divide messages into those that may share a request.

    All messages of a batch get the time of birth of the request, so only those born in the same
    millisecond are sent together; compressed ones and retries travel alone.
    """
    batch: list[MovedMessage] = []
    size = 0
    for message in messages:
        alone = bool(message.sys_flag or message.reconsume_times)
        more = size_of(message)
        fits = batch and batch[0].born_timestamp == message.born_timestamp
        if batch and (alone or not fits or size + more > CHUNK_BYTES):
            yield batch
            batch, size = [], 0
        if alone:
            yield [message]
            continue
        batch.append(message)
        size += more
    if batch:
        yield batch
