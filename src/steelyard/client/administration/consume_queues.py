"""The index of a queue: where in its broker's log each message lies.

Apache's brokers return their index (321). Ours do not: what it would contain is read from the
messages. Of messages of Kafka's producers the sizes are then those that RocketMQ's clients get.
Source: AdminBrokerProcessor.queryConsumeQueue, QueryConsumeQueueResponseBody.java,
ConsumeQueueData.java.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from steelyard.checks import Int32
from steelyard.client.administration.apache_requests import ApacheCode
from steelyard.client.administration.messages import Messages
from steelyard.errors import BrokerError, RouteError
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import Body, Int, Long, SubscriptionData
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.message import decode_records, record_size

ROWS_MAX = 10_000
"""Most rows in one answer."""

NO_MESSAGE = "no message has this offset"
"""The remark of a row without a message: Kafka's markers, and what compaction has removed."""

RowCount = Annotated[int, Meta(ge=1, le=ROWS_MAX)]


class QueryConsumeQueueRequestHeader(headers.Header, frozen=True, kw_only=True):
    """321 QUERY_CONSUME_QUEUE. `index`: the offset of the first row."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class ConsumeQueueData(Body, frozen=True):
    """A row: a message at `physic_offset` of the broker's log, of `physic_size` bytes.

    `tags_code`: Java's hash of the tag. `bit_map` and `eval`: of the group's filter. `msg`: what is
    wrong with the row.
    """

    physic_offset: Long = 0
    physic_size: Int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class ConsumeQueueRows(Body, frozen=True):
    """Response to 321: rows, and the first offset of the queue and the one after its last.

    `subscription_data`, `filter_data`: of the group that was asked about.
    """

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0


class ConsumeQueues(Messages):
    """Methods for the indexes of queues."""

    async def consume_queue(
        self,
        topic: str,
        queue_id: Int32,
        index: int,
        *,
        broker: str,
        count: RowCount = 10,
        group: str | None = None,
    ) -> ConsumeQueueRows:
        """Return rows of a queue's index at the broker at this address, from an offset on.

        `group`: also return this group's subscription. Raises RouteError if the queue or its first
        row does not exist.
        """
        header = QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        try:
            reply = await self.ask(broker, ApacheCode.QUERY_CONSUME_QUEUE, header)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return await self._rows_of_messages(broker, header)
        if not reply.body:
            raise RouteError(reply.remark or f"queue {queue_id} of {topic} has no row {index}")
        return fastjson.read(ConsumeQueueRows, reply.body)

    async def _rows_of_messages(
        self, broker: str, header: QueryConsumeQueueRequestHeader
    ) -> ConsumeQueueRows:
        queue = MessageQueue(header.topic, await self._name_of(broker), header.queue_id)
        reach = (await self._reach_at(broker, queue.topic)).get(queue)
        if reach is None:
            raise RouteError(f"queue {queue.queue_id} of topic {queue.topic} does not exist")
        if not reach.min_offset <= header.index < reach.max_offset:
            raise RouteError(
                f"queue {queue.queue_id} of topic {queue.topic} has no row {header.index}; it has"
                f" the offsets from {reach.min_offset} to before {reach.max_offset}"
            )
        end = min(header.index + header.count, reach.max_offset)
        rows: list[ConsumeQueueData] = []
        while header.index + len(rows) < end:
            place = header.index + len(rows)
            body = await self._pull(broker, queue, place, end - place)
            if not body:
                break
            position = 0
            for message in decode_records(body, queue.broker_name):
                size = record_size(body, position)
                position += size
                missing = min(message.queue_offset, end) - header.index - len(rows)
                rows += [ConsumeQueueData(msg=NO_MESSAGE)] * missing
                if message.queue_offset < end:
                    code = tag_code(message.tags)
                    rows.append(ConsumeQueueData(message.physical_offset, size, code))
        subscription, remark = None, None
        if header.consumer_group is not None:
            subscription = await self._subscription_at(broker, header.consumer_group, queue.topic)
            remark = f"{header.consumer_group}@{queue.topic} is not online!"
        return ConsumeQueueRows(
            subscription_data=subscription,
            filter_data=remark if subscription is None else None,
            queue_data=tuple(rows),
            max_queue_index=reach.max_offset,
            min_queue_index=reach.min_offset,
        )

    async def _subscription_at(
        self, broker: str, group: str, topic: str
    ) -> SubscriptionData | None:
        """Return a group's subscription to a topic; None if no member is online with one."""
        try:
            members = await self.members(group, broker)
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        return members.subscription_table.get(topic)
