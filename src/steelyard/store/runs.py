"""The index of a cleaned segment: an entry's row, and how many offsets have it.

    int64   first offset     int32  offsets, one for each row of an ordinary index (`index`)
    int64   position at which the entry was first written; positions in rows are where it is now
    28      the row          uint32 CRC-32C of the run so far

Offsets between two runs have no entry: compaction removed it. So the size of this index depends on
what is left, not on what has ever been written. It is complete and synced before it counts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from crc32c import crc32c

from steelyard.store.files import Files
from steelyard.store.index import ROW

RUN = struct.Struct(">qiq28sI")
RUN_BYTES = RUN.size
_FRONT = struct.Struct(">qiq28s")
_CRC = struct.Struct(">I")

_PIECE_RUNS = 1_024
"""Runs that `following` reads at a time, after a few."""


class EntryRun(NamedTuple):
    """An entry with the offsets `first` .. `stop` - 1, first written at `written`, and its row."""

    first: int
    span: int
    written: int
    row: bytes

    @property
    def stop(self) -> int:
        return self.first + self.span

    @property
    def place(self) -> tuple[int, int, int, int]:
        """(position, size, tag code, link) of the entry."""
        position, size, tag_code, link = ROW.unpack(self.row)
        return position, size, tag_code, link


def pack_run(run: EntryRun) -> bytes:
    """Pack a run with its checksum."""
    front = _FRONT.pack(*run)
    return front + _CRC.pack(crc32c(front))


def unpack_run(data: bytes, at: int = 0) -> EntryRun | None:
    """Return the run at a place; None if it is not as it was packed."""
    if at + RUN_BYTES > len(data):
        return None
    first, span, written, row, crc = RUN.unpack_from(data, at)
    with memoryview(data) as view:
        if crc32c(view[at : at + _FRONT.size]) != crc:
            return None
    return EntryRun(first, span, written, row)


class Runs:
    """The runs 0 .. count - 1 of a file. `mend` returns a run that is damaged, made anew."""

    __slots__ = ("_files", "_mend", "count", "path")

    def __init__(
        self, files: Files, path: str, count: int, mend: Callable[[int], EntryRun]
    ) -> None:
        self._files = files
        self._mend = mend
        self.path = path
        self.count = count

    def raw(self, number: int) -> EntryRun | None:
        """Return a run as it is in the file; None if it is damaged."""
        return unpack_run(self._files.read(self.path, number * RUN_BYTES, RUN_BYTES))

    def at(self, number: int) -> EntryRun:
        """Return a run, mended if it was damaged."""
        return self.raw(number) or self._mend(number)

    def find(self, offset: int) -> int:
        """Return the number of the last run that begins at `offset` or before it; -1: none does."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.at(middle).first <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def following(self, number: int) -> Iterator[EntryRun]:
        """Yield the runs from a number on."""
        piece = 16
        while number < self.count:
            data = self._files.read(self.path, number * RUN_BYTES, piece * RUN_BYTES)
            found = max(1, len(data) // RUN_BYTES)
            for at in range(found):
                yield unpack_run(data, at * RUN_BYTES) or self._mend(number + at)
            number += found
            piece = min(4 * piece, _PIECE_RUNS)

    def replace(self, number: int, run: EntryRun) -> None:
        """Replace a run. Raises StorageError."""
        self._files.overwrite(self.path, number * RUN_BYTES, pack_run(run))
