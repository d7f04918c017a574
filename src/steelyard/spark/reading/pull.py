"""Reading a range of one queue: pulls over a blocking connection, decoded to columns.

The next pull is in flight while earlier replies are decoded, so broker and worker work in parallel;
replies are decoded together until a batch has `ROWS_MIN` rows, because Spark moves large batches at
half the cost of small ones. A broker of ours answers with what Kafka's producers wrote as it is
stored (`record_batches`); others, and for pulls with a filter ours as well, make messages of it.

A broker that goes away is looked up and connected to again, and the read continues where it was,
for as long as the option retryTimeoutMs allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from steelyard.errors import BrokerError, ProtocolError, RemotingError, SteelyardError
from steelyard.spark.options.reading import Options
from steelyard.spark.reading import columns, record_batches
from steelyard.spark.reading.catalog import NOTHING_FOUND, Catalog, readable_queues
from steelyard.spark.reading.planning import QueueRange, data_loss
from steelyard.spark.reading.record_columns import RecordOrigin
from steelyard.spark.servers.link import Link
from steelyard.spark.servers.patience import Patience
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MIN = 10_000
"""Minimum rows of a batch, if the queue has that many."""
PULL_BYTES_MAX = 4 << 20
"""Bytes requested per pull. Brokers have lower limits of their own."""


class _Answer(NamedTuple):
    """What a pull at offset `start` found; the next one continues at `following`.

    `unique_prefix`: None for messages; otherwise `body` is record batches.
    """

    start: int
    following: int
    body: bytes
    unique_prefix: str | None


def batches(queue: QueueRange, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the messages of `queue.start`..`queue.end`, in order, each once.

    Raises ConfigError for lost data if `failOnDataLoss` is set, BrokerError and RemotingError.
    """
    extra = ("queueOffset", *(("tags",) if options.tags else ()))
    names = tuple(dict.fromkeys((*options.columns, *extra)))
    for answers in _together(queue, options):
        for batch in _decoded(answers, queue, names):
            found = _within(batch, queue)
            if options.tags:
                found = columns.with_tags(found, options.tags)
            yield found if len(names) == len(options.columns) else found.select(options.columns)


def messages(queue: QueueRange, options: Options) -> Iterator[bytes]:
    """Yield the messages of a range as brokers send them, pull by pull; those of Kafka as well.

    There may be some after the end of the range. Raises as `batches`.
    """
    for answer in _answers(queue, options, takes_batches=False):
        yield answer.body


def _together(queue: QueueRange, options: Options) -> Iterator[list[_Answer]]:
    """Yield answers of one kind that are enough for a batch."""
    filtered = bool(options.tags or options.condition)
    answers: list[_Answer] = []
    size = rows = 0
    for answer in _answers(queue, options, takes_batches=not filtered):
        if answers and answers[-1].unique_prefix != answer.unique_prefix:
            yield answers
            answers, size, rows = [], 0, 0
        answers.append(answer)
        size += len(answer.body)
        rows += (
            0 if filtered else answer.following - answer.start
        )  # the offsets passed over are no rows
        if rows >= ROWS_MIN or size >= record_batches.BYTES_MAX:
            yield answers
            answers, size, rows = [], 0, 0
    if answers:
        yield answers


def _decoded(
    answers: list[_Answer], queue: QueueRange, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    prefix = answers[0].unique_prefix
    if prefix is not None:
        origin = RecordOrigin(queue.topic, queue.broker_name, queue.queue_id, prefix)
        given = (record_batches.GivenBatches(answer.start, answer.body) for answer in answers)
        yield from record_batches.decode(given, queue.end, origin, names)
    else:
        data = answers[0].body
        if len(answers) > 1:
            data = b"".join([answer.body for answer in answers])
        yield columns.decode(data, queue.broker_name, names)


def _within(batch: pa.RecordBatch, queue: QueueRange) -> pa.RecordBatch:
    """Return the rows before the end of the range.

    A broker may return more than requested; offsets increase, so the excess is at the end.
    """
    offsets = batch.column("queueOffset").to_numpy()
    if len(offsets) and offsets[-1] >= queue.end:
        return batch.slice(0, int(offsets.searchsorted(queue.end)))
    return batch


def _answers(queue: QueueRange, options: Options, *, takes_batches: bool) -> Iterator[_Answer]:
    """Yield what pulls found. `takes_batches`: also record batches."""
    offset, address = queue.start, queue.address
    patience = Patience(options.retry_timeout_ms)
    link: Link | None = None
    opaque: int | None = None
    try:
        while offset < queue.end:
            try:
                if link is None:
                    link = Link(address, options.timeout_ms, options.access)
                if opaque is None:
                    opaque = link.send(_request(queue, options, offset, takes_batches))
                reply = link.receive(opaque)
                opaque = None
                following = _next_offset(link, reply, queue, options, offset)
                if offset < following < queue.end:
                    opaque = link.send(_request(queue, options, following, takes_batches))
            except SteelyardError as error:
                if link is not None:
                    link.close()
                link = opaque = None
                patience.wait(error)
                address = _address(queue, options, address)
                continue
            if following == offset:
                patience.wait(_empty(queue, offset, reply))
                continue
            patience.reset()
            start, offset = offset, following
            if reply.code == ResponseCode.SUCCESS:
                header = headers.read(headers.PullMessageResponseHeader, reply.ext)
                yield _Answer(start, following, reply.body, header.unique_prefix)
    finally:
        if link is not None:
            link.close()


def _empty(queue: QueueRange, offset: int, reply: Command) -> RemotingError:
    return RemotingError(
        f"{queue.address} repeatedly returns no message at offset {offset} of queue"
        f" {queue.queue_id}: {reply.remark}"
    )


def _address(queue: QueueRange, options: Options, known: str) -> str:
    """Return where the queue is now; the address known if no nameserver has one."""
    try:
        with Catalog(options) as catalog:
            found = readable_queues(catalog.route(queue.topic), queue.topic)
            return found.get(queue.queue, known)
    except SteelyardError:
        return known


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
        case code if code in NOTHING_FOUND:
            header = headers.read(headers.PullMessageResponseHeader, reply.ext)
            following = header.next_begin_offset
            if options.fail_on_data_loss and _is_loss(reply.code, header, offset):
                raise data_loss(
                    queue.queue, f"has no offset {offset} any more, but continues at {following}"
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


def _is_loss(code: int, header: headers.PullMessageResponseHeader, offset: int) -> bool:
    """Return whether a pull that found nothing passed over messages that no longer exist."""
    following = header.next_begin_offset
    if code == ResponseCode.PULL_RETRY_IMMEDIATELY and following > offset:
        # it passed over messages that the filter refuses, or over markers of transactions
        return header.min_offset > offset
    return following != offset


def _request(queue: QueueRange, options: Options, offset: int, takes_batches: bool) -> Command:
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
        subscription=options.condition or " || ".join(sorted(options.tags)) or "*",
        sub_version=0,
        expression_type="SQL92" if options.condition else "TAG",
        max_msg_bytes=PULL_BYTES_MAX,
        takes_batches=takes_batches or None,
        bname=queue.broker_name,
    )
    return Command(RequestCode.PULL_MESSAGE, ext=headers.write(header))
