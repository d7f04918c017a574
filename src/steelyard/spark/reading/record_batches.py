"""Decoding of Kafka's record batches to Arrow batches, without a Python object per message.

Brokers of ours answer pulls with what Kafka's producers wrote as they store it
(`wire.stored_batches`). The rows are those of the messages that the broker would make of the
records (`conversion.messages`); the tests compare the two.

Batches are decompressed, their records located (`record_borders`), and the records of many batches
are decoded together (`record_columns`). Batches with records that this cannot decode, or
that are damaged, are converted one message after the other, with the code of brokers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from steelyard.conversion.messages import Found, MessageWriter, convert
from steelyard.errors import ProtocolError
from steelyard.groups.remoting.subscriptions import ALL
from steelyard.spark.joining import Integers
from steelyard.spark.reading import columns
from steelyard.spark.reading.record_borders import record_borders
from steelyard.spark.reading.record_columns import Irregular, RecordOrigin, RowSpans, decode_rows
from steelyard.types import Effort
from steelyard.wire import stored_batches
from steelyard.wire.kafka.compression import Compression, decompress
from steelyard.wire.kafka.records import HEADER_BYTES, RECORD_BYTES_MIN, BatchHeader
from steelyard.wire.kafka.unpacking import Unpacking

ROWS_MAX = 32_768
"""Maximum rows that are decoded together."""
BYTES_MAX = 2 << 20
"""Bytes of records after which they are decoded; one batch may have more.

They are copied several times on their way to Spark, which costs less while a cache holds them.
"""

_HOST = bytes(8)
"""Brokers put their own address into what they convert; no column shows it."""
_UNLIMITED = 1 << 62
_PREFIX = re.compile(r"[0-9A-F]{1,64}")

logger = logging.getLogger(__name__)


class GivenBatches(NamedTuple):
    """The answer to a pull: batches, of which the records from offset `start` on are wanted."""

    start: int
    data: bytes


class _Source(NamedTuple):
    """Rows of a batch that begins at `at`: those of offsets `first` .. `stop` - 1."""

    data: bytes
    at: int
    header: BatchHeader
    stored: int
    first: int
    stop: int


class _Group:
    """Batches that are decoded together: their records' bytes, and where the wanted ones begin."""

    def __init__(self) -> None:
        self.sources: list[_Source] = []
        self.rows = 0
        self.size = 0
        self._buffers: list[bytes] = []
        self._shift = 0
        self._borders: list[Integers] = []

    def add(self, source: _Source, data: bytes, borders: Integers) -> None:
        """Add a batch. `borders`: where its wanted records begin in `data`, and the last ends."""
        if not self._buffers or self._buffers[-1] is not data:
            self._shift += len(self._buffers[-1]) if self._buffers else 0
            self._buffers.append(data)
        self._borders.append(borders + self._shift if self._shift else borders)
        self.size += int(borders[-1] - borders[0])
        self.sources.append(source)
        self.rows += source.stop - source.first

    def spans(self) -> RowSpans:
        """Return the data, and the rows in it."""
        data = self._buffers[0] if len(self._buffers) == 1 else b"".join(self._buffers)
        headers = [source.header for source in self.sources]
        counts = np.array([source.stop - source.first for source in self.sources])
        borders = np.concatenate(self._borders)
        begins = np.arange(self.rows) + np.repeat(np.arange(len(counts)), counts)
        firsts = np.array([source.first for source in self.sources])
        firsts[1:] -= np.cumsum(counts)[:-1]
        appended = np.array([header.is_log_append_time for header in headers])
        bases = [h.max_timestamp if h.is_log_append_time else h.base_timestamp for h in headers]
        return RowSpans(
            data,
            borders[begins],
            borders[begins + 1],
            np.arange(self.rows) + np.repeat(firsts, counts),
            np.repeat([source.stored for source in self.sources], counts),
            np.repeat(np.array(bases, np.int64), counts),
            np.repeat(appended, counts),
        )


