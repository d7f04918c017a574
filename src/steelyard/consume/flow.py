"""When a client stops pulling a queue because it holds too much of it, or of its topic.

Source: client/impl/consumer/DefaultMQPushConsumerImpl.java `pullMessage`, RebalancePushImpl.java
`messageQueueChanged`.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from steelyard.consume.process_queue import ProcessQueue


class Limits(msgspec.Struct, frozen=True):
    """Most of one queue in the client. Pulling stops beyond each, so one pull more may be in."""

    messages_max: int
    bytes_max: int
    span_max: int | None
    """None where offsets may be any distance apart: an ordered queue has no message that others overtake."""


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
    if limits.span_max is not None and queue.span > limits.span_max:
        return Reason.SPAN
    return None


def shared(limits: Limits, topic_messages_max: int, topic_bytes_max: int, queues: int) -> Limits:
    """The limits of each of the `queues` of one topic that this client holds.

    A limit of the topic (0: there is none) replaces that of the queue by an equal share, at least 1.
    Java divides by the queues of all topics together; here each topic has what it says.
    """
    held = max(queues, 1)
    return Limits(
        max(1, topic_messages_max // held) if topic_messages_max else limits.messages_max,
        max(1, topic_bytes_max // held) if topic_bytes_max else limits.bytes_max,
        limits.span_max,
    )
