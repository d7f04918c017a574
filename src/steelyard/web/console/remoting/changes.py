"""Changes of a cluster of RocketMQ's protocol: offsets of a group, and topics."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.client.administration.resets import END
from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.errors import RouteError
from steelyard.web.console.answers import OffsetChange
from steelyard.web.console.questions import CreateTopic, ResetOffsets
from steelyard.web.console.remoting.picture import key_of
from steelyard.wording import counted


async def reset(
    admin: Admin, consumer: PullConsumer, group: str, wanted: ResetOffsets
) -> Sequence[OffsetChange]:
    """Reset a group in a topic; its members follow. Or return what that would change."""
    before = await _committed(admin, group, wanted.topic)
    reach = await admin.topic_stats(wanted.topic)
    if not wanted.dry_run:
        time = {"earliest": 0, "latest": END}.get(str(wanted.to))
        timestamp = int(wanted.to) if time is None else time
        done = await admin.reset_offset(group, wanted.topic, timestamp=timestamp)
        after = {one.queue: one.offset for one in done}
    elif wanted.to == "earliest":
        after = {queue: row.min_offset for queue, row in reach.items()}
    elif wanted.to == "latest":
        after = {queue: row.max_offset for queue, row in reach.items()}
    else:
        time = int(wanted.to)
        after = {queue: await consumer.offset_for_timestamp(queue, time) for queue in reach}
    return [
        OffsetChange(queue=key_of(queue), before=before.get(queue), after=after[queue])
        for queue in sorted(after)
    ]


async def _committed(admin: Admin, group: str, topic: str) -> dict[object, int]:
    try:
        stats = await admin.consume_stats(group, topic)
    except RouteError:
        return {}  # nothing yet
    return {queue: row.consumer_offset for queue, row in stats.offset_table.items()}


async def create(admin: Admin, topic: CreateTopic) -> str:
    """Create a topic on every broker of the only cluster."""
    addresses = await admin.create_topic(topic.name, queues=topic.queues)
    where = counted(len(addresses), "broker")
    return f"created topic {topic.name} with {counted(topic.queues, 'queue')} on {where}"


async def delete(admin: Admin, name: str) -> str:
    """Delete a topic from all brokers of the only cluster."""
    await admin.route(name)
    await admin.delete_topic(name)
    return f"deleted topic {name} and its messages"
