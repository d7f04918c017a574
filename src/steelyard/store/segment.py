"""One segment of a log: a file of contiguous entries, and its index.

Both files are named by where they begin (`segment_names`). The log is created with its first entry,
the index when its rows are first written. `cleaned` has segments that were compacted.

Everything is verified before use: rows by their checksums whenever they are read (damaged ones are
rebuilt from the log, see `mending`), entries by the links in their rows (`reads`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec
from crc32c import crc32c

from steelyard.errors import CorruptError, DescriptorsError, StorageError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import index, links
from steelyard.store.address import address_of
from steelyard.store.files import Files
from steelyard.store.findings import Finding, Findings
from steelyard.store.index import ROW, ROW_BYTES, SOUND, Buffers, Index
from steelyard.store.mending import mended
from steelyard.store.runs import EntryRun
from steelyard.store.segment_names import LOG_SUFFIX, OLD_INDEX_SUFFIX, SegmentName
from steelyard.store.spans import Spans
from steelyard.types import FileRange

_PIECE_ROWS = 256
_NEIGHBOURS = 16
"""Number of entries before a damaged one that are examined to estimate its store time."""


class Origin(msgspec.Struct, frozen=True):
    """The log of a segment, and what its segments share.

    `flush_rows`: index rows that are kept in memory before they are written.
    """

    files: Files
    buffers: Buffers
    flush_rows: int
    folder: str
    topic: str
    queue_id: int
    log_id: int
    findings: Findings

    def address_of(self, position: int) -> int:
        """Return the address of the entry at a position of the log."""
        return address_of(self.log_id, position)


class Segment:
    """Entries `base_offset` .. `base_offset + count - 1`; positions are those of the whole log.

    `link`: that of the last entry, known in segments that are appended to. `verified`: positions of
    entries that this process verified or wrote; it wrote all entries from `fresh` on.
    """

    __slots__ = (
        "base_offset",
        "base_position",
        "files",
        "fresh",
        "index",
        "index_path",
        "link",
        "log_path",
        "name",
        "newest_ms",
        "old_index_path",
        "origin",
        "size",
        "verified",
    )

    def __init__(self, origin: Origin, name: SegmentName, size: int = 0, rows: int = 0) -> None:
        """`size`, `rows`: what the files already hold."""
        self.name = name
        self.base_position, self.base_offset = name.position, name.offset
        stem = f"{origin.folder}/{name}"
        self.log_path = stem + LOG_SUFFIX
        self.index_path = stem + name.index_suffix
        self.old_index_path = stem + OLD_INDEX_SUFFIX
        self.size = size
        self.link = 0
        self.newest_ms: int | None = None
        self.files = origin.files
        self.origin = origin
        self.index = Index(self.files, origin.buffers, self.index_path, origin.flush_rows, rows)
        self.verified = Spans()
        self.fresh = self.base_position + size

    @property
    def count(self) -> int:
        return self.index.count

    @property
    def end(self) -> tuple[int, int]:
        """Position and offset one past the last entry: the place of the next segment."""
        return self.base_position + self.size, self.base_offset + self.count

    def create(self) -> None:
        """Create the empty log file. The index file is created with its first rows."""
        self.files.create(self.log_path)

    def remove(self) -> None:
        """Delete the files, the log first: recovery ignores an index without a log."""
        self.remove_log()
        self.remove_index()

    def remove_log(self) -> None:
        """Delete the log; call `remove_index` next. On StorageError nothing has changed."""
        self.files.remove(self.log_path)

    def remove_index(self) -> None:
        self.index.discard()
        self.files.remove(self.index_path)

    def append(self, data: bytes, rows: bytes, link: int) -> None:
        """Append entries, their packed rows and the last link.

        One write; if it raises, nothing changed.
        """
        index = self.index
        index.prepare()
        self.files.write(self.log_path, self.size, data)
        self.size += len(data)
        self.link = link
        index.add(rows)

    # -- the index -------------------------------------------------------------------------------

    def rows(self, offset: int, count: int) -> bytes:
        """Return the verified packed rows of the entries from `offset` on, at most `count`."""
        rows = self.index.read(offset - self.base_offset, count)
        if crc32c(rows, SOUND) == SOUND:  # as `are_sound`, without the call
            return rows
        return mended(self, offset, count)

    def row(self, offset: int) -> tuple[int, int, int, int]:
        """Return (position, size, tag code, link) of one entry."""
        position, size, tag_code, link = ROW.unpack(self.rows(offset, 1))
        return position, size, tag_code, link

    def first_of(self, offset: int) -> int:
        """Return the first offset of the entry that holds `offset`: for a batch its base offset."""
        position = self.row(offset)[0]
        if offset == self.base_offset or self.row(offset - 1)[0] != position:
            return offset
        within = range(self.base_offset, offset)
        return self.base_offset + bisect_left(within, position, key=lambda item: self.row(item)[0])

    def last_of(self, offset: int) -> int:
        """Return the last offset of the entry that holds `offset`."""
        position = self.row(offset)[0]
        rest = range(offset, self.end[1])
        return offset - 1 + bisect_left(rest, position + 1, key=lambda item: self.row(item)[0])

    def offset_at(self, position: int) -> int | None:
        """Return the offset of the entry that was written at a position; None if none was."""
        if self.end[0] - position < entries.SIZE_MIN:
            return None
        begin, end = self.base_offset, self.end[1]
        # An entry contains its own offset, but what looks like an entry may be part of a message.
        head = self.peek(position, entries.HEAD_BYTES)
        if len(head) == entries.HEAD_BYTES:
            offset = entries.places(head)[0]
            if begin <= offset < end and self.row(offset)[0] == position:
                return offset
        found = bisect_right(range(begin, end), position, key=lambda item: self.row(item)[0])
        offset = begin + found - 1
        return offset if found and self.row(offset)[0] == position else None

    def entries_from(self, offset: int) -> Iterator[EntryRun]:
        """Yield the entries from the one that holds `offset` on, each with its offsets and row."""
        offset, end = self.first_of(offset), self.end[1]
        while offset < end:
            rows = self.rows(offset, _PIECE_ROWS)
            at, size = 0, len(rows)
            while at < size:
                row = rows[at : at + ROW_BYTES]
                position, _, tag_code, _ = ROW.unpack(row)
                span = 1
                if batches.is_batch(tag_code):
                    while rows[at + span * ROW_BYTES : at + (span + 1) * ROW_BYTES] == row:
                        span += 1
                    if at + span * ROW_BYTES == size:
                        span = self.last_of(offset) + 1 - offset
                yield EntryRun(offset, span, position, row)
                at += span * ROW_BYTES
                offset += span

    def link_before(self, offset: int) -> int:
        """Return the link before the entry with this first offset."""
        return self.row(offset - 1)[3] if offset > self.base_offset else 0

    def follows_unknown(self, offset: int) -> bool:
        """Return whether the link before the entry with this first offset is unknown."""
        if offset == self.base_offset:
            return False
        _, _, tag_code, link = self.row(offset - 1)
        return index.tells_no_link(tag_code, link)

    # -- the log ---------------------------------------------------------------------------------

    def read(self, position: int, size: int) -> bytes:
        """Read unverified bytes of the log. Raises StorageError if they do not exist any more."""
        data = self.files.read(self.log_path, position - self.base_position, size)
        if len(data) != size:
            raise StorageError(f"{self.log_path} ends before position {position + size}")
        return data

    def peek(self, position: int, size: int) -> bytes:
        """As `read`, but missing bytes are left out; the caller verifies."""
        return self.files.read(self.log_path, position - self.base_position, size)

    def lend(self, position: int, size: int) -> FileRange:
        """As `read`, but without reading: see `FileRange`."""
        return self.files.lend(self.log_path, position - self.base_position, size)

    def entry(self, offset: int) -> bytes:
        """Return the verified entry that holds an offset: a record or a batch.

        Raises CorruptError.
        """
        position, size, tag_code, link = self.row(offset)
        is_batch = batches.is_batch(tag_code)
        if index.is_hole(tag_code):
            raise self.corrupt(offset)
        first = self.first_of(offset) if is_batch else offset
        data = self.peek(position, size)
        before = self.link_before(first)
        if is_batch:
            whole = links.is_batch(data, before, link)
        else:
            whole = links.is_record(data, before, link)
        if not whole and self.follows_unknown(first):
            whole = self.is_by_itself(data, first, position, size, is_batch=is_batch)
        if not whole:
            raise self.corrupt(first)
        return data

    def is_by_itself(
        self, data: bytes, offset: int, position: int, size: int, *, is_batch: bool
    ) -> bool:
        """Return whether this is the whole entry of a place, judged by its own checksum only."""
        if is_batch:
            return batches.size_of(data, 0, offset) == size and batches.is_intact(data, 0, size)
        address = self.origin.address_of(position)
        return entries.size_of(data) == size and entries.is_intact(data, 0, size, offset, address)

    def corrupt(self, offset: int) -> CorruptError:
        """Return the error for a damaged entry with this first offset, and note the damage."""
        position, size, tag_code, _ = self.row(offset)
        first = last = offset
        if batches.is_batch(tag_code) or index.is_hole(tag_code):
            first, last = self.first_of(offset), self.last_of(offset)
        # Of a record no rows behind it are read: they may be about to be rebuilt from it.
        within = position - self.base_position
        origin = self.origin
        problem = "it is not what was written"
        if index.kind_of(tag_code) == index.GIVEN_UP:
            problem = "it was never written, or given up"
        origin.findings.note(
            Finding(
                self.log_path,
                within,
                size,
                origin.topic,
                origin.queue_id,
                first,
                last + 1 - first,
                problem,
            )
        )
        self.verified.remove(position, position + size)
        return CorruptError(self.log_path, within, origin.topic, origin.queue_id, offset, last + 1)

    def is_verified(self, position: int, size: int) -> bool:
        """Return whether this process has written or verified all entries there."""
        end = min(position + size, self.fresh)
        return position >= end or self.verified.covers(position, end)

    def stored_at(self, offset: int) -> int:
        """Return the approximate store time of the entry that holds `offset`, in ms.

        A record contains it, for a batch its row does. For a damaged record, or one that the disk
        cannot read, the time of an earlier one is used.
        """
        for each in range(offset, max(self.base_offset, offset - _NEIGHBOURS) - 1, -1):
            tag_code = self.row(each)[2]
            if batches.is_batch(tag_code) or index.is_hole(tag_code):
                return batches.appended_at(tag_code)
            try:
                return entries.stored_at(self.entry(each))
            except DescriptorsError:
                raise
            except StorageError:
                continue
        return 0

    def newest(self) -> int:
        """Return the store time of the last entry, which must exist.

        It is 0 if damage makes it unknown.
        """
        if self.newest_ms is None:
            self.newest_ms = self.stored_at(self.end[1] - 1)
        return self.newest_ms

    def flush_index(self) -> None:
        """Write the buffered rows."""
        self.index.flush()

    def give_up(self, offset: int) -> tuple[int, int]:
        """Make readers skip the entry that holds `offset`; return its first offset and count."""
        first, last = self.first_of(offset), self.last_of(offset)
        position, size, _, link = self.row(first)
        tag_code = index.hole_tag(index.GIVEN_UP, self.stored_at(first))
        count = last + 1 - first
        row = index.pack_row(position, size, tag_code, link)
        self.index.replace(first - self.base_offset, row * count)
        return first, count
