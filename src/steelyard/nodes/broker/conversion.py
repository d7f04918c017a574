"""Conversion of messages of one dialect for readers of the other, when they are read.

A RocketMQ message, for a Kafka consumer (`to_batch`; messages back to back become one batch):

    offset            queue offset
    timestamp         born timestamp
    key               the property KEYS, null without one
    value             the body, decompressed
    headers           all other properties, including TAGS and UNIQ_KEY, in their order

A Kafka record, for a RocketMQ consumer (`to_message`):

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

The address of a batch does not identify a message. Viewing by id finds nothing there, and a message
that is sent back is refused as if it no longer existed; RocketMQ's clients then send a copy of it
themselves. Queries by key and by unique key find converted messages.

Control batches and records of aborted transactions are left out, and nothing beyond the last stable
offset is read: RocketMQ's consumers have no notion of uncommitted messages. A message that does not
fit into an answer, a record that cannot be read, and the rest of a batch that cannot be unpacked
any further are skipped (`skipped`).

A batch is unpacked as far as it is read, and kept for readers of the rest. A read takes an
`Effort`; if that ends before the first record is found, there is no answer yet, and repeating the
read gets further.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from steelyard.errors import ProtocolError
from steelyard.groups.remoting.subscriptions import Filter
from steelyard.nodes.broker.filters import SCAN_MESSAGES_MAX, matches
from steelyard.nodes.broker.skipped import ANSWER_BYTES_MAX, PassedOver, too_large
from steelyard.nodes.broker.turns import SLICE, Effort
from steelyard.store.entry import BATCHES
from steelyard.store.log import Log
from steelyard.store.reads import Slice
from steelyard.wire.kafka.records import BatchHeader, Record, read_headers, write_batch
from steelyard.wire.kafka.unpacking import HEADERS_MAX, Unpacking
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.flags import decompress, tag_code
from steelyard.wire.remoting.message import (
    MessageView,
    decode_records,
    encode_record,
    record_size,
)

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

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Approximate limit of the memory of unpacked batches; the newest one is always kept.

Readers come soon for the rest of a batch.
"""
UNPACKED_MAX = 256
"""Maximum of unpacked batches that are kept."""

CONVERTED_BYTES_MAX = 1024 * 1024
"""Maximum bytes of RocketMQ messages that become one batch."""
BODY_BYTES_MAX = 16 * 1024 * 1024
"""Largest decompressed body for Kafka's consumers, some 20 ms of work.

It is four times the default maxMessageSize.
"""

CONVERT_EFFORT = 5
"""The effort of reading a record and making a message of it."""
TO_KAFKA_EFFORT = 12
"""The effort of reading a message and making a record of it."""
BYTES_PER_EFFORT = 1_000
"""Bytes of a message that are copied and checksummed in a microsecond."""

_READ_RECORDS = 32
_UNREADABLE = f"a record that is damaged, or has more than {HEADERS_MAX} headers"
_RUN_BYTES = 64 * 1024
_TIMESTAMP_END = 1 << 63


class _Unpacked(msgspec.Struct, gc=False):
    """A batch, and its records if RocketMQ's consumers may have them.

    `size`: its memory when last measured.
    """

    header: BatchHeader
    address: int
    records: Unpacking | None
    size: int = 0


class _Found(msgspec.Struct, gc=False):
    """What a read has found so far: messages, their size, and the offset of the first."""

    count_max: int
    bytes_max: int
    parts: list[bytes]
    size: int = 0
    first: int = -1

    def slice(self, next_offset: int) -> Slice:
        first = self.first if self.parts else next_offset
        return Slice(b"".join(self.parts), len(self.parts), next_offset, first)


class Visible(Protocol):
    """Which transactions readers may see."""

    def last_stable(self, log: Log) -> int:
        """Return the last stable offset: every transaction before it has ended."""

    def aborted(self, log: Log, first: int, next_offset: int) -> Sequence[tuple[int, int, int]]:
        """Return the aborted transactions that overlap with `first` to `next_offset` - 1.

        Each as producer id, first offset, last offset.
        """


