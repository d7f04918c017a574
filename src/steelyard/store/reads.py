"""Reading runs of entries: with and without tags, and runs of entries of one kind.

A log may hold records and batches in any order. Whether an entry is a batch is the first byte of
its tag code in the index, so runs are found without looking at the log.

Data is verified when it is read, a run of records in one call (see `links`). If a run fails, its
entries are checked one by one: those before the first damaged one are returned, and the next read,
which begins with it, raises CorruptError. The same holds for what the disk cannot read, with
StorageError. Entries that operators gave up, or compaction removed, are skipped. A run ends where
compaction removed some, unless its reader goes on across the gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from functools import partial
from itertools import chain, islice

import msgspec

from steelyard.errors import CorruptError, DescriptorsError, StorageError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import index, links
from steelyard.store.cleaned import CleanedSegment
from steelyard.store.index import ROW, ROW_BYTES, TAG_BYTE, kinds
from steelyard.store.segment import Segment
from steelyard.types import FileRange

SCAN_ROWS_MAX = 16_384
"""Rows examined by one filtered read. RocketMQ: maxFilterMessageSize, at least 800 rows."""
_SCAN_ROWS = 1_024
_RUN_ROWS = 64
"""Rows first examined for the end of a run; doubled each time."""
_RUN_ROWS_MAX = 32_768

_LEFT_MAX = 1_024
"""Most entries of a run in what compaction left: a look at each takes some 3 ms in all."""

_RECORD = b"\x00\xff"
"""The kind bytes of rows of records."""
_BATCH = bytes((batches.KIND,))
_HOLES = bytes((index.DAMAGED, index.GIVEN_UP, index.REMOVED))
_UNKNOWN = -1


class Slice(msgspec.Struct, frozen=True, gc=False):
    """The result of a read: `count` contiguous records in `data`.

    `next_offset`: where to continue; past entries that the filter skipped. `first_offset`: that of
    the first record in `data`, or `next_offset` if there is none.
    """

    data: bytes
    count: int
    next_offset: int
    first_offset: int


class Run(msgspec.Struct, frozen=True, gc=False):
    """Contiguous entries of one kind in `data`: `entry.RECORDS` or `entry.BATCHES`.

    `first_offset`: that of the first entry in `data`, which for a batch may be less than the
    requested offset. `next_offset`: where to continue. `data` is empty if nothing was found.
    """

    kind: int
    data: bytes
    first_offset: int
    next_offset: int


class RunExtent(msgspec.Struct, frozen=True, gc=False):
    """The place of a run in its segment: `size` bytes at `position`, ending before `next_offset`.

    `offset`: the requested one. `before`, `link`: the links before the run and of its last entry;
    `before` is -1 if it has yet to be looked up. A run of no bytes was given up: continue at
    `next_offset`.
    """

    segment: Segment
    kind: int
    position: int
    size: int
    next_offset: int
    offset: int
    before: int
    link: int

    def read(self) -> Run:
        """Return the verified entries before the first that is damaged or cannot be read.

        Raises CorruptError, StorageError if that is the first one.
        """
        segment, offset = self.segment, self.offset
        if not self.size:
            return Run(self.kind, b"", self.next_offset, self.next_offset)
        is_batch = self.kind == entries.BATCHES
        first = offset
        before = self.before
        if before == _UNKNOWN:
            first = segment.first_of(offset)
            before = segment.link_before(first)
        try:
            data = segment.peek(self.position, self.size)
        except DescriptorsError:
            raise
        except StorageError:
            half = find_run(segment, offset, self.next_offset, self.size // 2)
            if half.size >= self.size:
                raise
            return half.read()
        check = links.are_batches if is_batch else links.is_record
        if len(data) == self.size and check(data, before, self.link):
            segment.verified.add(self.position, self.position + self.size)
            return Run(self.kind, data, first, self.next_offset)
        stop = _damaged(segment, first, self.next_offset)
        if stop < self.next_offset:
            data = data[: segment.row(stop)[0] - self.position]
        return Run(self.kind, data, first, stop)

    def lend(self) -> FileRange:
        """Return the entries without reading and verifying them: see `FileRange`.

        Raises StorageError.
        """
        return self.segment.lend(self.position, self.size)

    def is_verified(self) -> bool:
        """Return whether this process has written or verified all of it."""
        return self.segment.is_verified(self.position, self.size)


def read_records(segment: Segment, offset: int, end: int, count_max: int, bytes_max: int) -> Slice:
    """Read records from `offset` up to the first batch, the segment's end or the limits.

    At least one.

    If the entry at `offset` is a batch, the result is empty with an unchanged `next_offset`.
    """
    count = min(count_max, end - offset)
    before = first = 0
    if offset == segment.base_offset:
        rows = segment.rows(offset, count)
    else:  # as in `_linked_rows`, without a copy
        rows = segment.rows(offset - 1, count + 1)
        before, first = ROW.unpack_from(rows)[3], ROW_BYTES
    found = rows[first + TAG_BYTE :: ROW_BYTES]
    count = len(found) - len(found.lstrip(_RECORD))
    if not count:
        next_offset = _past_holes(segment, offset, found, refuse=True)
        return Slice(b"", 0, next_offset, next_offset)
    begin = ROW.unpack_from(rows, first)[0]
    limit = begin + bytes_max
    position, size, _, link = ROW.unpack_from(rows, first + (count - 1) * ROW_BYTES)
    if position + size > limit:
        rows = rows[first:]
        first = 0
        count = max(1, bisect_right(range(count), limit, key=partial(_end, rows)))
        position, size, _, link = ROW.unpack_from(rows, (count - 1) * ROW_BYTES)
    size += position - begin
    try:
        data = segment.peek(begin, size)
    except DescriptorsError:
        raise
    except StorageError:
        if count == 1:
            raise
        return read_records(segment, offset, end, count // 2, bytes_max)
    if len(data) != size or not links.is_record(data, before, link):
        stop = _damaged(segment, offset, offset + count)
        if stop < offset + count:
            count = stop - offset
            data = data[: ROW.unpack_from(rows, first + count * ROW_BYTES)[0] - begin]
    return Slice(data, count, offset + count, offset)


class _Piece(msgspec.Struct):
    """Records back to back that a filter lets through. `before`, `link`: as in `RunExtent`."""

    first_offset: int
    count: int
    begin: int
    end: int
    before: int
    link: int


def read_tagged(
    segment: Segment,
    offset: int,
    end: int,
    count_max: int,
    bytes_max: int,
    tag_codes: frozenset[int],
) -> Slice:
    """Read records with one of the tag codes, up to the first batch.

    Examines a bounded number of rows.
    """
    count = total = 0
    pieces: list[_Piece] = []
    piece = _Piece(_UNKNOWN, 0, 0, 0, 0, 0)
    next_offset = offset
    stop = min(offset + SCAN_ROWS_MAX, end)
    rows_max = count_max
    while next_offset < stop and count < count_max:
        before, rows = _linked_rows(
            segment, next_offset, min(rows_max, _SCAN_ROWS, stop - next_offset)
        )
        found = kinds(rows)
        records = len(found) - len(found.lstrip(_RECORD))
        if records < len(found):
            if not records and next_offset == offset:
                next_offset = _past_holes(segment, offset, found, refuse=True)
            rows = rows[: records * ROW_BYTES]
            stop = next_offset + records
        if not rows:
            break
        rows_max *= 2
        start = next_offset
        for position, size, tag_code, link in ROW.iter_unpack(rows):
            if tag_code in tag_codes:
                if count and total + size > bytes_max:
                    stop = next_offset
                    break
                if piece.count and piece.end == position:
                    piece.end = position + size
                    piece.count += 1
                    piece.link = link
                else:
                    number = next_offset - start
                    link_before = index.link_of(rows, number - 1) if number else before
                    piece = _Piece(next_offset, 1, position, position + size, link_before, link)
                    pieces.append(piece)
                count += 1
                total += size
            next_offset += 1
            if count == count_max:
                break
    try:
        return _tagged(segment, pieces, next_offset)
    except (CorruptError, DescriptorsError):
        raise
    except StorageError:
        if count == 1:
            raise
        return read_tagged(segment, offset, end, count // 2, bytes_max, tag_codes)


def _tagged(segment: Segment, pieces: list[_Piece], next_offset: int) -> Slice:
    """Return the records of these pieces, up to the first damaged one."""
    parts: list[bytes] = []
    count = 0
    first = pieces[0].first_offset if pieces else next_offset
    for piece in pieces:
        size = piece.end - piece.begin
        data = segment.peek(piece.begin, size)
        if len(data) != size or not links.is_record(data, piece.before, piece.link):
            offset = piece.first_offset
            try:
                stop = _damaged(segment, offset, offset + piece.count)
            except CorruptError:
                if not parts:
                    raise
                stop = offset
            if stop < offset + piece.count:
                parts.append(data[: segment.row(stop)[0] - piece.begin])
                count += stop - offset
                next_offset = stop
                break
        parts.append(data)
        count += piece.count
    return Slice(b"".join(parts), count, next_offset, first)


def find_run(
    segment: Segment,
    offset: int,
    end: int,
    bytes_max: int,
    *,
    refuse: bool = True,
    across_gaps: Collection[int] = (),
) -> RunExtent:
    """Return entries of one kind from that with `offset`, up to `bytes_max` but at least one.

    A batch that reaches to `end` or beyond it is left out, and with it what would be the first
    entry. Raises CorruptError where the first entry is known to be damaged; without `refuse` that
    is passed over and noted. `across_gaps`: the kinds whose runs go on where compaction removed
    entries.
    """
    if isinstance(segment, CleanedSegment):
        extent = _find_left(segment, offset, end, bytes_max, across_gaps)
        if extent is not None:
            return extent
    before = 0
    count = min(_RUN_ROWS, end - offset)
    if offset > segment.base_offset:
        rows = segment.rows(offset - 1, count + 1)
        earlier, _, _, before = ROW.unpack_from(rows)
        rows = rows[ROW_BYTES:]
        begin, size, tag_code, link = ROW.unpack_from(rows)
        if earlier == begin:
            before = _UNKNOWN
    else:
        rows = segment.rows(offset, count)
        begin, size, tag_code, link = ROW.unpack_from(rows)
    if index.is_hole(tag_code):
        found = kinds(segment.rows(offset, min(_RUN_ROWS_MAX, end - offset)))
        next_offset = _past_holes(segment, offset, found, refuse=refuse)
        return RunExtent(segment, entries.RECORDS, begin, 0, next_offset, offset, before, link)
    is_batch = batches.is_batch(tag_code)
    limit = max(begin + bytes_max, begin + size)
    stop = min(end, segment.end[1])
    if is_batch and stop < segment.end[1]:
        stop = max(offset, segment.first_of(stop))
    kind = _BATCH if is_batch else _RECORD
    next_offset, run_end = offset, begin
    rows_max = _RUN_ROWS
    while next_offset < stop:
        if next_offset > offset:
            rows_max = min(2 * rows_max, _RUN_ROWS_MAX)
            rows = segment.rows(next_offset, min(rows_max, stop - next_offset))
        found = kinds(rows)[: stop - next_offset]
        count = len(found) - len(found.lstrip(kind))
        within = bisect_right(range(count), limit, key=partial(_end, rows))
        if within:
            position, size, _, link = ROW.unpack_from(rows, (within - 1) * ROW_BYTES)
            run_end = position + size
            next_offset += within
        if within < len(found):
            break
    return RunExtent(
        segment,
        entries.BATCHES if is_batch else entries.RECORDS,
        begin,
        run_end - begin,
        next_offset,
        offset,
        before,
        link,
    )


def _find_left(
    segment: CleanedSegment, offset: int, end: int, bytes_max: int, across_gaps: Collection[int]
) -> RunExtent | None:
    """Return what `find_run` does, by entries instead of offsets; None if there is none to read.

    What compaction left may be little, and far between.
    """
    following = segment.entries_from(offset)
    first = next(following, None)
    if first is None or offset < first.first:
        next_offset = segment.end[1] if first is None else first.first
        return RunExtent(segment, entries.RECORDS, 0, 0, next_offset, offset, 0, 0)
    begin, size, tag_code, link = first.place
    if index.is_hole(tag_code):
        return None
    is_batch = batches.is_batch(tag_code)
    kind = entries.BATCHES if is_batch else entries.RECORDS
    limit = begin + max(bytes_max, size)
    next_offset, run_end = offset, begin
    for run in islice(chain((first,), following), _LEFT_MAX):
        position, size, tag_code, its_link = run.place
        is_next = run.first <= next_offset or kind in across_gaps
        is_alike = batches.is_batch(tag_code) == is_batch and not index.is_hole(tag_code)
        if run.stop > end or position + size > limit or not (is_next and is_alike):
            break
        next_offset, run_end, link = run.stop, position + size, its_link
    size = run_end - begin
    return RunExtent(segment, kind, begin, size, next_offset, offset, _UNKNOWN, link)


def _linked_rows(segment: Segment, offset: int, count: int) -> tuple[int, bytes]:
    """Return the link before the record at `offset`, and the packed rows from there on."""
    if offset == segment.base_offset:
        return 0, segment.rows(offset, count)
    rows = segment.rows(offset - 1, count + 1)
    return index.link_of(rows), rows[ROW_BYTES:]


def _past_holes(segment: Segment, offset: int, found: bytes, *, refuse: bool) -> int:
    """Skip offsets from `offset` on that have no entry; `found`: their kinds."""
    if found[0] == index.REMOVED:
        return segment.last_of(offset) + 1
    given_up = len(found) - len(found.lstrip(_HOLES))
    damaged = found[:given_up].find(index.DAMAGED)
    if damaged == 0:
        error = segment.corrupt(offset)
        if refuse:
            raise error
        return min(error.next_offset, offset + given_up)
    return offset + (given_up if damaged < 0 else damaged)


def _damaged(segment: Segment, offset: int, stop: int) -> int:
    """Return the offset of the first damaged entry before `stop`, or `stop`.

    Raises CorruptError if it is the first entry.
    """
    first = offset
    while offset < stop:
        if index.is_removed(segment.row(offset)[2]):
            offset = segment.last_of(offset) + 1
            continue
        try:
            segment.entry(offset)
        except CorruptError:
            if offset == first:
                raise
            return offset
        offset = segment.last_of(offset) + 1
    return stop


def _end(rows: bytes, row: int) -> int:
    position, size, _, _ = ROW.unpack_from(rows, row * ROW_BYTES)
    return int(position + size)
