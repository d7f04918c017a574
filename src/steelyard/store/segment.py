"""One segment of a log: a file of entries back to back, and its index.

Both files are named by where they begin: position in the log and offset of the first entry, 20 digits
each. The log is made when the first entry comes, the index when its rows are first written.
"""

from __future__ import annotations

from collections.abc import Iterator

from steelyard.errors import StorageError
from steelyard.store import entry as entries
from steelyard.store.files import Files
from steelyard.store.index import ROW, ROW_BYTES, Buffers, Index
from steelyard.store.recovery import SegmentRepair

SCAN_BYTES = 1024 * 1024
"""Recovery reads the log in pieces of this size, or of an entry where one is larger."""

POSITION_BITS = 40
"""Of an address; the rest is the log id."""

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

    def flush_index(self) -> None:
        """Write the rows that wait in memory."""
        self._index.flush()

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, log_id: int) -> SegmentRepair:
        """Make log and index agree: cut a torn tail, cut rows past the log, make missing rows.

        The rows up to the last one that points at a whole entry are trusted; what follows it in the log is read.
        """
        file_rows = self._index.count
        log_bytes = self._files.size(self.log_path)
        kept, position = self._trusted(log_id, file_rows, log_bytes)
        if kept != file_rows or self._files.size(self.index_path) != kept * ROW_BYTES:
            self._index.cut(kept)
        self.size = position - self.base_position
        made = 0
        for row_position, size, tag_code in self._scan(log_id, log_bytes):
            self._index.prepare()
            self._index.add(ROW.pack(row_position, size, tag_code))
            self.size += size
            made += 1
        if self.size != log_bytes:
            self._files.truncate(self.log_path, self.size)
        return SegmentRepair(made, file_rows - kept, log_bytes - self.size)

    def _trusted(self, log_id: int, file_rows: int, log_bytes: int) -> tuple[int, int]:
        """How many rows point at whole entries, and the position after the last of those."""
        for count in range(file_rows, 0, -1):
            position, size, _ = self.row(self.base_offset + count - 1)
            within = position - self.base_position
            if within < 0 or size < entries.SIZE_MIN or within + size > log_bytes:
                continue
            data = self.read(position, size)
            address = log_id << POSITION_BITS | position
            if entries.size_of(data) == size and entries.is_intact(
                data, 0, size, self.base_offset + count - 1, address
            ):
                return count, position + size
        return 0, self.base_position

    def _scan(self, log_id: int, log_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(position, size, tag code) of each whole entry after the last one known, up to the first that is not."""
        position, offset = self.end
        file_end = self.base_position + log_bytes
        data, data_position = b"", position
        while position < file_end:
            start = position - data_position
            size = entries.size_of(data, start)
            if not size or start + size > len(data):
                piece = min(max(size, SCAN_BYTES), file_end - position)
                data, data_position, start = self.read(position, piece), position, 0
                size = entries.size_of(data)
                if len(data) < size <= file_end - position:
                    data = self.read(position, size)
            if not size or start + size > len(data):
                return
            if not entries.is_intact(data, start, size, offset, log_id << POSITION_BITS | position):
                return
            yield position, size, entries.tag_code(data[start : start + size])
            position += size
            offset += 1
