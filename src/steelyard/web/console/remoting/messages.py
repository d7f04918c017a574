"""Messages of a RocketMQ topic: by queue and offset, by time, and by key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.errors import BrokerError, ConfigError, ProtocolError, RouteError
from steelyard.types import MessageQueue
from steelyard.web.console.answers import BrowsedMessage, MessagesAnswer
from steelyard.web.console.bodies import body_view
from steelyard.web.console.places import (
    AtCursor,
    AtOffset,
    AtTime,
    Beginning,
    Edge,
    beginning,
    cursor,
)
from steelyard.web.console.questions import MessagesQuestion
from steelyard.web.console.remoting.picture import key_of
from steelyard.web.console.walk import Read, last_each, walk
from steelyard.wire.remoting.bodies import TopicOffset
from steelyard.wire.remoting.message import MessageView
from steelyard.wire.remoting.properties import KEY_SEPARATOR

BATCH = 32
"""Messages of one pull: the most that Apache's brokers return."""

_PLAIN_TAG = re.compile(r"[^\s|*]+")
"""A tag that brokers can filter by."""

Reach = Mapping[MessageQueue, TopicOffset]


async def browse(
    admin: Admin, consumer: PullConsumer, question: MessagesQuestion
) -> MessagesAnswer:
    """Return messages of a topic or of one queue. Raises RouteError."""
    where = beginning(question.from_)
    reach = _wanted(await admin.topic_stats(question.topic), question)
    if question.key is not None:
        return await _by_key(admin, question, where)
    by_key = {key_of(queue): queue for queue in sorted(reach)}
    starts = await _starts(consumer, by_key, reach, where, question)
    for key, queue in by_key.items():
        starts[key] = min(max(starts[key], reach[queue].min_offset), reach[queue].max_offset)
    tag = question.tag
    expression = tag if tag and _PLAIN_TAG.fullmatch(tag) else "*"

    async def read(key: str, offset: int) -> Read:
        queue, end = by_key[key], reach[by_key[key]].max_offset
        if offset >= end:
            return Read([], offset, True)
        result = await consumer.pull(queue, offset, expression, max_messages=BATCH)
        following = max(result.next_begin_offset, offset + 1)
        return Read([_shown(one) for one in result.messages], following, following >= end)

    def is_wanted(message: BrowsedMessage) -> bool:
        return not tag or message.tag == tag

    from_end = where is Edge.LATEST
    limit = len(by_key) * question.limit if from_end else question.limit
    found = await walk(starts, read, is_wanted, limit)
    return MessagesAnswer(
        messages=found.messages[-question.limit :],
        next=None if found.is_end or from_end else cursor(question.topic, found.offsets),
    )


def _wanted(reach: Reach, question: MessagesQuestion) -> Reach:
    if question.queue is None:
        return reach
    found = {queue: row for queue, row in reach.items() if key_of(queue) == question.queue}
    if not found:
        some = ", ".join(key_of(queue) for queue in sorted(reach)[:3])
        raise RouteError(f"queue is {question.queue!r}; queues of {question.topic} are {some}")
    return found


async def _starts(
    consumer: PullConsumer,
    by_key: Mapping[str, MessageQueue],
    reach: Reach,
    where: Beginning,
    question: MessagesQuestion,
) -> dict[str, int]:
    """Return where each queue begins, which may be before its first message."""
    match where:
        case AtOffset(offset):
            return dict.fromkeys(by_key, offset)
        case AtCursor():
            return where.starts(question.topic, by_key)
        case AtTime(at):
            return {
                key: await consumer.offset_for_timestamp(queue, at) for key, queue in by_key.items()
            }
        case Edge.EARLIEST:
            return dict.fromkeys(by_key, 0)
        case Edge.LATEST:
            back = last_each(question.limit, len(by_key), is_filtered=bool(question.tag))
            return {key: reach[queue].max_offset - back for key, queue in by_key.items()}


async def _by_key(admin: Admin, question: MessagesQuestion, where: Beginning) -> MessagesAnswer:
    """Return the messages that brokers have in their index, under a key or as unique id."""
    assert question.key is not None
    begin = where.at if isinstance(where, AtTime) else 0
    found: Sequence[MessageView] = await admin.messages_by_key(
        question.topic, question.key, begin=begin
    )
    if not found:
        try:
            found = await admin.messages_by_unique_key(question.topic, question.key)
        except (BrokerError, ConfigError, RouteError):
            found = []
    rows = [_shown(one) for one in found if one.store_timestamp >= begin]
    wanted = [
        row
        for row in rows
        if question.queue in (None, row.queue)
        and question.tag in (None, "", row.tag)
        and (not isinstance(where, AtOffset) or row.offset >= where.offset)
    ]
    from_end = where is Edge.LATEST
    return MessagesAnswer(
        messages=wanted[-question.limit :] if from_end else wanted[: question.limit], next=None
    )


def _shown(view: MessageView) -> BrowsedMessage:
    """Return a message as it is shown; a body that cannot be decompressed as it is stored."""
    try:
        body = view.body
    except ProtocolError:
        body = view.stored_body
    return BrowsedMessage(
        id=view.message_id,
        key=None,
        keys=[key for key in view.keys.split(KEY_SEPARATOR) if key],
        tag=view.tags or None,
        queue=key_of(view.queue),
        offset=view.queue_offset,
        stored_at=view.store_timestamp,
        born_at=view.born_timestamp,
        size=len(body),
        properties=dict(view.properties),
        headers=[],
        body=body_view(body),
    )
