"""The names of segment files: where a segment begins, and of a cleaned one, what it replaced.

    <position>-<offset>                   as it was written
    <position>-<offset>-<stop>-<round>    cleaned (`cleaned`), for the <round>-th time: in place of
                                          all segments with offsets from <offset> to <stop> - 1

Numbers of position and offset have 20 digits. A cleaned segment replaces others in the moment in
which its log gets its name. Those that are still there, because removing them was interrupted, are
recognised by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from steelyard.store.files import Files

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".rows"
RUNS_SUFFIX = ".runs"
"""Suffix of the index of a cleaned segment; see `runs`."""
OLD_INDEX_SUFFIX = ".index"
"""Suffix of index files of format 1: rows of 20 bytes without checksums."""
UNFINISHED_SUFFIX = ".cleaning"
"""After the suffix of a cleaned segment's file that does not count yet."""

INDEX_SUFFIXES = (INDEX_SUFFIX, RUNS_SUFFIX, OLD_INDEX_SUFFIX)


class SegmentName(NamedTuple):
    """Position and offset of the first entry; `stop`, `round`: 0 unless it was cleaned."""

    position: int
    offset: int
    stop: int = 0
    round: int = 0

    def __str__(self) -> str:
        stem = f"{self.position:020}-{self.offset:020}"
        return f"{stem}-{self.stop:020}-{self.round}" if self.round else stem

    @property
    def index_suffix(self) -> str:
        return RUNS_SUFFIX if self.round else INDEX_SUFFIX

    def replaces(self, other: SegmentName) -> bool:
        """Return whether the cleaned segment was made of the other one, among others."""
        return self.round > other.round and self.offset <= other.offset < self.stop


def named(name: str, suffix: str) -> SegmentName | None:
    """Return what a file name with this suffix says; None for other names."""
    parts = name.removesuffix(suffix).split("-")
    if not name.endswith(suffix) or len(parts) not in (2, 4):
        return None
    return SegmentName(*map(int, parts)) if all(map(str.isdecimal, parts)) else None


def all_among(names: Iterable[str]) -> list[SegmentName]:
    """Return the segments whose log files have these names, in order."""
    found = [each for name in names if (each := named(name, LOG_SUFFIX))]
    return sorted(found, key=lambda each: (each.offset, each.round))


def segments_among(names: Iterable[str]) -> list[SegmentName]:
    """Return those segments that no other one has replaced, in order."""
    found = all_among(names)
    cleaned = [each for each in found if each.round]
    return [each for each in found if not any(other.replaces(each) for other in cleaned)]


def segments_in(files: Files, folder: str) -> list[SegmentName]:
    """Return the segments in a folder that no other one has replaced, in order."""
    return segments_among(files.list(folder))


def end_position(files: Files, folder: str) -> int:
    """Return the position after the last byte of a log, judged by its files; 0 without any."""
    found = segments_among(files.disk.list(folder))
    if not found:
        return 0
    return found[-1].position + files.size(f"{folder}/{found[-1]}{LOG_SUFFIX}")
