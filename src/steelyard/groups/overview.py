"""What an operator sees of a group: how far it has come, where it was reset to, what became of one message."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from steelyard.types import MessageQueue
from steelyard.wire.remoting.bodies import ConsumerConnection, OffsetWrapper
from steelyard.wire.remoting.message import MessageView


class QueueProgress(msgspec.Struct, frozen=True):
    """How far a group has come in one queue.

    `broker_offset`: one past the last message; `consumer_offset`: committed, the next to be consumed;
    `last_consumed_at`: when the last message consumed was stored, ms, 0 for none; `client_id`: the member that
    says it holds the queue, "" where nobody does.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_consumed_at: int
    client_id: str = ""

    @property
    def lag(self) -> int:
        """Messages that are not consumed yet."""
        return self.broker_offset - self.consumer_offset


class GroupProgress(msgspec.Struct, frozen=True):
    """`queues`, sorted; `consume_tps`: messages given to the group per second, by its brokers."""

    group: str
    queues: tuple[QueueProgress, ...]
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        """Messages of all queues that are not consumed yet."""
        return sum(row.lag for row in self.queues)


def group_progress(
    group: str,
    offsets: Mapping[MessageQueue, OffsetWrapper],
    consume_tps: float,
    holders: Mapping[MessageQueue, str],
) -> GroupProgress:
    """Rows from the answers of all brokers (208) and members (307)."""
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
    """Where a group goes on in a queue. `before`: what it had committed; None where members do the reset themselves."""

    queue: MessageQueue
    offset: int
    before: int | None = None
    broker_offset: int | None = None


class TrackKind(Enum):
    """What became of a message in a group. Source: tools/admin/api/TrackType.java."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    """The group pulls by itself; nobody knows what it consumed."""
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    """Every member keeps its own offsets; the brokers do not know them."""
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True):
    """`description`: why the kind is not known, None where it is."""

    group: str
    kind: TrackKind
    description: str | None = None


def track_kind(
    message: MessageView,
    connection: ConsumerConnection,
    offsets: Mapping[MessageQueue, OffsetWrapper],
) -> TrackKind:
    """What became of a message in a group that is online. `offsets`: of the broker that has the message.

    Source: DefaultMQAdminExtImpl.messageTrackDetail; a filter by SQL92 is not looked at.
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
