"""Messages of a Kafka topic, read without a group."""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.driver.blocking_links import check_code
from steelyard.errors import ProtocolError, RemotingError, RouteError
from steelyard.nodes.consumer.kafka.contract import ConsumerRecord
from steelyard.nodes.consumer.kafka.decoding import Fetched
from steelyard.types import TopicPartition
from steelyard.web.console.answers import BrowsedMessage, MessagesAnswer
from steelyard.web.console.bodies import body_view, shown
from steelyard.web.console.kafka.picture import key_of
from steelyard.web.console.kafka.servers import KafkaBrokers, partitions
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
from steelyard.web.console.walk import Read, last_each, walk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from steelyard.wire.kafka.messages.logs import EARLIEST, LATEST

NAMED_VERSION = 12
"""The last version of Fetch in which topics have names instead of ids."""

FETCH_BYTES_MAX = 1024 * 1024
"""Bytes of one fetch; a batch that is larger is returned whole."""

READ_COMMITTED = 1

RECORDS_MAX = 500
"""Most records that are taken of one fetch."""


async def browse(servers: KafkaBrokers, question: MessagesQuestion) -> MessagesAnswer:
    """Return messages of a topic or of one partition. Raises RouteError."""
    places = _wanted(partitions(await servers.topic(question.topic)), question)
    where = beginning(question.from_)
    firsts = await servers.offsets_at(dict.fromkeys(places, EARLIEST))
    ends = await servers.offsets_at(dict.fromkeys(places, LATEST))
    by_key = {key_of(place): place for place in places if place in firsts and place in ends}
    if not by_key and places:
        await servers.check_topic(question.topic)
        raise RemotingError(f"no broker leads {question.topic} at the moment")
    last = {key: ends[place][0] for key, place in by_key.items()}
    starts = await _starts(servers, by_key, last, where, question)
    for key, place in by_key.items():
        starts[key] = min(max(starts[key], firsts[place][0]), last[key])
    leaders = await servers.leaders(places)

    async def read(key: str, offset: int) -> Read:
        if offset >= last[key]:
            return Read([], offset, True)
        place = by_key[key]
        return await _fetch(servers, leaders[place], place, offset, last[key])

    def is_wanted(message: BrowsedMessage) -> bool:
        tags = [value for name, value in message.headers if name == "TAGS"]
        return (question.key is None or message.key == question.key) and (
            question.tag is None or question.tag in tags
        )

    from_end = where is Edge.LATEST
    limit = len(by_key) * RECORDS_MAX if from_end else question.limit
    found = await walk(starts, read, is_wanted, limit)
    return MessagesAnswer(
        messages=found.messages[-question.limit :],
        next=None if found.is_end else cursor(question.topic, found.offsets),
    )


def _wanted(places: list[TopicPartition], question: MessagesQuestion) -> list[TopicPartition]:
    if question.queue is None:
        return places
    found = [place for place in places if key_of(place) == question.queue]
    if not found:
        raise RouteError(
            f"queue is {question.queue!r}; the queues of {question.topic} are"
            f" {question.topic}/0 to {question.topic}/{len(places) - 1}"
        )
    return found


async def _starts(
    servers: KafkaBrokers,
    by_key: Mapping[str, TopicPartition],
    ends: Mapping[str, int],
    where: Beginning,
    question: MessagesQuestion,
) -> dict[str, int]:
    """Return where each partition begins, which may be before its first record.

    `ends`: of the partitions, by key.
    """
    match where:
        case AtOffset(offset):
            return dict.fromkeys(by_key, offset)
        case AtCursor():
            return where.starts(question.topic, by_key)
        case AtTime(at):
            found = await servers.offsets_at(dict.fromkeys(by_key.values(), at))
            places = {key: found.get(place, (-1, -1))[0] for key, place in by_key.items()}
            return {key: ends[key] if place < 0 else place for key, place in places.items()}
        case Edge.EARLIEST:
            return dict.fromkeys(by_key, 0)
        case Edge.LATEST:
            is_filtered = question.key is not None or question.tag is not None
            back = last_each(question.limit, len(by_key), is_filtered=is_filtered)
            return {key: end - back for key, end in ends.items()}


async def _fetch(
    servers: KafkaBrokers, address: str, place: TopicPartition, offset: int, end: int
) -> Read:
    """Return records from an offset on; `end`: where to stop."""
    part = FetchPartition(place.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)
    request = FetchRequest(
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=READ_COMMITTED,
        topics=(FetchTopic(place.topic, partitions=(part,)),),
    )
    answer = await servers.calls.call(
        address, FETCH, request, FetchResponse, version_max=NAMED_VERSION
    )
    check_code(address, answer.error_code, f"a fetch of {place.topic}")
    rows = [row for topic in answer.responses for row in topic.partitions]
    if not rows:
        return Read([], offset, True)
    if rows[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Read([], end, True)  # deleted meanwhile
    check_code(address, rows[0].error_code, f"a fetch of {place.topic}")
    data = rows[0].records
    assert data is None or isinstance(data, bytes)
    fetched = Fetched(place, data or b"", offset, rows[0].aborted_transactions, check_crcs=False)
    records: list[ConsumerRecord] = []
    try:
        while len(records) < RECORDS_MAX and (more := fetched.more()):
            records += more
    except ProtocolError:
        if not records:
            return Read([], end, True)  # what is damaged cannot be shown
    records = records[:RECORDS_MAX]
    if len(records) == RECORDS_MAX:
        next_offset = records[-1].offset + 1
    else:
        next_offset = fetched.next_offset
    is_end = next_offset >= end or next_offset <= offset
    return Read([_shown(record, key_of(place)) for record in records], next_offset, is_end)


def _shown(record: ConsumerRecord, key: str) -> BrowsedMessage:
    """Return a record as it is shown."""
    is_created = record.timestamp_type == 0
    return BrowsedMessage(
        id=None,
        key=shown(record.key),
        keys=[],
        tag=None,
        queue=key,
        offset=record.offset,
        stored_at=max(0, record.timestamp),
        born_at=max(0, record.timestamp) if is_created else None,
        size=len(record.key or b"") + len(record.value or b""),
        properties={},
        headers=[(name, shown(value)) for name, value in record.headers],
        body=None if record.value is None else body_view(record.value),
    )
