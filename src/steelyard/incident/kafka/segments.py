"""The records of log segments of `__consumer_offsets`, read in bulk.

Segments come as they lie on a broker's disk: record batches one after the other, with any
compression, the last one possibly torn because the file was copied while the broker wrote. Offsets
that were committed in a transaction count from its commit marker on.
Source: storage/.../FileRecords.java, DefaultRecordBatch.java.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from steelyard.errors import ProtocolError
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.wire.kafka.compression import decompress
from steelyard.wire.kafka.records import (
    COMMIT,
    HEADER_BYTES,
    BatchHeader,
    crc_ok,
    read_header,
    read_marker,
    read_varint,
)

Pending = dict[int, list[tuple[int, bytes, bytes | None]]]
"""Records (timestamp, key, value) of open transactions, by producer id."""


class Scanned(NamedTuple):
    """What a segment had. `left`: bytes at its end that are not a whole batch."""

    batches: int
    records: int
    left: int


class SegmentEnd(NamedTuple):
    """The offset after the last whole batch, None if there is none, and its end in the file."""

    offset: int | None
    position: int


class SegmentScanner:
    """Reads the segments of one partition, in order of their offsets."""

    def __init__(self, found: OffsetsTopic) -> None:
        self._found = found
        self._pending: Pending = {}
        self._next_offset = -1

    def scan(self, data: bytes) -> Scanned:
        """Read a segment. Raises ProtocolError if a batch other than the last is damaged."""
        at = batches = records = 0
        end = len(data)
        while at + HEADER_BYTES <= end:
            header = _header(data, at)
            if header is None:
                if not any(data[at:]):
                    break  # preallocated and not written yet
                raise ProtocolError(f"byte {at} is not the beginning of a record batch")
            if at + header.size > end:
                break
            if not crc_ok(data, at, header.size):
                if at + header.size == end:
                    break
                raise ProtocolError(f"the record batch at byte {at} is damaged")
            records += self._batch(data, at, header)
            batches += 1
            at += header.size
        return Scanned(batches, records, end - at)

    def _batch(self, data: bytes, at: int, header: BatchHeader) -> int:
        if header.last_offset < self._next_offset:
            return 0  # a copy of an earlier segment
        self._next_offset = header.next_offset
        begin, end = at + HEADER_BYTES, at + header.size
        if header.is_control:
            self._end_transaction(data[at:end], header.producer_id)
            return 0
        if header.compression:
            data = decompress(data[begin:end], header.compression)
            begin, end = 0, len(data)
        fixed = header.is_log_append_time
        base_time = header.max_timestamp if fixed else header.base_timestamp
        pending = None
        if header.is_transactional:
            pending = self._pending.setdefault(header.producer_id, [])
        try:
            return self._records(data, begin, end, base_time, fixed, pending)
        except (IndexError, struct.error):
            raise ProtocolError(
                f"a record of the batch with offset {header.base_offset} ends too early"
            ) from None

    def _records(
        self,
        data: bytes,
        at: int,
        end: int,
        base_time: int,
        fixed: bool,
        pending: list[tuple[int, bytes, bytes | None]] | None,
    ) -> int:
        """Pass the records on. Most of the time of a large dump is spent here.

        Varints that usually have one byte are read in line.
        """
        take = self._found.take
        commits = self._found.by_key.get
        count = 0
        while at < end:
            size, at = read_varint(data, at)
            next_at = at + size
            time = base_time
            if data[at + 1]:
                delta, at = read_varint(data, at + 1)
                if not fixed:
                    time += delta
            else:
                at += 2
            while data[at] > 0x7F:  # the offset within the batch
                at += 1
            byte = data[at + 1]
            if byte < 0x80:
                size, at = (byte >> 1) ^ -(byte & 1), at + 2
            else:
                size, at = read_varint(data, at + 1)
            key = data[at : at + size] if size >= 0 else b""
            at += max(size, 0)
            byte = data[at]
            if byte < 0x80:
                size, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                size, at = read_varint(data, at)
            value = data[at : at + size] if size >= 0 else None
            if pending is not None:
                pending.append((time, key, value))
            else:
                series = commits(key)
                if series is None or value is None:
                    take(time, key, value)
                else:
                    series.add(value)
            count += 1
            at = next_at
        return count

    def _end_transaction(self, batch: bytes, producer: int) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        records = self._pending.pop(producer, [])
        if marker.kind == COMMIT:
            for time, key, value in records:
                self._found.take(time, key, value)


def segment_end(data: bytes | memoryview) -> SegmentEnd:
    """Return where the whole batches of a segment end."""
    at, offset = 0, None
    while (header := _header(data, at)) is not None and at + header.size <= len(data):
        offset = header.next_offset
        at += header.size
    return SegmentEnd(offset, at)


def _header(data: bytes | memoryview, at: int) -> BatchHeader | None:
    """Return the header of the batch at `at`, None if no batch begins there."""
    try:
        return read_header(data, at)
    except ProtocolError:
        return None
