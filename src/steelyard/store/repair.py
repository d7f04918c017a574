"""Reconciles the log and the index of a segment when a store is opened.

    torn tail   bytes at the end of the log that do not make a whole entry and that no intact row
                describes, or that were never written (`scanning.looks_unwritten`): the result of
                a kill or a power cut; cut
    damage      anything else that is not as it was written: kept, and refused to readers
                (`index.DAMAGED`)
    hole        unwritten bytes before whole entries, from a power cut: readers skip it
                (`index.GIVEN_UP`)

What is missing before the next segment after a clean stop is damage, too: the file is extended by
zeros.

The rows up to the last that describes an entry are trusted here; each is verified when it is used.
The log after them is read. If a batch's rows are lost, so is its append time: it is then assumed to
be its largest timestamp, or the store time of the entry before it if that is later, but not in the
future.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from steelyard.errors import StorageError
from steelyard.store import batch as batches
from steelyard.store import index, links
from steelyard.store.index import ROW_BYTES, pack_row
from steelyard.store.mending import put_right
from steelyard.store.recovery import SegmentRepair
from steelyard.store.scanning import (
    SECTOR_BYTES,
    Place,
    ScannedEntry,
    begins_unwritten,
    ends_unwritten,
    entry_beyond,
    find_next,
    is_ahead,
    looks_unwritten,
    scan,
)

if TYPE_CHECKING:
    from steelyard.store.segment import Segment

_OLD_ROW = struct.Struct(">qiq")
"""A row of format 1."""
_BACK_ROWS = 1_024
_HOLE_ROWS = 65_536
"""Rows of a hole that are made at once."""
_HOLE_BYTES_MAX = (1 << 31) - 1
"""Most bytes that a row can describe; those of a larger hole describe its end."""


class Repair:
    """The repair of one segment."""

    def __init__(
        self,
        segment: Segment,
        newest: int,
        now: int,
        following: Place | None,
        *,
        was_stopped: bool,
    ) -> None:
        """`newest`: store time of the last entry before this segment, in ms.

        `following`: the next one.

        `following` is where the next segment begins. `was_stopped`: the last stop was clean, so
        that nothing is torn and nothing unwritten; for the last segment `following` is then where
        the log ended, otherwise None.
        """
        self._segment = segment
        self._newest = newest
        self._now = now
        self._following = following
        self._was_stopped = was_stopped
        self._file_end = segment.base_position + segment.files.size(segment.log_path)
        self._made = 0
        self._damaged = 0
        self._last_is_damaged = False
        """The entry described by the last trusted row."""
        self._old_rows = b""

    def run(self) -> SegmentRepair:
        segment = self._segment
        file_rows = segment.index.count
        kept, position = self._trusted(file_rows)
        if kept != file_rows or segment.files.size(segment.index_path) != kept * ROW_BYTES:
            segment.index.cut(kept)
            # So that these rows do not come back when other entries are there.
            segment.files.sync(segment.index_path)
        segment.size = position - segment.base_position
        segment.link = 0
        if kept:
            last = segment.base_offset + kept - 1
            segment.link = segment.row(last)[3]
            if self._last_is_damaged:
                self._damaged += 1
                segment.corrupt(last)
            self._newest = segment.stored_at(last)
        self._read_old()
        while True:
            self._take()
            if not self._pass_over():
                break
        log_end = segment.base_position + segment.size
        if log_end != self._file_end:
            segment.files.truncate(segment.log_path, segment.size)
        if segment.files.disk.exists(segment.old_index_path):
            segment.index.flush()
            segment.files.remove(segment.old_index_path)
        segment.fresh = segment.end[0]  # nothing before that was written by this process
        cut = self._file_end - log_end
        return SegmentRepair(self._made, file_rows - kept, cut, self._damaged)

    # -- the rows that are there -----------------------------------------------------------------

    def _trusted(self, count: int) -> Place:
        """Return the number of rows up to the last that describes an entry, and its end."""
        segment = self._segment
        while count:
            packed = segment.index.read(count - 1, 1)
            if not index.are_sound(packed):
                packed = put_right(segment, count - 1)
            if index.are_sound(packed):
                position, size, _, _ = index.ROW.unpack(packed)
                whole = segment.base_position <= position <= position + size <= self._file_end
                if whole and self._is_described(packed, count):
                    return count, position + size
            count = self._before(count, packed)
        return 0, segment.base_position

    def _is_described(self, packed: bytes, count: int) -> bool:
        """Return whether the last of the first `count` rows, itself intact, describes an entry.

        The entry may have been damaged since.
        """
        segment = self._segment
        position, size, tag_code, link = index.ROW.unpack(packed)
        if index.is_hole(tag_code):
            return not self._is_cut_hole((position + size, segment.base_offset + count))
        data = segment.read(position, size)
        last = segment.base_offset + count - 1
        is_batch = batches.is_batch(tag_code)
        first, following = last, last + 1
        if is_batch and size >= batches.HEAD_BYTES:
            first = batches.base_offset(data)
            following = first + batches.span_of(data)
        if segment.is_by_itself(data, first, position, size, is_batch=is_batch):
            rows_from = segment.base_offset + self._before(count, packed) if is_batch else first
            if last < following - 1 and self._may_begin(first, rows_from):
                return False  # a kill interrupted the rows of a batch
            if following == last + 1:
                before = self._link_before(first)
                whole = links.is_batch if is_batch else links.is_record
                if before is None or whole(data, before, link):
                    return True
        if not self._was_stopped and looks_unwritten(data, position - segment.base_position):
            return False
        self._last_is_damaged = True
        return True

    def _is_cut_hole(self, end: Place) -> bool:
        """Return whether a kill interrupted the rows of a hole whose rows end there for now."""
        position, offset = end
        if self._following is not None and position == self._following[0]:
            return offset < self._following[1]
        read, address_of = self._segment.read, self._segment.origin.address_of
        found = entry_beyond(read, address_of, position, offset - 1, self._file_end)
        return found is not None and found.offset > offset

    def _may_begin(self, first: int, rows_from: int) -> bool:
        """Return whether a batch's intact rows begin at `rows_from`, those before are damaged."""
        base = self._segment.base_offset
        if first == rows_from:
            return True
        if not base <= first < rows_from:
            return False
        rows = self._segment.index.read(first - base, rows_from - first)
        return not any(
            index.are_sound(rows[at : at + ROW_BYTES]) for at in range(0, len(rows), ROW_BYTES)
        )

    def _link_before(self, first: int) -> int | None:
        """Return the link before the entry; None if it is unknown."""
        number = first - self._segment.base_offset
        if number <= 0:
            return 0
        packed = self._segment.index.read(number - 1, 1)
        if not index.are_sound(packed):
            return None
        _, _, tag_code, link = index.ROW.unpack(packed)
        return None if index.tells_no_link(tag_code, link) else int(link)

    def _before(self, count: int, packed: bytes) -> int:
        """Return how many of the first `count` rows precede the final ones that equal this one."""
        while count:
            piece = min(count, _BACK_ROWS)
            rows = self._segment.index.read(count - piece, piece)
            for number in range(piece, 0, -1):
                if rows[(number - 1) * ROW_BYTES : number * ROW_BYTES] != packed:
                    return count - piece + number
            count -= piece
        return 0

    # -- the log behind them ---------------------------------------------------------------------

    def _read_old(self) -> None:
        """Read append times of batches from an index of format 1."""
        segment = self._segment
        path = segment.old_index_path
        if segment.files.disk.exists(path):
            self._old_rows = segment.files.read(path, 0, segment.files.size(path))

    def _take(self) -> None:
        """Build rows for the whole entries that follow."""
        segment = self._segment
        position, offset = segment.end
        address_of = segment.origin.address_of
        for found in scan(segment.read, address_of, position, offset, self._file_end):
            self._newest = max(self._newest, min(found.timestamp, self._now))
            if found.tag_code is None:
                tag_code = self._old_tag(found) or batches.row_tag(self._newest)
                segment.link = links.batch_link(found.data, segment.link)
                self._newest = max(self._newest, batches.appended_at(tag_code))
            else:
                tag_code = found.tag_code
                segment.link = links.record_link(found.data, segment.link)
            row = pack_row(found.position, found.size, tag_code, segment.link)
            self._add(row * found.count, found.size)

    def _old_tag(self, found: ScannedEntry) -> int:
        at = (found.offset - self._segment.base_offset) * _OLD_ROW.size
        if at + _OLD_ROW.size > len(self._old_rows):
            return 0
        position, size, tag_code = _OLD_ROW.unpack_from(self._old_rows, at)
        same = (position, size) == (found.position, found.size) and batches.is_batch(tag_code)
        return int(tag_code) if same else 0

    def _add(self, rows: bytes, size: int) -> None:
        segment = self._segment
        segment.index.prepare()
        segment.index.add(rows)
        segment.size += size
        self._made += len(rows) // ROW_BYTES

    def _pass_over(self) -> bool:
        """Keep the offsets of damage if whole entries or another segment follow.

        Return True to continue.
        """
        segment = self._segment
        position, offset = segment.end
        address_of = segment.origin.address_of
        found = find_next(segment.read, address_of, position, offset, self._file_end)
        following = self._following
        if found is not None and following is not None and found.offset >= following[1]:
            found = None  # part of a message that looks like an entry
        if found is not None:
            stop = found.position, found.offset
        elif following is not None and is_ahead((position, offset), following):
            stop = following
        else:
            return False
        is_missing = stop[0] > self._file_end
        if is_missing:
            segment.files.truncate(segment.log_path, stop[0] - segment.base_position)
            self._file_end = stop[0]
        size = stop[0] - position
        unwritten = not self._was_stopped and self._is_unwritten(position, size)
        kind = index.GIVEN_UP if unwritten else index.DAMAGED
        described = min(size, _HOLE_BYTES_MAX)
        tag_code = index.hole_tag(kind, self._newest)
        row = pack_row(stop[0] - described, described, tag_code, 0)
        segment.link = 0
        for number in range(offset, stop[1], _HOLE_ROWS):
            self._add(row * min(_HOLE_ROWS, stop[1] - number), 0)
        segment.size += size
        if is_missing:
            with suppress(StorageError):  # after a kill the zeros would look unwritten
                segment.index.flush()
        if not unwritten:
            self._damaged += 1
        segment.corrupt(offset)
        return found is not None

    def _is_unwritten(self, position: int, size: int) -> bool:
        """Return whether these bytes look as `looks_unwritten` says."""
        segment, end = self._segment, position + size
        edge = min(size, 2 * SECTOR_BYTES)
        begin = segment.read(position, edge)
        if begins_unwritten(begin, position - segment.base_position):
            return True
        return ends_unwritten(segment.read(end - edge, edge), end - segment.base_position)
