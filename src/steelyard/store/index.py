"""The fixed-width index of a segment: a row per offset that locates its entry.

    int64   position in the log                      int32   size of the entry
    int64   tag code, or a kind in its first byte    uint32  link
    uint32  check: CRC-32C of the row so far, little-endian

The first three are RocketMQ's ConsumeQueue unit, big-endian. `link` is the CRC-32C of all entries
of the segment from its beginning up to and including this one (see `links`), so one call verifies
any run of entries. `check` is seeded so that the CRC-32C of any number of intact rows is the seed
again: one call verifies them all.

New rows are buffered and written in bulk, so that an append costs a single write, to the log; lost
rows can be rebuilt from the log. `Buffers` bounds the buffered rows of a store.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from steelyard.store.files import Files

ROW = struct.Struct(">qiqI4x")
"""Unpacks a row: position, size, tag code, link. `pack_row` makes one."""
ROW_BYTES = 28
TAG_BYTE = 12
"""Position of the tag code in a row."""

DAMAGED = 0x41
"""First byte of the tag code if the entry cannot be found in the log. Reads are refused."""
GIVEN_UP = 0x42
"""The same, but given up by an operator or lost in a power cut: readers skip it."""
REMOVED = 0x43
"""First byte of the tag code if compaction removed the entry: readers skip it, as if it had been
given up, but nothing is wrong. Its position is that of the next entry, its link the last one's."""
SKIPPED = frozenset((GIVEN_UP, REMOVED))
"""What readers skip."""

_HOLES = frozenset((DAMAGED, GIVEN_UP, REMOVED))
_FRONT = struct.Struct(">qiqI")
_SEALED = struct.Struct("<24sI")
_LINK = struct.Struct(">I")
_LINK_BYTE = 20
SOUND = 0x48674BC7
"""CRC-32C of any data followed by its own CRC-32C."""
TIME_BITS = 56
TIME_MAX = (1 << TIME_BITS) - 1


def pack_row(position: int, size: int, tag_code: int, link: int) -> bytes:
    """Pack a row with its checksum."""
    front = _FRONT.pack(position, size, tag_code, link)
    return _SEALED.pack(front, crc32c(front, SOUND))


def are_sound(rows: bytes) -> bool:
    """Return whether all of these rows are as they were packed."""
    return bool(crc32c(rows, SOUND) == SOUND)


def corrected(row: bytes) -> bytes | None:
    """Return the intact row that differs from this one in a single bit; None if there is none.

    Intact rows differ from each other in six bits or more, so there is at most one.
    """
    number = int.from_bytes(row, "big")
    for bit in range(8 * ROW_BYTES):
        candidate = (number ^ 1 << bit).to_bytes(ROW_BYTES, "big")
        if are_sound(candidate):
            return candidate
    return None


def link_of(rows: bytes, number: int = 0) -> int:
    """Return the link of one of several packed rows."""
    (link,) = _LINK.unpack_from(rows, number * ROW_BYTES + _LINK_BYTE)
    return int(link)


def kinds(rows: bytes) -> bytes:
    """Return a byte per packed row: `batch.KIND`, a hole's kind; 0 or 0xFF for records."""
    return rows[TAG_BYTE::ROW_BYTES]


def hole_tag(kind: int, now: int) -> int:
    """Return the tag code of rows of a kind without entry; `now`: approximate store time, in ms."""
    return kind << TIME_BITS | min(max(now, 0), TIME_MAX)


def kind_of(tag_code: int) -> int:
    """Return the kind in a tag code: `batch.KIND`, a hole's; 0 or -1 for a record."""
    return tag_code >> TIME_BITS


def is_hole(tag_code: int) -> bool:
    """Return whether a row with this tag code has no readable entry."""
    return tag_code >> TIME_BITS in _HOLES


def is_removed(tag_code: int) -> bool:
    """Return whether compaction removed the entry of a row with this tag code."""
    return tag_code >> TIME_BITS == REMOVED


def tells_no_link(tag_code: int, link: int) -> bool:
    """Return whether the row is a hole whose entry's link was never known.

    Entries after it are protected by their own checksums only.
    """
    return is_hole(tag_code) and not is_removed(tag_code) and not link


