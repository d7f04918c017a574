"""Record batches, format 2 (magic 2): their headers, their records, and control batches.

    int64  base offset                 int64  base timestamp, ms
    int32  bytes that follow           int64  largest timestamp, ms
    int32  partition leader epoch      int64  producer id, -1 without one
    int8   magic, 2                    int16  producer epoch
    uint32 CRC-32C of what follows     int32  base sequence
    int16  attributes                  int32  number of records
    int32  last offset less the base   the records, compressed together

    attributes: bits 0-2 compression, 3 timestamps are times of append, 4 transactional, 5 control,
    6 the base timestamp is also the delete horizon (KIP-534)

A record, all numbers but the attributes as zigzag varints: size of the rest, int8 attributes,
timestamp less the base, offset less the base, key size and key, value size and value (size -1:
null), number of headers, each: name size and name, value size and value.

The checksum covers neither offset nor epoch, so that a broker can set the base offset without
recomputing it. A valid checksum does not make the producer trustworthy: `read_records` trusts no
size. Older formats (magic 0 and 1, message sets) are refused. Source:
clients/.../record/internal/DefaultRecordBatch.java, DefaultRecord.java, ControlRecordType.java,
EndTransactionMarker.java; KIP-98, KIP-82.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec
from crc32c import crc32c

from steelyard.errors import ProtocolError
from steelyard.wire.kafka.compression import PLAIN_BYTES_MAX, Compression, compress, decompress
from steelyard.wire.kafka.packing import MAGIC, pack_batch, pack_record

HEADER_BYTES = 61
SIZE_BEFORE = 12
"""Bytes of a batch up to and including its size field; the size counts the bytes after it."""
RECORD_BYTES_MIN = 7
"""The smallest record: null key, null value, no headers."""

COMPRESSION_MASK = 0x7
LOG_APPEND_TIME = 0x8
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

ABORT = 0
COMMIT = 1

NULL = 1
"""The varint -1, the size of null."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_CRC_START = 21
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a batch."""

    base_offset: int
    batch_length: int
    """Bytes after this field."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + SIZE_BEFORE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """A `Compression`, or another number if it is unknown."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return from when on compaction may remove tombstones; None if that is not decided."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def is_sparse(self) -> bool:
        """Return whether compaction removed records: there are fewer than offsets."""
        return self.count <= self.last_offset_delta

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def count_fits(self) -> bool:
        """Return whether this many records can fit into this many bytes.

        For compressed ones only the decompressed size is limited.
        """
        room = self.size - HEADER_BYTES if not self.compression else PLAIN_BYTES_MAX
        return (
            0 < self.count == self.last_offset_delta + 1 and self.count * RECORD_BYTES_MIN <= room
        )


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. `timestamp`: ms, -1 without one. Header names may repeat."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Marker(msgspec.Struct, frozen=True, gc=False):
    """The record of a control batch: how its producer's transaction ended.

    `kind`: ABORT or COMMIT.
    """

    kind: int
    coordinator_epoch: int = 0


# -- headers ---------------------------------------------------------------------------------------


def read_header(data: bytes | memoryview, at: int = 0) -> BatchHeader:
    """Read the header of the batch at `at`.

    Raises ProtocolError if there is none, or one of another format.
    """
    if at + HEADER_BYTES > len(data):
        if at + 17 <= len(data) and data[at + 16] != MAGIC:
            raise ProtocolError(
                f"a record batch of format {data[at + 16]}; only format {MAGIC} is supported"
            )
        raise ProtocolError(f"{len(data) - at} bytes are not a record batch")
    header = BatchHeader(*_HEADER.unpack_from(data, at))
    if header.magic != MAGIC:
        raise ProtocolError(
            f"a record batch of format {header.magic}; only format {MAGIC} is supported"
        )
    if header.size < HEADER_BYTES:
        raise ProtocolError(f"a record batch of {header.size} bytes")
    return header


