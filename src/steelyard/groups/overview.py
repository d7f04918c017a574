"""The overview of a group for operators: progress, resets, and the fate of a message."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import ConsumerConnection, OffsetWrapper
from steelyard.wire.remoting.message import MessageView


class QueueProgress(msgspec.Struct, frozen=True):
    """The progress of a group in one queue.

    `broker_offset`: one past the last message; `consumer_offset`: committed, the next to be
    consumed; `last_consumed_at`: store time of the last consumed message in ms, 0 for none;
    `client_id`: the member that reports to hold the queue, "" if none does.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_at: int
    client_id: str = ""

    @property
    def lag(self) -> int:
        """Return the number of messages not consumed yet."""
        return self.broker_offset - self.consumer_offset


class GroupProgress(msgspec.Struct, frozen=True):
    """The progress of a group.

    `queues`, sorted; `consume_tps`: messages delivered to the group per second, by its brokers.
    """

    group: str
    queues: tuple[QueueProgress, ...]
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        """Return the number of messages of all queues not consumed yet."""
        return sum(row.lag for row in self.queues)


def group_progress(
    group: str,
    offsets: Mapping[MessageQueue, OffsetWrapper],
    consume_tps: float,
    holders: Mapping[MessageQueue, str],
) -> GroupProgress:
    """Build the rows from the responses of all brokers (208) and members (307)."""
    rows = tuple(
        QueueProgress(
            queue,
            offsets[queue].broker_offset,
            offsets[queue].consumer_offset,
            offsets[queue].last_timestamp,
            holders.get(queue, ""),
        )
        for queue in sorted(offsets)
    )
    return GroupProgress(group, rows, consume_tps)


class QueueReset(msgspec.Struct, frozen=True):
    """The new offset of a group in a queue.

    `before`: the committed one; None if members reset themselves.
    """

    queue: MessageQueue
    offset: int
    before: int | None = None
    broker_offset: int | None = None


class TrackKind(Enum):
    """The fate of a message in a group. Source: tools/admin/api/TrackType.java."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    """Members choose their offsets themselves; what they have consumed is unknown."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """Every member keeps its own offsets, which brokers do not know."""
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True):
    """The fate of a message in one group.

    `description`: why it is unknown, None if it is known.
    """

    group: str
    kind: TrackKind
    description: str | None = None


def track_kind(
    message: MessageView,
    connection: ConsumerConnection,
    offsets: Mapping[MessageQueue, OffsetWrapper],
) -> TrackKind:
    """Return the fate of a message in an online group. `offsets`: of the message's broker.

    SQL92 filters are not evaluated. Source: DefaultMQAdminExtImpl.messageTrackDetail.
    """
    if connection.consume_type == "CONSUME_ACTIVELY":
        return TrackKind.PULL
    if connection.message_model == "BROADCASTING":
        return TrackKind.CONSUME_BROADCASTING
    consumed = any(
        (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
        and wrapper.consumer_offset > message.queue_offset
        for queue, wrapper in offsets.items()
    )
    if not consumed:
        return TrackKind.NOT_CONSUME_YET
    subscription = connection.subscription_table.get(message.topic)
    tags = subscription.tags_set if subscription is not None else ()
    if tags and "*" not in tags and message.tags not in tags:
        return TrackKind.CONSUMED_BUT_FILTERED
    return TrackKind.CONSUMED
