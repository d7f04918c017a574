"""Reading a range of one queue: pulls over a blocking connection, decoded to columns.

The next pull is in flight while earlier replies are decoded, so broker and worker work in parallel;
replies are decoded together until a batch has `ROWS_MIN` rows, because Spark moves large batches at
half the cost of small ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from steelyard.errors import BrokerError, ProtocolError, RemotingError
from steelyard.spark import columns
from steelyard.spark.link import Link
from steelyard.spark.options import Options
from steelyard.spark.planning import QueueRange, data_loss
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MIN = 10_000
"""Minimum rows of a batch, if the queue has that many."""
BATCH_BYTES = 8 << 20
"""Size at which a batch is closed, so that large messages do not fill the memory."""
PULL_BYTES_MAX = 4 << 20
"""Bytes requested per pull. Brokers have lower limits of their own."""
EMPTY_PULLS_MAX = 20
EMPTY_PULL_WAIT_S = 0.05
"""Wait between retries while a broker answers "try again" because it deletes old files."""


def batches(queue: QueueRange, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the messages of `queue.start`..`queue.end`, in order, each once.

    Raises ConfigError for lost data if `failOnDataLoss` is set, BrokerError and RemotingError.
    """
    with Link(queue.address, options.timeout_ms) as link:
        pieces: list[bytes] = []
        size = rows = 0
        for body, count in _replies(link, queue, options):
            pieces.append(body)
            size += len(body)
            rows += count
            if rows >= ROWS_MIN or size >= BATCH_BYTES:
                yield _batch(pieces, queue)
                pieces, size, rows = [], 0, 0
        if pieces:
            yield _batch(pieces, queue)


def _batch(pieces: list[bytes], queue: QueueRange) -> pa.RecordBatch:
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    batch = columns.decode(data, queue.broker_name)
    offsets = batch.column("queueOffset").to_numpy()
    # A broker may return more than requested; offsets increase, so the excess is at the end.
    if len(offsets) and offsets[-1] >= queue.end:
        batch = batch.slice(0, int(offsets.searchsorted(queue.end)))
    return batch


def _replies(link: Link, queue: QueueRange, options: Options) -> Iterator[tuple[bytes, int]]:
    """Yield contiguous records with their approximate number, per pull that found something."""
    offset = queue.start
    empty = 0
    opaque = link.send(_request(queue, options, offset))
    while True:
        reply = link.receive(opaque)
        following = _next_offset(link, reply, queue, options, offset)
        empty = 0 if following > offset else empty + 1
        if empty > EMPTY_PULLS_MAX:
            raise RemotingError(
                f"{queue.address} repeatedly returns no message at offset {offset} of queue"
                f" {queue.queue_id}: {reply.remark}"
            )
        count = following - offset
        offset = following
        if empty:
            time.sleep(EMPTY_PULL_WAIT_S)
        if offset < queue.end:
            opaque = link.send(_request(queue, options, offset))
        if reply.code == ResponseCode.SUCCESS:
            yield reply.body, count
        if offset >= queue.end:
            return


def _next_offset(
    link: Link, reply: Command, queue: QueueRange, options: Options, offset: int
) -> int:
    """Return where to continue after `reply` to a pull at `offset`."""
    match reply.code:
        case ResponseCode.SUCCESS:
            following = headers.read(headers.PullMessageResponseHeader, reply.ext).next_begin_offset
            if following <= offset:
                raise ProtocolError(
                    f"{queue.address} found messages at {offset}, but continues at {following}"
                )
            return following
        case (
            ResponseCode.PULL_NOT_FOUND
            | ResponseCode.PULL_RETRY_IMMEDIATELY
            | ResponseCode.PULL_OFFSET_MOVED
        ):
            following = headers.read(headers.PullMessageResponseHeader, reply.ext).next_begin_offset
            if following != offset and options.fail_on_data_loss:
                name = (queue.topic, queue.broker_name, queue.queue_id)
                raise data_loss(
                    name, f"has no offset {offset} any more, but continues at {following}"
                )
            # A lower offset means that the end was truncated: nothing is left to read.
            return following if following >= offset else queue.end
        case ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            group = options.consumer_group
            raise BrokerError(
                reply.code,
                f"option 'consumerGroup' is {group!r}, which the broker does not have and does not"
                f" create: {reply.remark}",
                queue.address,
            )
    raise link.refusal(reply)


def _request(queue: QueueRange, options: Options, offset: int) -> Command:
    header = headers.PullMessageRequestHeader(
        consumer_group=options.consumer_group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=min(options.pull_messages_max, queue.end - offset),
        # The pull carries its subscription, because we are not a member that has one.
        sys_flag=PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
        max_msg_bytes=PULL_BYTES_MAX,
        bname=queue.broker_name,
    )
    return Command(RequestCode.PULL_MESSAGE, ext=headers.write(header))