class Buffers:
    """The indexes of a store with buffered rows, oldest first; about `rows_max` rows in all.

    This bounds both the memory and what recovery has to read after a kill.
    """

    def __init__(self, rows_max: int) -> None:
        self.bytes_max = rows_max * ROW_BYTES
        self._waiting: dict[str, Index] = {}
        self.bytes_waiting = 0

    def enter(self, path: str, index: Index) -> None:
        """Register an index that is about to buffer rows."""
        self._waiting[path] = index

    def leave(self, path: str, bytes_gone: int) -> None:
        """Unregister an index that no longer has buffered rows."""
        if self._waiting.pop(path, None) is not None:
            self.bytes_waiting -= bytes_gone

    def shrink(self) -> None:
        """Make the oldest indexes write their rows if there are too many. Raises StorageError."""
        while self.bytes_waiting >= self.bytes_max:
            next(iter(self._waiting.values())).flush()

    def flush(self) -> None:
        """Write all rows.

        Raises StorageError at the first index that fails; its rows stay buffered.
        """
        for index in list(self._waiting.values()):
            index.flush()


class Index:
    """Rows 0 .. count - 1 of one segment, of which `file_rows` are in the file."""

    __slots__ = ("_buffers", "_file_rows", "_files", "_flush_bytes", "_path", "_tail")

    def __init__(
        self, files: Files, buffers: Buffers, path: str, flush_rows: int, file_rows: int = 0
    ) -> None:
        self._files = files
        self._buffers = buffers
        self._path = path
        self._flush_bytes = max(1, flush_rows) * ROW_BYTES
        self._file_rows = file_rows
        self._tail = bytearray()

    @property
    def count(self) -> int:
        return self._file_rows + len(self._tail) // ROW_BYTES

    def prepare(self) -> None:
        """Make room for more rows; call it before writing the log.

        It may raise StorageError, `add` cannot.
        """
        buffers = self._buffers
        if buffers.bytes_waiting >= buffers.bytes_max:
            buffers.shrink()
        if len(self._tail) >= self._flush_bytes:
            self.flush()
        if not self._tail:
            buffers.enter(self._path, self)

    def add(self, rows: bytes) -> None:
        """Append packed rows to the buffer."""
        self._tail += rows
        self._buffers.bytes_waiting += len(rows)

    def read(self, first: int, count: int) -> bytes:
        """Return the packed rows from `first` on, at most `count`.

        Where the file was cut they are zeros, which no valid row is.
        """
        in_tail = first - self._file_rows
        if in_tail >= 0:
            return bytes(self._tail[in_tail * ROW_BYTES : (in_tail + count) * ROW_BYTES])
        from_file = min(count, -in_tail)
        size = from_file * ROW_BYTES
        rows = self._files.read(self._path, first * ROW_BYTES, size)
        if len(rows) != size:
            rows = rows.ljust(size, b"\0")
        if count > from_file:
            rows += self._tail[: (count - from_file) * ROW_BYTES]
        return rows

    def replace(self, first: int, rows: bytes) -> None:
        """Replace existing rows from `first` on. Raises StorageError for those in the file."""
        in_tail = max(0, first - self._file_rows)
        from_file = max(0, min(len(rows), (self._file_rows - first) * ROW_BYTES))
        if from_file < len(rows):
            begin = in_tail * ROW_BYTES
            self._tail[begin : begin + len(rows) - from_file] = rows[from_file:]
        if from_file:
            self._files.overwrite(self._path, first * ROW_BYTES, rows[:from_file])

    def flush(self) -> None:
        """Write the buffered rows in one write. On StorageError they stay buffered."""
        if self._tail:
            position = self._file_rows * ROW_BYTES
            self._files.write(self._path, position, bytes(self._tail), can_be_lost=True)
            self._file_rows += len(self._tail) // ROW_BYTES
        self.discard()

    def discard(self) -> None:
        """Discard the buffered rows."""
        self._buffers.leave(self._path, len(self._tail))
        self._tail.clear()

    def cut(self, count: int) -> None:
        """Keep the first `count` rows, all of them in the file; used during recovery."""
        assert not self._tail
        assert count <= self._file_rows
        self._file_rows = count
        self._files.truncate(self._path, count * ROW_BYTES)