class Conversion:
    """Reads batches as RocketMQ records.

    `host`: the broker's, encoded as in messages. `visible`: None if everything may be read.
    """

    def __init__(self, host: bytes, visible: Visible | None = None) -> None:
        self._visible = visible
        self.passed = PassedOver()
        self._host = host
        self._unpacked: OrderedDict[int, _Unpacked] = OrderedDict()
        """By the address of the batch; those read the longest ago come first."""
        self._unpacked_bytes = 0

    def readable_end(self, log: Log, end: int) -> int:
        """Return `end`, or the last stable offset if that is lower."""
        return end if self._visible is None else min(end, self._visible.last_stable(log))

    def read(
        self,
        log: Log,
        offset: int,
        count_max: int,
        bytes_max: int,
        wanted: Filter,
        end: int,
        effort: Effort | None = None,
    ) -> Slice | None:
        """Read messages from `offset` on, which is in a batch, up to a stored record or the limits.

        The result is as that of `Log.read`. A bounded number of records is examined: an empty slice
        with a `next_offset` above `offset` means "read on". None if the effort (by default that of
        a turn) ended before the record at `offset` was found; the next call unpacks more of its
        batch.
        """
        effort = Effort(SLICE) if effort is None else effort
        end = min(self.readable_end(log, end), log.max_offset)
        stop = min(end, offset + SCAN_MESSAGES_MAX)
        found = _Found(count_max, min(bytes_max, ANSWER_BYTES_MAX), [])
        start = offset
        while offset < stop:
            before = offset
            for batch in self._batches(log, offset, stop):
                offset = self._read_batch(log, batch, offset, stop, wanted, found, effort)
                if offset < min(stop, batch.header.next_offset):
                    return None if offset == start else found.slice(offset)
            if offset == before:
                break
        return found.slice(offset)

    def _read_batch(
        self,
        log: Log,
        batch: _Unpacked,
        offset: int,
        stop: int,
        wanted: Filter,
        found: _Found,
        effort: Effort,
    ) -> int:
        """Add what the batch has from `offset` on; return the offset up to which it was read.

        If that is before the batch's end, a limit was reached or the effort ended.
        """
        base, records = batch.header.base_offset, batch.records
        stop = min(stop, batch.header.next_offset)
        if records is None:
            return stop
        stored = log.stored_at(offset)
        prefix = unique_prefix(self._host, log.log_id)
        while offset < stop and effort.left > 0 and len(found.parts) < found.count_max:
            index = offset - base
            until = min(index + _READ_RECORDS, stop - base)
            if records.reached < until:
                effort.left = records.reach(until, effort.left)
                self._account(batch)
                until = min(until, records.reached)
            if index >= until:
                if not records.fault:
                    break
                self.passed.note(log, offset, stop - offset, records.fault)
                return stop
            if records.size_of(index) > ANSWER_BYTES_MAX:
                self.passed.note(log, offset, 1, too_large(records.size_of(index)))
                offset += 1
                continue
            for record in records.records(index, until):
                if effort.left <= 0 or len(found.parts) == found.count_max:
                    break
                effort.left -= CONVERT_EFFORT + wanted.effort
                if record is None:
                    self.passed.note(log, offset, 1, _UNREADABLE)
                else:
                    effort.left -= len(record.headers)
                    place = offset, batch.address, stored
                    unique = f"{prefix}{offset:014X}"
                    message = to_message(record, log, place, self._host, unique, wanted)
                    if message is not None and not self._add(log, offset, message, found, effort):
                        return offset
                offset += 1
        return offset

    def _add(self, log: Log, offset: int, message: bytes, found: _Found, effort: Effort) -> bool:
        """Add a message to what is found; return False if there is no room for it."""
        size = len(message)
        effort.left -= size // BYTES_PER_EFFORT
        if size > ANSWER_BYTES_MAX:
            self.passed.note(log, offset, 1, too_large(size))
            return True
        if found.parts and found.size + size > found.bytes_max:
            return False
        found.first = offset if found.first < 0 else found.first
        found.parts.append(message)
        found.size += size
        return True

    def _batches(self, log: Log, offset: int, stop: int) -> Iterator[_Unpacked]:
        """Yield the batch that holds `offset` and some that follow; nothing if a record is there.

        Batches from `stop` on are not yielded: their transactions may not have ended yet.
        """
        address = log.address_at(offset)
        known = self._unpacked.get(address)
        if known is not None:
            self._unpacked.move_to_end(address)
            yield known
            return
        run = log.read_run(offset, _RUN_BYTES)
        if run.kind != BATCHES:
            return
        hidden: Sequence[tuple[int, int, int]] = ()
        if self._visible is not None:
            hidden = self._visible.aborted(log, run.first_offset, run.next_offset)
        for at, header in read_headers(run.data):
            if header.base_offset >= stop:
                return
            records = None
            if not header.is_control and not is_aborted(header, hidden):
                records = Unpacking(run.data[at : at + header.size], header)
            batch = _Unpacked(header, address + at, records)
            self._forget(batch.address)
            self._unpacked[batch.address] = batch
            self._account(batch)
            yield batch

    def _account(self, batch: _Unpacked) -> None:
        """Account for a batch that may have grown, and evict those read the longest ago."""
        size = 0 if batch.records is None else batch.records.size
        self._unpacked_bytes += size - batch.size
        batch.size = size
        while len(self._unpacked) > 1 and (
            self._unpacked_bytes > UNPACKED_BYTES_MAX or len(self._unpacked) > UNPACKED_MAX
        ):
            self._forget(next(iter(self._unpacked)))

    def _forget(self, address: int) -> None:
        gone = self._unpacked.pop(address, None)
        if gone is not None:
            self._unpacked_bytes -= gone.size

    def check(self) -> None:
        assert self._unpacked_bytes == sum(batch.size for batch in self._unpacked.values())
        assert self._unpacked_bytes <= UNPACKED_BYTES_MAX or len(self._unpacked) == 1
        assert len(self._unpacked) <= UNPACKED_MAX