def read_headers(data: bytes, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each contiguous batch in `data`, up to the first incomplete one.

    The last may be truncated, as by a fetch. Raises ProtocolError for anything else in between.
    """
    while at + HEADER_BYTES <= len(data):
        header = read_header(data, at)
        if at + header.size > len(data):
            return
        yield at, header
        at += header.size


def crc_ok(data: bytes | memoryview, at: int = 0, size: int | None = None) -> bool:
    """Return whether the batch at `at` (`size` None: all from there) matches its checksum."""
    end = len(data) if size is None else at + size
    if not at + HEADER_BYTES <= end <= len(data):
        return False
    (crc,) = _CRC.unpack_from(data, at + 17)
    return bool(crc32c(memoryview(data)[at + _CRC_START : end]) == crc)


def with_offset(
    batch: bytes | memoryview,
    base_offset: int,
    leader_epoch: int = 0,
    append_time: int | None = None,
) -> bytes:
    """Return the batch with its offset in a log. One copy; no new checksum without `append_time`.

    `append_time`: the topic's timestamps are append times (message.timestamp.type=LogAppendTime):
    all records get this one.
    """
    with memoryview(batch) as view:
        if append_time is None:
            place, epoch = _PLACE.pack(base_offset), _EPOCH.pack(leader_epoch)
            return b"".join((place, view[8:12], epoch, view[16:]))
        placed = bytearray(view)
    _PLACE.pack_into(placed, 0, base_offset)
    _EPOCH.pack_into(placed, 12, leader_epoch)
    (attributes,) = _ATTRIBUTES.unpack_from(placed, _CRC_START)
    _ATTRIBUTES.pack_into(placed, _CRC_START, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(placed, 35, append_time)
    with memoryview(placed) as view:
        _CRC.pack_into(placed, 17, crc32c(view[_CRC_START:]))
    return bytes(placed)


# -- reading records -------------------------------------------------------------------------------


def read_records(batch: bytes, at: int = 0, bytes_max: int = PLAIN_BYTES_MAX) -> tuple[Record, ...]:
    """Read the records of the batch at `at`, in order.

    Raises ProtocolError if the batch is damaged or its records take more than `bytes_max` bytes.
    Does not check the checksum.
    """
    header = read_header(batch, at)
    end = at + header.size
    if end > len(batch):
        raise ProtocolError(f"a record batch of {header.size} bytes ends after {len(batch) - at}")
    data = decompress(batch[at + HEADER_BYTES : end], header.compression, bytes_max)
    if not 0 <= header.count * RECORD_BYTES_MIN <= len(data):
        raise ProtocolError(f"{header.count} records do not fit in {len(data)} bytes")
    records: list[Record] = []
    position = 0
    try:
        for _ in range(header.count):
            record, position = read_record(data, position, header)
            records.append(record)
    except IndexError:
        raise ProtocolError(f"a record at byte {position} ends too early") from None
    except UnicodeDecodeError as error:
        raise ProtocolError(f"the name of a header is not UTF-8: {error.reason}") from None
    if position != len(data):
        raise ProtocolError(f"{len(data) - position} bytes follow the last record of a batch")
    return tuple(records)


def read_record(
    data: bytes, position: int, header: BatchHeader, headers_max: int | None = None
) -> tuple[Record, int]:
    """Read the record at `position` of the records of `header`; return it and the next position.

    Raises ProtocolError if it has more than `headers_max` headers; this, IndexError or
    UnicodeDecodeError if it is damaged.
    """
    size, at = read_varint(data, position)
    end = at + size
    if size < 0 or end > len(data):
        raise ProtocolError(f"a record at byte {position} claims {size} bytes")
    at += 1  # its attributes, none of which are in use
    timestamp, at = read_varint(data, at)
    offset, at = read_varint(data, at)
    key, at = _read_bytes(data, at, end)
    value, at = _read_bytes(data, at, end)
    count, at = read_varint(data, at)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count:
        if not 0 < count <= end - at:
            raise ProtocolError(f"a record at byte {position} claims {count} headers")
        if headers_max is not None and count > headers_max:
            raise ProtocolError(f"a record with {count} headers; {headers_max} are allowed")
        headers, at = _read_headers(data, at, end, count)
    if at != end:
        raise ProtocolError(f"the parts of a record at byte {position} do not add up to {size}")
    if header.attributes & LOG_APPEND_TIME:
        time = header.max_timestamp
    else:
        time = header.base_timestamp + timestamp
    return Record(header.base_offset + offset, time, key, value, headers), end


def read_simple(data: bytes, at: int, end: int) -> tuple[int, bytes | None, bytes] | None:
    """Read a record without headers, from `at` to `end`, three times as fast as `read_record`.

    Return its timestamp less the base, its key and its value. None if it has headers or no value,
    or if something is wrong with it. Raises IndexError or ProtocolError if the data ends inside.
    """
    while data[at] > 0x7F:  # its size
        at += 1
    byte = data[at + 2]
    if byte < 0x80:
        timestamp, at = (byte >> 1) ^ -(byte & 1), at + 3
    else:
        timestamp, at = read_varint(data, at + 2)
    while data[at] > 0x7F:  # its offset
        at += 1
    at += 1
    key = None
    byte = data[at]
    if byte == NULL:
        at += 1
    else:
        size, at = read_varint(data, at)
        if size < 0:
            return None
        key = data[at : at + size]
        at += size
    byte = data[at]
    if byte < 0x80:
        size, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        size, at = read_varint(data, at)
    after = at + size
    if size < 0 or after + 1 != end or data[after]:
        return None
    return timestamp, key, data[at:after]


def read_brief(data: bytes, at: int) -> tuple[int, int, bytes | None, bool]:
    """Read the record at `at` without its value and headers, twice as fast as `read_record`.

    Return its timestamp and offset, less those of the batch, its key, and whether it has a value.
    Raises IndexError or ProtocolError if the data ends inside.
    """
    while data[at] > 0x7F:  # its size
        at += 1
    byte = data[at + 2]
    if byte < 0x80:
        timestamp, at = (byte >> 1) ^ -(byte & 1), at + 3
    else:
        timestamp, at = read_varint(data, at + 2)
    byte = data[at]
    if byte < 0x80:
        offset, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        offset, at = read_varint(data, at)
    byte = data[at]
    if byte < 0x80:
        size, at = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        size, at = read_varint(data, at)
    if size < 0:
        return timestamp, offset, None, data[at] != NULL
    end = at + size
    return timestamp, offset, data[at:end], data[end] != NULL


def read_times(data: bytes | bytearray, position: int, header: BatchHeader) -> tuple[int, int]:
    """Read only (offset, timestamp) of the record at `position`.

    Raises ProtocolError or IndexError if it is damaged.
    """
    _, at = read_varint(data, position)
    timestamp, at = read_varint(data, at + 1)
    offset, _ = read_varint(data, at)
    if header.attributes & LOG_APPEND_TIME:
        time = header.max_timestamp
    else:
        time = header.base_timestamp + timestamp
    return header.base_offset + offset, time


def _read_headers(
    data: bytes, at: int, end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        if name is None:
            raise ProtocolError("a header of a record has no name")
        value, at = _read_bytes(data, at, end)
        headers.append((str(name, "utf-8"), value))
    return tuple(headers), at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    if at + size > end:
        raise ProtocolError(f"a field of {size} bytes in a record with {end - at} bytes left")
    return data[at : at + size], at + size


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Read a zigzag varint of up to 64 bits. Raises IndexError if the bytes end."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > 63:
            raise ProtocolError(f"a varint of more than 10 bytes ends at byte {at}")


# -- writing records -------------------------------------------------------------------------------


def write_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    compression: int = Compression.NONE,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Encode a batch of records, at least one, in the order of their offsets.

    `base_offset`: None means that of the first record. `attributes`: TRANSACTIONAL, CONTROL,
    LOG_APPEND_TIME.
    """
    assert records, "an empty batch"
    base = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    packed = b"".join(
        pack_record(
            record.timestamp - base_timestamp,
            record.offset - base,
            record.key,
            record.value,
            [(name.encode(), value) for name, value in record.headers],
        )
        for record in records
    )
    return pack_batch(
        compress(packed, compression),
        base_offset=base,
        count=len(records),
        last_offset_delta=records[-1].offset - base,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        attributes=attributes & ~COMPRESSION_MASK | compression,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


# -- control batches -------------------------------------------------------------------------------


def write_marker(
    marker: Marker, *, base_offset: int, producer_id: int, producer_epoch: int, timestamp: int
) -> bytes:
    """Encode the control batch that ends a transaction."""
    key = _MARKER_KEY.pack(0, marker.kind)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return write_batch(
        (Record(base_offset, timestamp, key, value),),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def read_marker(batch: bytes, at: int = 0) -> Marker | None:
    """Read how the transaction ended; None for other control records, which are to be skipped.

    So is a control batch that compaction has emptied. Raises ProtocolError if the batch is not a
    control batch or is damaged.
    """
    header = read_header(batch, at)
    records = read_records(batch, at)
    if not header.is_control:
        raise ProtocolError("a batch of data where a control batch is wanted")
    if not records:
        return None
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _MARKER_KEY.size:
        raise ProtocolError("the key of a control record is too short")
    _, kind = _MARKER_KEY.unpack_from(key)
    if kind not in (ABORT, COMMIT):
        return None
    if value is None or len(value) < _MARKER_VALUE.size:
        raise ProtocolError("the value of a transaction marker is too short")
    return Marker(int(kind), int(_MARKER_VALUE.unpack_from(value)[1]))
