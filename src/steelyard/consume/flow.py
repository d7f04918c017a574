"""Flow control: when a client stops pulling a queue because it has prefetched too much.

Source: client/impl/consumer/DefaultMQPushConsumerImpl.java `pullMessage`, RebalancePushImpl.java
`messageQueueChanged`.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from steelyard.consume.process_queue import ProcessQueue


class Limits(msgspec.Struct, frozen=True):
    """Prefetch limits of one queue. Pulling stops beyond each, so one more pull may be in."""

    messages_max: int
    bytes_max: int
    span_max: int | None
    """None allows any distance of offsets: in an ordered queue no message overtakes another."""


class Reason(Enum):
    MESSAGES = "too many messages"
    BYTES = "too many bytes"
    SPAN = "offsets too far apart"


def blocked(queue: ProcessQueue, limits: Limits) -> Reason | None:
    """Return the exceeded limit; None if pulling may continue."""
    if queue.count > limits.messages_max:
        return Reason.MESSAGES
    if queue.size_bytes > limits.bytes_max:
        return Reason.BYTES
    if limits.span_max is not None and queue.span > limits.span_max:
        return Reason.SPAN
    return None


def shared(limits: Limits, topic_messages_max: int, topic_bytes_max: int, queues: int) -> Limits:
    """Return the limits of each of the `queues` of one topic that this client holds.

    A limit of the topic (0: none) replaces that of the queue by an equal share, at least 1. Java
    divides by the number of queues of all topics; here each topic has its own limit.
    """
    held = max(queues, 1)
    return Limits(
        max(1, topic_messages_max // held) if topic_messages_max else limits.messages_max,
        max(1, topic_bytes_max // held) if topic_bytes_max else limits.bytes_max,
        limits.span_max,
    )
