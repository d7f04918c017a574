"""The fields of a Kafka record batch that the store reads; all but its offset is kept as received.

    at   0  int64   base offset               at  23  int32  offset of the last record less the base
    at   8  int32   bytes that follow         at  27  int64  base timestamp
    at  12  int32   leader epoch, 0 here      at  35  int64  largest timestamp
    at  16  int8    magic, 2                  at  43  producer id 8, epoch 2, sequence 4
    at  17  uint32  CRC-32C of bytes 21..end  at  57  int32  count
    at  21  int16   attributes                at  61  the records, opaque

Source: clients/.../record/internal/DefaultRecordBatch.java. `wire.kafka.records` makes and reads
the rest; the two rooms must not import each other, so the few fields that the store needs are read
here.

In the index a batch of n offsets has n equal rows. Instead of a tag code they hold a first byte
that marks a batch, followed by the time of the append, because a batch carries only the producer's
clock.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from steelyard.store.index import TIME_BITS, TIME_MAX

HEAD_BYTES = 61
SIZE_BEFORE = 12
"""Bytes of a batch up to and including its size field; the size counts the bytes after it."""

COUNT_MAX = 1 << 20
"""Maximum number of records in a batch: one index row each, 20 MB in all.

An uncompressed frame of 1 MB holds at most 150,000 records.
"""

KIND = 0x40
"""First byte of a batch's tag code. Java's hash codes, signed 32-bit, begin with 0 or 0xFF."""

_BASE = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC = struct.Struct(">I")
_MAX_TIMESTAMP = struct.Struct(">q")


def row_tag(now: int) -> int:
    """Return the tag code of the index rows of a batch appended at `now`."""
    return KIND << TIME_BITS | min(max(now, 0), TIME_MAX)


def is_batch(tag_code: int) -> bool:
    """Return whether this is the tag code of a batch's row."""
    return tag_code >> TIME_BITS == KIND


def appended_at(tag_code: int) -> int:
    """Return when the batch with this tag code was appended, in ms."""
    return tag_code & TIME_MAX


def base_offset(data: bytes, start: int = 0) -> int:
    (offset,) = _BASE.unpack_from(data, start)
    return int(offset)


def span_of(data: bytes, start: int = 0) -> int:
    """Return how many offsets the batch takes: one for each record that it was written with.

    Compaction may have removed some of the records, even all.
    """
    (last,) = _INT32.unpack_from(data, start + 23)
    return int(last) + 1


def max_timestamp(data: bytes, start: int = 0) -> int:
    """Return the largest timestamp of the records, as given by their producer."""
    (timestamp,) = _MAX_TIMESTAMP.unpack_from(data, start + 35)
    return int(timestamp)


def size_at(data: bytes, start: int = 0) -> int:
    """Return the size of a batch that is known to begin at `start`."""
    (rest,) = _INT32.unpack_from(data, start + 8)
    return SIZE_BEFORE + int(rest)


def size_of(data: bytes, start: int, offset: int) -> int:
    """Return the size of the batch at `start` written for `offset`; 0 if none begins there.

    The first HEAD_BYTES of a batch are enough.
    """
    if (
        start + HEAD_BYTES > len(data)
        or data[start + 16] != 2
        or base_offset(data, start) != offset
    ):
        return 0
    (count,) = _INT32.unpack_from(data, start + 57)
    if not 0 <= count <= span_of(data, start) or not 0 < span_of(data, start) <= COUNT_MAX:
        return 0
    size = size_at(data, start)
    return size if size >= HEAD_BYTES else 0


def is_intact(data: bytes, start: int, size: int) -> bool:
    """Return whether the `size` bytes at `start`, as told by `size_of`, match their checksum."""
    (crc,) = _CRC.unpack_from(data, start + 17)
    return bool(crc32c(memoryview(data)[start + 21 : start + size]) == crc)
