"""What becomes of a Kafka record for RocketMQ consumers, and the conversion of a batch.

    queue offset      offset
    born timestamp    timestamp; the store timestamp if the record has none
    store timestamp   when this broker appended the batch
    body              value, empty for null
    KEYS              key, if it is text
    TAGS              the header of that name, if it is text; tag filters use it
    other properties  the other headers that are text, as many as fit, the last of equal names;
                      not those whose names mean something to brokers and clients (RESERVED)
    UNIQ_KEY          made from broker, log and offset, the same in every reading
    born host         the broker's, because the sender is not stored
    flag, tries       0
    physical offset   the address of its batch, which all of its messages share

Text is UTF-8, not empty, and without U+0001 and U+0002. What is not text is left out.

The offset in a record is ignored: the first record of a batch has its base offset, and so on. Only
where compaction removed records it tells which are left. A message that does not fit into an
answer, a record that cannot be read, and the rest of a batch that cannot be unpacked any further
are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.remoting.subscriptions import Filter, matches
from steelyard.types import Effort
from steelyard.wire.kafka.records import BatchHeader, Record, read_simple
from steelyard.wire.kafka.unpacking import HEADERS_MAX, Unpacking
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX, too_large
from steelyard.wire.remoting.message import RecordWriter, record_writer

RESERVED = frozenset(
    (
        props.KEYS,
        props.WAIT,
        props.DELAY,
        props.UNIQ_KEY,
        props.RETRY_TOPIC,
        props.REAL_TOPIC,
        props.REAL_QID,
        props.TRAN_MSG,
        props.PGROUP,
        props.MIN_OFFSET,
        props.MAX_OFFSET,
        props.ORIGIN_MESSAGE_ID,
        props.RECONSUME_TIME,
        props.MAX_RECONSUME_TIMES,
        props.CONSUME_START_TIME,
        props.MSG_REGION,
        props.TRACE_ON,
        props.CLUSTER,
        props.INSTANCE_ID,
        props.CORRELATION_ID,
        props.REPLY_TO_CLIENT,
        props.TTL,
        props.MSG_TYPE,
        props.ARRIVE_TIME,
        props.PUSH_REPLY_TIME,
        props.TRANSACTION_CHECK_TIMES,
        props.CHECK_IMMUNITY_TIME_IN_SECONDS,
        props.DLQ_ORIGIN_TOPIC,
        props.DLQ_ORIGIN_MESSAGE_ID,
    )
)
"""Headers that do not become properties: with them, a message would seem retried or delayed."""

CONVERT_EFFORT = 3
"""The effort of making a message of a simple record."""
RECORD_EFFORT = 3
"""The additional effort for any other record."""
BYTES_PER_EFFORT = 1_000
"""Bytes of a message that are copied and checksummed in a microsecond."""

_READ_RECORDS = 128
_UNREADABLE = f"a record that is damaged, or has more than {HEADERS_MAX} headers"
_TIMESTAMP_END = 1 << 63
_KEYS = props.KEYS.encode()
_TAGS = props.TAGS.encode()

LeftOut = Callable[[int, int, str], None]
"""Told what has no message: the first offset, the number of records, and why."""


class Found(msgspec.Struct, gc=False):
    """What a read has found so far: messages, their size, and the offset of the first."""

    count_max: int
    bytes_max: int
    parts: list[bytes]
    size: int = 0
    first: int = -1

    def add(self, offset: int, message: bytes) -> bool:
        """Add a message; return False if there is no room for it."""
        size = len(message)
        if self.parts and self.size + size > self.bytes_max:
            return False
        self.first = offset if self.first < 0 else self.first
        self.parts.append(message)
        self.size += size
        return True


def convert(
    records: Unpacking,
    writer: MessageWriter,
    offset: int,
    stop: int,
    wanted: Filter,
    found: Found,
    effort: Effort,
    left_out: LeftOut,
) -> int:
    """Add what a batch has from `offset` to `stop` - 1; return the offset up to which it was read.

    If that is before `stop`, a limit was reached or the effort ended.
    """
    header = records.header
    is_simple = wanted.codes is None and wanted.condition is None
    places = range(header.count)
    offset_at: Callable[[int], int] = range(header.base_offset, header.next_offset).__getitem__
    if header.is_sparse:
        if records.reached < header.count:
            effort.left = records.reach(header.count, effort.left)
            if records.reached < header.count and not records.fault:
                return offset
        places, offset_at = range(records.reached), records.offset_at
    index = bisect_left(places, offset, key=offset_at)
    last = bisect_left(places, stop, key=offset_at)
    while index < last and effort.left > 0 and len(found.parts) < found.count_max:
        until = min(index + _READ_RECORDS, last)
        if records.reached < until:
            effort.left = records.reach(until, effort.left)
            until = min(until, records.reached)
        if index >= until:
            if not records.fault:
                return offset
            left_out(offset, stop - offset, records.fault)
            return stop
        offset = offset_at(index)
        if records.size_of(index) > ANSWER_BYTES_MAX:
            left_out(offset, 1, too_large(records.size_of(index)))
            index += 1
            offset += 1
            continue
        data, borders = records.raw(index, until)
        for begin, end in pairwise(borders):
            if effort.left <= 0 or len(found.parts) == found.count_max:
                return offset
            offset = offset_at(index)
            effort.left -= CONVERT_EFFORT + wanted.effort
            message = None
            if is_simple:
                message = writer.simple_message(data, begin, end, header, offset)
            if message is None:
                is_simple = False  # the others of this batch are hardly so either
                record = records.record(data, begin)
                if record is None:
                    left_out(offset, 1, _UNREADABLE)
                else:
                    effort.left -= RECORD_EFFORT + len(record.headers)
                    message = writer.message(record, offset, wanted)
            if message is not None:
                effort.left -= len(message) // BYTES_PER_EFFORT
                if len(message) > ANSWER_BYTES_MAX:
                    left_out(offset, 1, too_large(len(message)))
                elif not found.add(offset, message):
                    return offset
            index += 1
            offset += 1
    return offset if index < last else stop


class MessageWriter(NamedTuple):
    """What the messages of one batch have in common.

    `address`: that of the batch. `prefix`: what their UNIQ_KEYs begin with.
    """

    write: RecordWriter
    prefix: bytes
    address: int
    stored: int

    @staticmethod
    def of(
        topic: str, queue_id: int, host: bytes, prefix: str, address: int, stored: int
    ) -> MessageWriter:
        """`host`: the broker's, encoded as in messages. `prefix`: see `unique_prefix`."""
        unique = f"{props.UNIQ_KEY}\x01{prefix}".encode()
        writer = record_writer(topic, queue_id, host, host)
        return MessageWriter(writer, unique, address, stored)

    def simple_message(
        self, data: bytes, begin: int, end: int, header: BatchHeader, offset: int
    ) -> bytes | None:
        """Convert the record that is there; return None unless it is one for `read_simple`."""
        try:
            found = read_simple(data, begin, end)
        except (ProtocolError, IndexError):
            return None
        if found is None:
            return None
        timestamp, key, value = found
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        else:
            timestamp += header.base_timestamp
        properties = b"%b%014X\x02" % (self.prefix, offset)
        if key is not None and is_text(key):
            properties = _packed(properties, {_KEYS: key})
        return self._message(offset, timestamp, value, properties)

    def message(self, record: Record, offset: int, wanted: Filter) -> bytes | None:
        """Convert a record; return None if the filter rejects it.

        The offset in the record itself is ignored.
        """
        tags, properties = _properties(record, b"%b%014X\x02" % (self.prefix, offset))
        if (
            wanted.codes is not None
            and (tag_code(tags.decode()) if tags else 0) not in wanted.codes
        ):
            return None
        if wanted.condition is not None and not matches(wanted.condition, properties):
            return None
        return self._message(offset, record.timestamp, record.value or b"", properties)

    def _message(self, offset: int, timestamp: int, body: bytes, properties: bytes) -> bytes:
        born = timestamp if 0 <= timestamp < _TIMESTAMP_END else self.stored
        return self.write(0, offset, self.address, born, self.stored, body, properties)


