"""Searches in a segment by timestamp: the first entry at a time, and the largest timestamp.

Kafka clients ask for both. The timestamp of a batch is the largest of its records', which producers
set in any order. That of a RocketMQ record is its store timestamp; these are assumed to be in
order, as they are unless a clock was set back.

For each block of about BLOCK_BYTES the largest timestamp is kept in memory, some 100 bytes. Blocks
are built on the first query and extended by the next; a batch then costs half a microsecond.
Source: storage/.../TimeIndex.java, LogSegment.findOffsetByTimestamp,
readMaxTimestampAndOffsetSoFar.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store.reads import find_run
from steelyard.store.segment import Segment

BLOCK_BYTES = 256 * 1024


class _Block(msgspec.Struct):
    """The entries `first` .. `next_offset` - 1."""

    first: int
    next_offset: int
    size: int
    largest: int


class Times:
    """The blocks of one segment."""

    __slots__ = ("_blocks", "_next_offset", "_segment")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._blocks: list[_Block] = []
        self._next_offset = segment.base_offset
        """The end of the entries scanned so far, including those given up."""

    def first_at(self, timestamp: int, start: int) -> tuple[int, int] | None:
        """Find (offset, timestamp) of the first entry from `start` not before a timestamp."""
        self.extend()
        for block in self._blocks:
            if block.largest >= timestamp and block.next_offset > start:
                for offset, found in self._walk(max(block.first, start), block.next_offset):
                    if found >= timestamp:
                        return max(offset, start), found
        return None

    def largest(self, start: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first entry with the largest timestamp, or None."""
        self.extend()
        best: tuple[int, int] | None = None
        for block in self._blocks:
            if block.next_offset > start and (best is None or block.largest > best[1]):
                for offset, found in self._walk(max(block.first, start), block.next_offset):
                    if best is None or found > best[1]:
                        best = max(offset, start), found
        return best

    @property
    def is_complete(self) -> bool:
        """Return whether every entry of the segment is scanned."""
        segment = self._segment
        return self._next_offset >= segment.end[1]

    def reaches(self, timestamp: int) -> bool:
        """Return whether a scanned entry is known to have this timestamp or a later one."""
        return any(block.largest >= timestamp for block in self._blocks)

    def extend(self, runs_max: int | None = None) -> None:
        """Scan the entries added since the last time, at most `runs_max` runs of BLOCK_BYTES."""
        segment, blocks = self._segment, self._blocks
        offset, end = self._next_offset, segment.end[1]
        while offset < end and runs_max != 0:
            if runs_max is not None:
                runs_max -= 1
            extent = find_run(segment, offset, end, BLOCK_BYTES)
            if not extent.size:  # given up
                offset = self._next_offset = extent.next_offset
                continue
            if extent.kind == entries.RECORDS:
                largest = segment.stored_at(extent.next_offset - 1)
            else:
                largest = max(found for _, found in self._walk(offset, extent.next_offset))
            if blocks and blocks[-1].size + extent.size <= BLOCK_BYTES:
                last = blocks[-1]
                last.next_offset = extent.next_offset
                last.size += extent.size
                last.largest = max(last.largest, largest)
            else:
                blocks.append(_Block(offset, extent.next_offset, extent.size, largest))
            offset = self._next_offset = extent.next_offset

    def _walk(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, timestamp) of each entry, from the one that holds `offset`."""
        while offset < end:
            run = find_run(self._segment, offset, end, BLOCK_BYTES).read()
            data = run.data
            position = 0
            offset = max(offset, run.first_offset)
            while position < len(data):
                if run.kind == entries.RECORDS:
                    yield offset, entries.stored_at(data, position)
                    position += entries.size_of(data, position)
                    offset += 1
                else:
                    base = batches.base_offset(data, position)
                    yield base, batches.max_timestamp(data, position)
                    offset = base + batches.span_of(data, position)
                    position += batches.size_at(data, position)
            assert offset == run.next_offset or not data
            offset = run.next_offset
