"""Reading a segment: records of RocketMQ with and without tags, and runs of entries of one kind.

A log may hold records and batches in any order. Whether an entry is a batch is the first byte of its
tag code in the index, so runs are found without looking at the log.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial

import msgspec

from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store.index import ROW, ROW_BYTES
from steelyard.store.segment import Segment
from steelyard.types import FileRange

SCAN_ROWS_MAX = 16_384
"""Rows that one filtered read looks at. RocketMQ: maxFilterMessageSize, 800 rows at least."""
_SCAN_ROWS = 1_024
_RUN_ROWS = 64
"""Rows that a run is looked for in at first; twice as many each time."""
_RUN_ROWS_MAX = 32_768

_TAG_BYTE = 12
"""Where in a row the tag code begins."""
_BATCH = bytes((batches.KIND,))


class Slice(msgspec.Struct, frozen=True, gc=False):
    """What a read found: `count` records back to back in `data`.

    `next_offset`: where to read on; past entries that the filter skipped. `first_offset`: that of the
    first record in `data`, or `next_offset` when there is none.
    """

    data: bytes
    count: int
    next_offset: int
    first_offset: int


class Run(msgspec.Struct, frozen=True, gc=False):
    """Entries of one kind back to back in `data`: `entry.RECORDS` or `entry.BATCHES`.

    `first_offset`: that of the first entry in `data`, which for a batch may be less than the offset asked
    for. `next_offset`: where to read on. Nothing was found where `data` is empty.
    """

    kind: int
    data: bytes
    first_offset: int
    next_offset: int


class Extent(msgspec.Struct, frozen=True, gc=False):
    """Where a run lies in its segment: `size` bytes from `position` on, to the entry before `next_offset`."""

    segment: Segment
    kind: int
    position: int
    size: int
    next_offset: int

    def read(self) -> bytes:
        """The entries. Raises StorageError."""
        return self.segment.read(self.position, self.size)

    def lend(self) -> FileRange:
        """The entries, not read: see `FileRange`. Raises StorageError."""
        return self.segment.lend(self.position, self.size)


def kinds(rows: bytes) -> bytes:
    """A byte for each packed row: `batch.KIND` where it is a batch's, 0 or 0xFF where it is a record's."""
    return rows[_TAG_BYTE::ROW_BYTES]


def read_records(segment: Segment, offset: int, end: int, count_max: int, bytes_max: int) -> Slice:
    """Records from `offset` on, up to the first batch or the segment's end, within the limits but always one.

    Nothing, and `next_offset` unchanged, where the entry at `offset` is a batch.
    """
    rows = segment.rows(offset, min(count_max, end - offset))
    count = len(rows) // ROW_BYTES
    batch = kinds(rows).find(_BATCH)
    if batch >= 0:
        count = batch
        if not count:
            return Slice(b"", 0, offset, offset)
    begin = ROW.unpack_from(rows)[0]
    limit = begin + bytes_max
    position, size, _ = ROW.unpack_from(rows, (count - 1) * ROW_BYTES)
    if position + size > limit:
        count = max(1, bisect_right(range(count), limit, key=partial(_end, rows)))
        position, size, _ = ROW.unpack_from(rows, (count - 1) * ROW_BYTES)
    data = segment.read(begin, position + size - begin)
    return Slice(data, count, offset + count, offset)


def read_tagged(
    segment: Segment,
    offset: int,
    end: int,
    count_max: int,
    bytes_max: int,
    tag_codes: frozenset[int],
) -> Slice:
    """Records with one of the tag codes, up to the first batch; a bounded number of rows is looked at."""
    first = -1
    count = total = 0
    runs: list[list[int]] = []
    next_offset = offset
    stop = min(offset + SCAN_ROWS_MAX, end)
    piece = count_max
    while next_offset < stop and count < count_max:
        rows = segment.rows(next_offset, min(piece, _SCAN_ROWS, stop - next_offset))
        batch = kinds(rows).find(_BATCH)
        if batch >= 0:
            rows = rows[: batch * ROW_BYTES]
            stop = next_offset + batch
        if not rows:
            break
        piece *= 2
        for position, size, tag_code in ROW.iter_unpack(rows):
            if tag_code in tag_codes:
                if count and total + size > bytes_max:
                    stop = next_offset
                    break
                if runs and runs[-1][1] == position:
                    runs[-1][1] = position + size
                else:
                    runs.append([position, position + size])
                first = next_offset if first < 0 else first
                count += 1
                total += size
            next_offset += 1
            if count == count_max:
                break
    data = b"".join([segment.read(begin, end - begin) for begin, end in runs])
    return Slice(data, count, next_offset, first if count else next_offset)


def find_run(segment: Segment, offset: int, end: int, bytes_max: int) -> Extent:
    """The entries of one kind from the one that holds `offset` on, within `bytes_max` but always one.

    A batch that reaches to `end` or beyond it is left out, and with it what would be the first entry.
    """
    begin, size, tag_code = segment.row(offset)
    is_batch = batches.is_batch(tag_code)
    limit = max(begin + bytes_max, begin + size)
    stop = min(end, segment.end[1])
    if is_batch and stop < segment.end[1]:
        stop = _before_torn(segment, offset, stop)
    next_offset, run_end = offset, begin
    rows_max = _RUN_ROWS
    while next_offset < stop:
        rows = segment.rows(next_offset, min(rows_max, stop - next_offset))
        rows_max = min(2 * rows_max, _RUN_ROWS_MAX)
        found = kinds(rows)
        if is_batch:
            count = len(found) - len(found.lstrip(_BATCH))
        else:
            batch = found.find(_BATCH)
            count = len(found) if batch < 0 else batch
        within = bisect_right(range(count), limit, key=partial(_end, rows))
        if within:
            run_end = _end(rows, within - 1)
            next_offset += within
        if within < len(found):
            break
    kind = entries.BATCHES if is_batch else entries.RECORDS
    return Extent(segment, kind, begin, run_end - begin, next_offset)


def _before_torn(segment: Segment, offset: int, stop: int) -> int:
    """`stop`, or the base offset of the batch that reaches across it."""
    position, _, tag_code = segment.row(stop)
    if not batches.is_batch(tag_code) or segment.row(stop - 1)[0] != position:
        return stop
    return max(offset, batches.base_offset(segment.read(position, batches.HEAD_BYTES)))


def _end(rows: bytes, row: int) -> int:
    position, size, _ = ROW.unpack_from(rows, row * ROW_BYTES)
    return int(position + size)
