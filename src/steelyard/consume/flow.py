"""When a client stops pulling a queue because it holds too much of it.

Source: client/impl/consumer/DefaultMQPushConsumerImpl.java `pullMessage`.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from steelyard.consume.process_queue import ProcessQueue


class Limits(msgspec.Struct, frozen=True):
    """Most of one queue in the client. Pulling stops beyond each, so one pull more may be in."""

    messages_max: int
    bytes_max: int
    span_max: int


class Reason(Enum):
    MESSAGES = "too many messages"
    BYTES = "too many bytes"
    SPAN = "offsets too far apart"


def blocked(queue: ProcessQueue, limits: Limits) -> Reason | None:
    """The limit that is exceeded, None if pulling may go on."""
    if queue.count > limits.messages_max:
        return Reason.MESSAGES
    if queue.size_bytes > limits.bytes_max:
        return Reason.BYTES
    if queue.span > limits.span_max:
        return Reason.SPAN
    return None
