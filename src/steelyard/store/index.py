"""The fixed-width index of a segment: for each entry its position, size and tag code.

A row is RocketMQ's ConsumeQueue unit: int64 position in the log, int32 size, int64 tag code, big-endian.
New rows wait in memory and are written in bulk, so that an append costs one write, to the log alone;
the log is enough to make lost rows again. `Buffers` bounds how many rows of a store wait.
"""

from __future__ import annotations

import struct

from steelyard.store.files import Files

ROW = struct.Struct(">qiq")
ROW_BYTES = 20


class Buffers:
    """The indexes of a store with rows in memory, oldest first; all together about `rows_max` rows.

    That bounds the memory as well as what recovery has to read after a kill.
    """

    def __init__(self, rows_max: int) -> None:
        self._bytes_max = rows_max * ROW_BYTES
        self._waiting: dict[str, Index] = {}
        self.bytes_waiting = 0

    def enter(self, path: str, index: Index) -> None:
        """`index` is about to have rows in memory."""
        self._waiting[path] = index

    def leave(self, path: str, bytes_gone: int) -> None:
        """The index has no rows in memory any more."""
        if self._waiting.pop(path, None) is not None:
            self.bytes_waiting -= bytes_gone

    def shrink(self) -> None:
        """Have the oldest indexes write their rows where there are too many. Raises StorageError."""
        while self.bytes_waiting >= self._bytes_max:
            next(iter(self._waiting.values())).flush()

    def flush(self) -> None:
        """Write all rows. Raises StorageError at the first index that cannot; the rows stay in memory."""
        for index in list(self._waiting.values()):
            index.flush()


class Index:
    """Rows 0 .. count - 1 of one segment, of which `file_rows` are in the file."""

    __slots__ = ("_buffers", "_file_rows", "_files", "_flush_rows", "_path", "_tail")

    def __init__(
        self, files: Files, buffers: Buffers, path: str, flush_rows: int, file_rows: int = 0
    ) -> None:
        self._files = files
        self._buffers = buffers
        self._path = path
        self._flush_rows = max(1, flush_rows)
        self._file_rows = file_rows
        self._tail = bytearray()

    @property
    def count(self) -> int:
        return self._file_rows + len(self._tail) // ROW_BYTES

    def prepare(self) -> None:
        """Make room for more rows. Call before the log is written: it may raise StorageError, `add` cannot."""
        self._buffers.shrink()
        if len(self._tail) >= self._flush_rows * ROW_BYTES:
            self.flush()
        if not self._tail:
            self._buffers.enter(self._path, self)

    def add(self, rows: bytes) -> None:
        """Append packed rows, in memory."""
        self._tail += rows
        self._buffers.bytes_waiting += len(rows)

    def read(self, first: int, count: int) -> bytes:
        """The packed rows from `first` on, as many of `count` as there are."""
        in_tail = first - self._file_rows
        if in_tail >= 0:
            return bytes(self._tail[in_tail * ROW_BYTES : (in_tail + count) * ROW_BYTES])
        from_file = min(count, -in_tail)
        rows = self._files.read(self._path, first * ROW_BYTES, from_file * ROW_BYTES)
        if count > from_file:
            rows += self._tail[: (count - from_file) * ROW_BYTES]
        return rows

    def flush(self) -> None:
        """Write the rows in memory, in one write. On StorageError they stay in memory."""
        if self._tail:
            position = self._file_rows * ROW_BYTES
            self._files.write(self._path, position, bytes(self._tail), can_be_lost=True)
            self._file_rows += len(self._tail) // ROW_BYTES
        self.discard()

    def discard(self) -> None:
        """Forget the rows in memory."""
        self._buffers.leave(self._path, len(self._tail))
        self._tail.clear()

    def cut(self, count: int) -> None:
        """Keep the first `count` rows, all of them in the file; used while recovering."""
        assert not self._tail
        assert count <= self._file_rows
        self._file_rows = count
        self._files.truncate(self._path, count * ROW_BYTES)
