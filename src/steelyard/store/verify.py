"""Verifies one log of a data directory, opened by nobody: every entry against its checksum, every index row against its entry."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steelyard.store.files import Files
from steelyard.store.index import ROW, ROW_BYTES, Buffers
from steelyard.store.segment import INDEX_SUFFIX, LOG_SUFFIX, Segment

_STRETCH_BYTES = 1024 * 1024


class Stretch(msgspec.Struct, frozen=True):
    """Bytes of one file that are sound, or not. `offset`, `count`: the offsets of the queue that they hold.

    `problem`: one clause, empty for what is sound. `part`: "log", or "rows" for the index, which can be made anew.
    """

    path: str
    position: int
    size: int
    offset: int
    count: int
    problem: str = ""
    part: str = "log"


def verify_log(files: Files, folder: str) -> Iterator[Stretch]:
    """The log of a folder `logs/<topic>/<queue>-<id>`, in order and in constant memory."""
    log_id = int(folder.rpartition("-")[2])
    for name in files.disk.list(folder):
        if name.endswith(LOG_SUFFIX):
            position, _, offset = name.removesuffix(LOG_SUFFIX).partition("-")
            place = int(position), int(offset)
            yield from _verify_segment(files, folder, place, log_id)


def _verify_segment(
    files: Files, folder: str, place: tuple[int, int], log_id: int
) -> Iterator[Stretch]:
    segment = Segment(files, Buffers(1), folder, place, 1)
    index = segment.log_path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
    rows = files.size(index) // ROW_BYTES if files.disk.exists(index) else 0
    size = files.size(segment.log_path)
    begin, first, offset = 0, place[1], place[1]
    end = 0
    for found in segment._scan(log_id, size):
        number = offset - place[1]
        if number < rows:
            row = ROW.unpack(files.read(index, number * ROW_BYTES, ROW_BYTES))
            if row[:2] != (found.position, found.size):
                problem = "a row that does not point at its entry"
                where = number * ROW_BYTES
                yield Stretch(index, where, ROW_BYTES, offset, found.count, problem, "rows")
        offset += found.count
        end += found.size
        if end - begin >= _STRETCH_BYTES:
            yield Stretch(segment.log_path, begin, end - begin, first, offset - first)
            begin, first = end, offset
    yield Stretch(segment.log_path, begin, end - begin, first, offset - first)
    if end < size:
        problem = "no entry whose checksum matches"
        count = max(rows - (offset - place[1]), 1)
        yield Stretch(segment.log_path, end, size - end, offset, count, problem)
