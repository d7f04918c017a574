"""Replacing segments of a log by what compaction leaves of them.

    write      entries go to files whose names do not count yet; any thread may sync them meanwhile
    swap       once the disk has them, the files get their names, the log last: in that moment the
               cleaned segment replaces the others, for readers and for a recovery
    remove     once the disk has the names, the replaced files go

A kill or power cut at any point leaves the one or the other, never both or neither: `recover` in
`segments` removes what does not count. Readers that have a file open go on reading it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from steelyard.errors import StorageError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import links
from steelyard.store.cleaned import CleanedSegment
from steelyard.store.index import pack_row
from steelyard.store.reads import find_run
from steelyard.store.runs import RUN_BYTES, EntryRun, pack_run
from steelyard.store.segment import Segment
from steelyard.store.segment_names import LOG_SUFFIX, UNFINISHED_SUFFIX, SegmentName
from steelyard.store.segments import Segments

_ALL = (entries.RECORDS, entries.BATCHES)

WRITE_BYTES = 128 * 1024
"""Bytes that are collected for one write."""


def read_entries(
    segment: Segment, offset: int, bytes_max: int
) -> tuple[list[tuple[EntryRun, bytes]], int]:
    """Return verified entries from an offset on, with their data, and where to continue.

    Entries that readers skip are left out. Raises CorruptError.
    """
    extent = find_run(segment, offset, segment.end[1], bytes_max, across_gaps=_ALL)
    if not extent.size:
        return [], extent.next_offset
    read = extent.read()
    found: list[tuple[EntryRun, bytes]] = []
    for run in segment.entries_from(read.first_offset):
        if run.first >= read.next_offset:
            break
        position, size, _, _ = run.place
        begin = position - extent.position
        found.append((run, read.data[begin : begin + size]))
    return found, read.next_offset


class Cleaning:
    """What is left of a group of adjacent closed segments of a log; see the module docstring."""

    def __init__(self, segments: Segments, group: list[Segment]) -> None:
        self._segments = segments
        self.group = group
        self._files = segments.origin.files
        stop = group[-1].end[1]
        last = max(segment.name.round for segment in group)
        first = group[0].name
        self._name = SegmentName(first.position, first.offset, stop, last + 1)
        stem = f"{segments.origin.folder}/{self._name}"
        self._log_path = stem + LOG_SUFFIX
        self._runs_path = stem + self._name.index_suffix
        self._data = bytearray()
        self._runs = bytearray()
        self._size = self._runs_size = self._link = 0
        for path in (self._log_path, self._runs_path):
            self._files.remove(path + UNFINISHED_SUFFIX)
            self._files.create(path + UNFINISHED_SUFFIX)

    @property
    def is_current(self) -> bool:
        """Return whether the log still has the segments, so that they may be replaced."""
        return self._segments.find_group(self.group) >= 0

    @property
    def size(self) -> int:
        """Bytes of the entries so far."""
        return self._size + len(self._data)

    def add(self, run: EntryRun, data: bytes) -> None:
        """Add an entry: that of `run`, of which `data` may be less than was there.

        In the order of offsets. Raises StorageError.
        """
        tag_code = run.place[2]
        is_batch = batches.is_batch(tag_code)
        self._link = (links.batch_link if is_batch else links.record_link)(data, self._link)
        position = self._name.position + self.size
        row = pack_row(position, len(data), tag_code, self._link)
        self._runs += pack_run(run._replace(row=row))
        self._data += data
        if len(self._data) >= WRITE_BYTES:
            self.write()

    def write(self) -> None:
        """Write what was added. Raises StorageError."""
        self._files.write(self._log_path + UNFINISHED_SUFFIX, self._size, bytes(self._data))
        self._size += len(self._data)
        self._data.clear()
        path = self._runs_path + UNFINISHED_SUFFIX
        self._files.write(path, self._runs_size, bytes(self._runs))
        self._runs_size += len(self._runs)
        self._runs.clear()

    def swap(self) -> None:
        """Replace the group; everything must have been written and synced. Raises StorageError."""
        assert not self._data
        assert self.is_current
        files = self._files
        for path in (self._runs_path, self._log_path):
            files.rename(path + UNFINISHED_SUFFIX, path, sync=False)
        runs = self._runs_size // RUN_BYTES
        cleaned = CleanedSegment(self._segments.origin, self._name, self._size, runs)
        self._segments.replace(self.group, cleaned)

    def discard(self) -> None:
        """Remove what was written. Files that cannot be removed now are by the next recovery."""
        with suppress(StorageError):
            for path in (self._log_path, self._runs_path):
                self._files.remove(path + UNFINISHED_SUFFIX)


def in_groups(segments: list[Segment], bytes_max: int) -> Iterator[list[Segment]]:
    """Yield groups of adjacent segments that are to become one each, of `bytes_max` at most.

    Otherwise the more is removed, the more small segments there would be.
    """
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if group and (size + segment.size > bytes_max or len(group) == GROUP_MAX):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


GROUP_MAX = 1_000
"""Segments of one group."""