def unique_prefix(host: bytes, log_id: int) -> str:
    """Return what the UNIQ_KEYs of a log's messages begin with: IP address, port, log.

    With the 14 hexadecimal digits of the offset that follow, they are as long as those of
    producers: 32 digits, or 56 with IPv6.
    """
    return (host[:-4] + host[-2:] + log_id.to_bytes(3, "big")).hex().upper()


def _properties(record: Record, unique: bytes) -> tuple[bytes, bytes]:
    """Return the tag and the packed properties, which begin with `unique`."""
    texts: dict[bytes, bytes] = {}
    for header, value in record.headers:
        name = property_name(header)
        if name and value and is_text(value):
            texts[name] = value
    tags = texts.pop(_TAGS, b"")
    packed = _packed(unique, {_TAGS: tags})
    if packed == unique:
        tags = b""
    if record.key is not None and is_text(record.key):
        packed = _packed(packed, {_KEYS: record.key})
    return tags, _packed(packed, texts)


@lru_cache(1_000)
def property_name(header: str) -> bytes:
    """Return the name of the property that a header becomes; empty if it becomes none."""
    name = header.encode(errors="replace")
    return name if header not in RESERVED and is_text(name) else b""


def is_text(value: bytes) -> bool:
    """Return whether a property can have this value; an empty one is left out anyway."""
    if b"\x01" in value or b"\x02" in value:
        return False
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _packed(packed: bytes, texts: Mapping[bytes, bytes]) -> bytes:
    """Return packed properties with those of these after them that are not empty and fit."""
    for name, text in texts.items():
        part = b"%b\x01%b\x02" % (name, text)
        if text and len(packed) + len(part) <= props.PROPERTIES_BYTES_MAX:
            packed += part
    return packed
