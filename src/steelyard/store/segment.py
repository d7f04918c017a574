"""One segment of a log: a file of entries back to back, and its index.

Both files are named by where they begin: position in the log and offset of the first entry, 20 digits
each. The log is made when the first entry comes, the index when its rows are first written.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steelyard.errors import StorageError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store.files import Files
from steelyard.store.index import ROW, ROW_BYTES, Buffers, Index
from steelyard.store.recovery import SegmentRepair
from steelyard.types import FileRange

SCAN_BYTES = 1024 * 1024
"""Recovery reads the log in pieces of this size, or of an entry where one is larger."""

_BACK_ROWS = 1_024
"""Rows that recovery looks at at once where it goes back past those of a damaged batch."""

POSITION_BITS = 40
"""Of an address; the rest is the log id."""

POSITION_MAX = (1 << POSITION_BITS) - 1

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"


class Segment:
    """Entries `base_offset` .. `base_offset + count - 1`; positions are those of the whole log."""

    __slots__ = (
        "_files",
        "_index",
        "base_offset",
        "base_position",
        "index_path",
        "log_path",
        "newest_ms",
        "size",
    )

    def __init__(
        self,
        files: Files,
        buffers: Buffers,
        folder: str,
        place: tuple[int, int],
        flush_rows: int,
        size: int = 0,
        rows: int = 0,
    ) -> None:
        """`place`: position and offset of the first entry. `size`, `rows`: what the files hold already."""
        self.base_position, self.base_offset = place
        stem = f"{folder}/{self.base_position:020}-{self.base_offset:020}"
        self.log_path = stem + LOG_SUFFIX
        self.index_path = stem + INDEX_SUFFIX
        self.size = size
        self.newest_ms: int | None = None
        self._files = files
        self._index = Index(files, buffers, self.index_path, flush_rows, rows)

    @property
    def count(self) -> int:
        return self._index.count

    @property
    def end(self) -> tuple[int, int]:
        """Position and offset one past the last entry: the place of the next segment."""
        return self.base_position + self.size, self.base_offset + self._index.count

    def create(self) -> None:
        """Make the log file, empty. The index file comes with its first rows."""
        self._files.create(self.log_path)

    def remove(self) -> None:
        """Delete the files, the log first: an index alone is known to be rubbish."""
        self._index.discard()
        self._files.remove(self.log_path)
        self._files.remove(self.index_path)

    def append(self, data: bytes, rows: bytes) -> None:
        """Entries and their packed rows. One write to the log; when it raises, nothing has changed."""
        self._index.prepare()
        self._files.write(self.log_path, self.size, data)
        self.size += len(data)
        self._index.add(rows)

    def rows(self, offset: int, count: int) -> bytes:
        """The packed rows of the entries from `offset` on, as many of `count` as there are."""
        return self._index.read(offset - self.base_offset, count)

    def row(self, offset: int) -> tuple[int, int, int]:
        """(position, size, tag code) of one entry."""
        position, size, tag_code = ROW.unpack(self.rows(offset, 1))
        return position, size, tag_code

    def read(self, position: int, size: int) -> bytes:
        """Bytes of the log. Raises StorageError when they are not there: somebody cut the file."""
        data = self._files.read(self.log_path, position - self.base_position, size)
        if len(data) != size:
            raise StorageError(f"{self.log_path} ends before position {position + size}")
        return data

    def lend(self, position: int, size: int) -> FileRange:
        """As `read`, but without reading: see `FileRange`."""
        return self._files.lend(self.log_path, position - self.base_position, size)

    def stored_at(self, offset: int) -> int:
        """When the entry that holds `offset` was stored, ms: a record says so itself, for a batch its row does."""
        position, size, tag_code = self.row(offset)
        if batches.is_batch(tag_code):
            return batches.appended_at(tag_code)
        return entries.stored_at(self.read(position, min(size, entries.HEAD_BYTES)))

    def newest(self) -> int:
        """When the last entry, which there is, was stored."""
        if self.newest_ms is None:
            self.newest_ms = self.stored_at(self.end[1] - 1)
        return self.newest_ms

    def flush_index(self) -> None:
        """Write the rows that wait in memory."""
        self._index.flush()

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, log_id: int, newest: int, now: int) -> SegmentRepair:
        """Make log and index agree: cut a torn tail, cut rows past the log, make missing rows.

        The rows up to the last one that points at a whole entry are trusted; what follows it in the log is read.
        When a batch was appended is lost with its rows. It counts as appended at its largest timestamp, or
        when what is before it was stored (before this segment: `newest`), if that is later; but not after `now`.
        """
        file_rows = self._index.count
        log_bytes = self._files.size(self.log_path)
        kept, position = self._trusted(log_id, file_rows, log_bytes)
        if kept != file_rows or self._files.size(self.index_path) != kept * ROW_BYTES:
            self._index.cut(kept)
        self.size = position - self.base_position
        made = 0
        if kept:
            newest = self.stored_at(self.base_offset + kept - 1)
        for found in self._scan(log_id, log_bytes):
            tag_code = found.tag_code
            newest = max(newest, min(found.timestamp, now))
            if tag_code is None:
                tag_code = batches.row_tag(newest)
            self._index.prepare()
            self._index.add(ROW.pack(found.position, found.size, tag_code) * found.count)
            self.size += found.size
            made += found.count
        if self.size != log_bytes:
            self._files.truncate(self.log_path, self.size)
        return SegmentRepair(made, file_rows - kept, log_bytes - self.size)

    def _trusted(self, log_id: int, file_rows: int, log_bytes: int) -> tuple[int, int]:
        """How many rows point at whole entries, and the position after the last of those."""
        count = file_rows
        while count:
            row = self.row(self.base_offset + count - 1)
            position, size, _ = row
            within = position - self.base_position
            if within >= 0 and size >= batches.HEAD_BYTES and within + size <= log_bytes:
                data = self.read(position, size)
                if self._ends_with(data, row, count, log_id):
                    return count, position + size
            count = self._before(count, row)
        return 0, self.base_position

    def _ends_with(self, data: bytes, row: tuple[int, int, int], count: int, log_id: int) -> bool:
        """Is `data`, at which the last of the first `count` rows points, a whole entry whose last row it is?"""
        position, size, tag_code = row
        end = self.base_offset + count
        if batches.is_batch(tag_code):
            base = end - batches.count_of(data)
            return batches.size_of(data, 0, base) == size and batches.is_intact(data, 0, size)
        address = log_id << POSITION_BITS | position
        return entries.size_of(data) == size and entries.is_intact(data, 0, size, end - 1, address)

    def _before(self, count: int, row: tuple[int, int, int]) -> int:
        """Of the first `count` rows, how many there are before the last ones that are equal to `row`."""
        packed = ROW.pack(*row)
        while count:
            piece = min(count, _BACK_ROWS)
            rows = self.rows(self.base_offset + count - piece, piece)
            for number in range(piece, 0, -1):
                if rows[(number - 1) * ROW_BYTES : number * ROW_BYTES] != packed:
                    return count - piece + number
            count -= piece
        return 0

    def _scan(self, log_id: int, log_bytes: int) -> Iterator[_Found]:
        """Each whole entry after the last one known, up to the first that is not."""
        position, offset = self.end
        file_end = self.base_position + log_bytes
        data, data_position = b"", position
        while position < file_end:
            start = position - data_position
            place = offset, log_id << POSITION_BITS | position
            size, is_batch = _entry_at(data, start, *place)
            if not size or start + size > len(data):
                piece = min(max(size, SCAN_BYTES), file_end - position)
                data, data_position, start = self.read(position, piece), position, 0
                size, is_batch = _entry_at(data, 0, *place)
                if len(data) < size <= file_end - position:
                    data = self.read(position, size)
            if not size or start + size > len(data):
                return
            if is_batch:
                if not batches.is_intact(data, start, size):
                    return
                timestamp = batches.max_timestamp(data, start)
                found = _Found(position, size, batches.count_of(data, start), None, timestamp)
            else:
                if not entries.is_intact(data, start, size, *place):
                    return
                whole = data[start : start + size]
                found = _Found(position, size, 1, entries.tag_code(whole), entries.stored_at(whole))
            yield found
            position += size
            offset += found.count


class _Found(msgspec.Struct, frozen=True, gc=False):
    """An entry that recovery found. `tag_code`: None for a batch."""

    position: int
    size: int
    count: int
    tag_code: int | None
    timestamp: int


def _entry_at(data: bytes, start: int, offset: int, address: int) -> tuple[int, bool]:
    """The size of the entry that begins at `start` and was written for this place, 0 without one; is it a batch?

    A record says so by its magic and its places. A batch for the same offset cannot hold these at once:
    its last offset delta would exceed `batch.COUNT_MAX`.
    """
    if start + batches.HEAD_BYTES > len(data):
        return 0, False
    size = entries.size_of(data, start)
    if size and entries.places(data, start) == (offset, address):
        return size, False
    return batches.size_of(data, start, offset), True