def is_aborted(header: BatchHeader, hidden: Sequence[tuple[int, int, int]]) -> bool:
    """Return whether the batch belongs to one of these aborted transactions.

    Each is given as producer id, first offset, last offset.
    """
    return header.is_transactional and any(
        producer_id == header.producer_id and first <= header.base_offset <= last
        for producer_id, first, last in hidden
    )


# -- to RocketMQ -----------------------------------------------------------------------------------


def to_message(
    record: Record,
    log: Log,
    place: tuple[int, int, int],
    host: bytes,
    unique: str,
    wanted: Filter,
) -> bytes | None:
    """Convert a record for RocketMQ's consumers; return None if the filter rejects it.

    `place`: its offset, the address of its batch, and the store timestamp; the offset in the record
    itself is ignored. `unique`: its UNIQ_KEY.
    """
    tags, properties = _properties(record, unique)
    if wanted.codes is not None and (tag_code(tags) if tags else 0) not in wanted.codes:
        return None
    if wanted.condition is not None and not matches(wanted.condition, properties):
        return None
    offset, address, stored = place
    return encode_record(
        topic=log.topic,
        queue_id=log.queue_id,
        flag=0,
        queue_offset=offset,
        physical_offset=address,
        sys_flag=0,
        born_timestamp=record.timestamp if 0 <= record.timestamp < _TIMESTAMP_END else stored,
        born_host=host,
        store_timestamp=stored,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=record.value or b"",
        properties=properties,
    )


def unique_prefix(host: bytes, log_id: int) -> str:
    """Return what the UNIQ_KEYs of a log's messages begin with: IP address, port, log.

    With the 14 hexadecimal digits of the offset that follow, they are as long as those of
    producers: 32 digits, or 56 with IPv6.
    """
    return (host[:-4] + host[-2:] + log_id.to_bytes(3, "big")).hex().upper()


def _properties(record: Record, unique: str) -> tuple[str, bytes]:
    """Return the tag and the packed properties."""
    packed = f"{props.UNIQ_KEY}\x01{unique}\x02".encode()
    if record.key is None and not record.headers:
        return "", packed
    texts: dict[str, str] = {}
    for name, value in record.headers:
        text = _text(value)
        if text and name not in RESERVED and _text(name.encode(errors="replace")):
            texts[name] = text
    tags = texts.pop(props.TAGS, "")
    for name, text in ((props.TAGS, tags), (props.KEYS, _text(record.key)), *texts.items()):
        part = f"{name}\x01{text}\x02".encode()
        if text and len(packed) + len(part) <= props.PROPERTIES_BYTES_MAX:
            packed += part
        elif name == props.TAGS:
            tags = ""
    return tags, packed


def _text(value: bytes | None) -> str:
    """Return a value as text for a property, or "" if it is none."""
    if not value or b"\x01" in value or b"\x02" in value:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


# -- to Kafka --------------------------------------------------------------------------------------


def to_batch(data: bytes, bytes_max: int, effort: Effort) -> tuple[bytes, int]:
    """Convert RocketMQ records to one batch; return it, and the offset after its last.

    `data` has records of consecutive offsets back to back, at least one, as a `Run` of
    `entry.RECORDS` does. As many are taken as fit into `bytes_max` and CONVERTED_BYTES_MAX, as
    stored and with bodies decompressed, and as the effort allows, but always one.
    """
    bytes_max = min(bytes_max, CONVERTED_BYTES_MAX)
    records: list[Record] = []
    size = position = 0
    while not records or (position < len(data) and effort.left > 0):
        end = position + record_size(data, position)
        if records and end > bytes_max:
            break
        (view,) = decode_records(data[position:end])
        record = to_record(view)
        plain = len(record.value or b"") + len(view.property_bytes)
        effort.left -= TO_KAFKA_EFFORT + len(record.headers) + plain // BYTES_PER_EFFORT
        size += plain
        if records and size > bytes_max:
            break
        records.append(record)
        position = end
    return write_batch(records), records[-1].offset + 1


def to_record(view: MessageView) -> Record:
    """Convert a message to a Kafka record.

    A body that cannot be decompressed, or only to more than BODY_BYTES_MAX, stays as it is.
    """
    try:
        body = decompress(view.stored_body, view.sys_flag, BODY_BYTES_MAX)
    except ProtocolError:
        body = view.stored_body
    properties = dict(view.properties)
    keys = properties.pop(props.KEYS, None)
    return Record(
        view.queue_offset,
        view.born_timestamp,
        None if keys is None else keys.encode(),
        body,
        tuple((name, value.encode()) for name, value in properties.items()),
    )