def decode(
    answers: Iterable[GivenBatches], end: int, origin: RecordOrigin, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Decode the records before the offset `end` to batches of the columns `names`, in order.

    Raises ProtocolError for answers that are not record batches. Records that brokers would leave
    out, because they are damaged or too large, are left out with a warning.
    """
    if _PREFIX.fullmatch(origin.unique_prefix) is None:
        raise ProtocolError(f"{origin.unique_prefix[:99]!r} is not the beginning of a UNIQ_KEY")
    group = _Group()
    for answer in answers:
        for stored, at, header in stored_batches.read(answer.data):
            first = max(header.base_offset, answer.start)
            last = min(header.next_offset, end)
            if first >= last:
                continue
            batch = _Source(answer.data, at, header, stored, first, last)
            found = _located(batch)
            if found is None:
                yield from _decoded(group, origin, names)
                group = _Group()
                yield from _one_by_one(batch, origin, names)
                continue
            data, borders = found
            base = header.base_offset
            for begin in range(first, last, ROWS_MAX):
                source = batch._replace(first=begin, stop=min(begin + ROWS_MAX, last))
                part = borders[begin - base : source.stop - base + 1]
                if group.rows + len(part) > ROWS_MAX or group.size >= BYTES_MAX:
                    yield from _decoded(group, origin, names)
                    group = _Group()
                group.add(source, data, part)
    yield from _decoded(group, origin, names)


def _located(source: _Source) -> tuple[bytes, Integers] | None:
    """Return the records of a batch, decompressed, where each begins, and the last one ends.

    None if that is not clear.
    """
    data, header = source.data, source.header
    at, end = source.at + HEADER_BYTES, source.at + header.size
    try:
        if header.compression != Compression.NONE:
            data = decompress(data[at:end], header.compression)
            at, end = 0, len(data)
        if header.count * RECORD_BYTES_MIN > end - at:
            return None
        borders = record_borders(data, at, end, header.count)
    except (IndexError, ProtocolError):
        return None
    return (data, borders) if borders[-1] == end else None


def _decoded(group: _Group, origin: RecordOrigin, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Decode a group, or if that fails its batches one after the other."""
    if not group.rows:
        return
    try:
        batch = decode_rows(group.spans(), origin, names)
    except Irregular:
        for source in group.sources:
            yield from _alone(source, origin, names, is_only=len(group.sources) == 1)
    else:
        yield batch


def _alone(
    source: _Source, origin: RecordOrigin, names: Sequence[str], *, is_only: bool
) -> Iterator[pa.RecordBatch]:
    """Decode a batch of a group that failed; `is_only`: it is all there was."""
    found = None if is_only else _located(source)
    if found is not None:
        data, borders = found
        base = source.header.base_offset
        group = _Group()
        group.add(source, data, borders[source.first - base : source.stop - base + 1])
        yield from _decoded(group, origin, names)
    else:
        yield from _one_by_one(source, origin, names)


def _one_by_one(
    source: _Source, origin: RecordOrigin, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Convert the records of a batch as a broker does."""
    header = source.header
    records = Unpacking(source.data[source.at : source.at + header.size], header)
    writer = MessageWriter.of(
        origin.topic, origin.queue_id, _HOST, origin.unique_prefix, 0, source.stored
    )
    passed: list[tuple[int, int, str]] = []

    def left_out(offset: int, count: int, reason: str) -> None:
        passed.append((offset, count, reason))

    offset, effort = source.first, Effort(_UNLIMITED)
    while offset < source.stop:
        found = Found(ROWS_MAX, BYTES_MAX, [])
        offset = convert(records, writer, offset, source.stop, ALL, found, effort, left_out)
        if found.parts:
            yield columns.decode(b"".join(found.parts), origin.broker_name, names)
    if passed:
        offset, _, reason = passed[-1]
        logger.warning(
            "%d messages of topic %s, queue %d were left out; the last, at offset %d: %s",
            sum(count for _, count, _ in passed),
            origin.topic,
            origin.queue_id,
            offset,
            reason,
        )
