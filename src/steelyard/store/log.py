"""The log of one queue: entries in segments, found by offset, by time or by address.

    offset    counts entries of this log, from 0; min_offset <= offset < max_offset can be read
    position  counts bytes of this log, from 0; it goes on growing when old segments are dropped
    address   log id << 40 | position: one number for an entry in the whole store, which stands where
              RocketMQ has its commit-log offset

An entry must carry its offset and its address, so that recovery can tell a whole entry from rubbish:
build it with `max_offset` and `next_address`, then `append` it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from steelyard.config import StoreConfig
from steelyard.errors import StorageError
from steelyard.store import entry as entries
from steelyard.store.files import Files
from steelyard.store.index import ROW, ROW_BYTES, Buffers
from steelyard.store.recovery import LogRecovery
from steelyard.store.segment import INDEX_SUFFIX, LOG_SUFFIX, POSITION_BITS, Segment

POSITION_MAX = (1 << POSITION_BITS) - 1
LOG_ID_MAX = (1 << 63 - POSITION_BITS) - 1

SCAN_ROWS_MAX = 16_384
"""Rows that one filtered read looks at. RocketMQ: maxFilterMessageSize, 800 rows at least."""
_SCAN_ROWS = 1_024


class Slice(msgspec.Struct, frozen=True, gc=False):
    """What a read found: `count` entries back to back in `data`.

    `next_offset`: where to read on; past entries that the filter skipped. `first_offset`: that of the
    first entry in `data`, or `next_offset` when there is none.
    """

    data: bytes
    count: int
    next_offset: int
    first_offset: int


class Log:
    """See the module's text. Made by `Store`."""

    __slots__ = (
        "_buffers",
        "_config",
        "_files",
        "_segments",
        "folder",
        "log_id",
        "max_offset",
        "min_offset",
        "next_address",
        "queue_id",
        "topic",
    )

    def __init__(
        self,
        files: Files,
        buffers: Buffers,
        config: StoreConfig,
        folder: str,
        name: tuple[str, int, int],
    ) -> None:
        """`name`: topic, queue id, log id."""
        self.topic, self.queue_id, self.log_id = name
        self.folder = folder
        self.min_offset = 0
        self.max_offset = 0
        self.next_address = self.log_id << POSITION_BITS
        self._files = files
        self._buffers = buffers
        self._config = config
        self._segments: list[Segment] = []

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entry: bytes, tag_code: int, now: int) -> int:
        """Add an entry; its offset. One write: when this returns, the kernel has the entry.

        Raises DiskFullError or StorageError; then the log is as before.
        """
        address = self.next_address
        offset = self.max_offset
        assert entries.places(entry) == (offset, address), "the entry was made for another place"
        size = len(entry)
        segment = self._segment_for(size)
        segment.append(entry, ROW.pack(address & POSITION_MAX, size, tag_code))
        segment.newest_ms = now
        self.max_offset = offset + 1
        self.next_address = address + size
        return offset

    def append_many(self, batch: Sequence[tuple[bytes, int]], now: int) -> int:
        """Add (entry, tag code) pairs, at least one, at consecutive offsets; the first offset. One write for all."""
        first = self.max_offset
        address = self.next_address
        position = address & POSITION_MAX
        rows = bytearray()
        for number, (entry, tag_code) in enumerate(batch):
            size = len(entry)
            assert entries.places(entry) == (
                first + number,
                address,
            ), "the entry was made for another place"
            rows += ROW.pack(position, size, tag_code)
            position += size
            address += size
        assert rows, "an empty batch"
        data = b"".join([entry for entry, _ in batch])
        segment = self._segment_for(len(data))
        segment.append(data, bytes(rows))
        segment.newest_ms = now
        self.max_offset = first + len(batch)
        self.next_address = address
        return first

    def _segment_for(self, size: int) -> Segment:
        """The segment that the next `size` bytes go to: a new one when the last would grow too large."""
        if self._segments:
            last = self._segments[-1]
            if last.size + size <= self._config.segment_bytes or not last.size:
                return last
            last.flush_index()
        if (self.next_address & POSITION_MAX) + size > POSITION_MAX:
            raise StorageError(f"{self.folder} has reached its last position, {POSITION_MAX}")
        return self._begin_segment()

    def _begin_segment(self) -> Segment:
        place = (self.next_address & POSITION_MAX, self.max_offset)
        segment = self._segment(place)
        segment.create()
        self._segments.append(segment)
        return segment

    def _segment(self, place: tuple[int, int], size: int = 0, rows: int = 0) -> Segment:
        flush_rows = self._config.index_flush_rows
        return Segment(self._files, self._buffers, self.folder, place, flush_rows, size, rows)

    # -- reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_codes: frozenset[int] | None = None,
        end: int | None = None,
    ) -> Slice:
        """Entries from `offset` on: at most `count_max`, at most `bytes_max` bytes but always one.

        `end`: as if the log ended there; None or more than max_offset is max_offset.

        With `tag_codes` only entries with one of these codes; a bounded number of entries is looked
        at, so an empty slice with a `next_offset` past `offset` means: read on. A slice ends where a
        segment ends. Outside min_offset .. max_offset the slice is empty and `next_offset` the
        nearest of the two.
        """
        end = self.max_offset if end is None else min(end, self.max_offset)
        if not self.min_offset <= offset < end:
            nearest = max(self.min_offset, min(offset, end))
            return Slice(b"", 0, nearest, nearest)
        segment = self._segment_at(offset)
        if tag_codes is not None:
            return self._read_tagged(segment, offset, end, count_max, bytes_max, tag_codes)
        rows = segment.rows(offset, min(count_max, end - offset))
        count = len(rows) // ROW_BYTES
        begin = ROW.unpack_from(rows)[0]
        limit = begin + bytes_max
        position, size, _ = ROW.unpack_from(rows, (count - 1) * ROW_BYTES)
        if position + size > limit:
            ends = bisect_right(range(count), limit, key=lambda row: _end(rows, row))
            count = max(1, ends)
            position, size, _ = ROW.unpack_from(rows, (count - 1) * ROW_BYTES)
        data = segment.read(begin, position + size - begin)
        return Slice(data, count, offset + count, offset)

    def _read_tagged(
        self,
        segment: Segment,
        offset: int,
        end: int,
        count_max: int,
        bytes_max: int,
        tag_codes: frozenset[int],
    ) -> Slice:
        first = -1
        count = total = 0
        runs: list[list[int]] = []
        next_offset = offset
        stop = min(offset + SCAN_ROWS_MAX, end)
        piece = count_max
        while next_offset < stop and count < count_max:
            rows = segment.rows(next_offset, min(piece, _SCAN_ROWS, stop - next_offset))
            if not rows:
                break
            piece *= 2
            for position, size, tag_code in ROW.iter_unpack(rows):
                if tag_code in tag_codes:
                    if count and total + size > bytes_max:
                        stop = next_offset
                        break
                    if runs and runs[-1][1] == position:
                        runs[-1][1] = position + size
                    else:
                        runs.append([position, position + size])
                    first = next_offset if first < 0 else first
                    count += 1
                    total += size
                next_offset += 1
                if count == count_max:
                    break
        data = b"".join([segment.read(begin, end - begin) for begin, end in runs])
        return Slice(data, count, next_offset, first if count else next_offset)

    def entry_at(self, offset: int) -> bytes:
        """The entry at an offset that the log has."""
        segment = self._segment_at(offset)
        position, size, _ = segment.row(offset)
        return segment.read(position, size)

    def stored_at(self, offset: int) -> int:
        """When the entry at `offset`, which the log has, was stored: its own store timestamp, ms."""
        segment = self._segment_at(offset)
        position, size, _ = segment.row(offset)
        return entries.stored_at(segment.read(position, min(size, entries.HEAD_BYTES)))

    def offset_at_time(self, timestamp: int, upper: bool = False) -> int:
        """The first offset stored at `timestamp` or later, max_offset if none is.

        `upper`: the last offset stored at `timestamp` or before, min_offset if none is. Takes store
        timestamps to be in order, as they are but for a clock that was set back.
        Source: store/ConsumeQueue.binarySearchInQueueByTime.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            stored = self.stored_at(middle)
            if stored < timestamp or (upper and stored == timestamp):
                low = middle + 1
            else:
                high = middle
        return max(self.min_offset, low - 1) if upper else low

    def at_address(self, address: int) -> bytes | None:
        """The entry that begins at an address of this log; None when none does (it may be anybody's guess)."""
        position = address & POSITION_MAX
        place = bisect_right(self._segments, position, key=lambda item: item.base_position) - 1
        if place < 0:
            return None
        segment = self._segments[place]
        left = segment.end[0] - position
        if left < entries.SIZE_MIN:
            return None
        # The offset found there may be part of anybody's message: the index decides.
        offset, _ = entries.places(segment.read(position, entries.HEAD_BYTES))
        if not 0 <= offset - segment.base_offset < segment.count:
            return None
        begin, size, _ = segment.row(offset)
        return segment.read(position, size) if begin == position else None

    def _segment_at(self, offset: int) -> Segment:
        assert self.min_offset <= offset < self.max_offset, f"{self.folder} has no offset {offset}"
        last = self._segments[-1]
        if offset >= last.base_offset:
            return last
        return self._segments[
            bisect_right(self._segments, offset, key=lambda item: item.base_offset) - 1
        ]

    # -- keeping ---------------------------------------------------------------------------------

    def drop_old(self, now: int, retention_ms: int) -> int:
        """Delete whole segments whose newest entry is older than `retention_ms`; the number of entries gone.

        A log whose entries are all old begins a new segment: offsets and positions go on.
        """
        gone = 0
        for segment in self._segments:
            if not segment.count or now - self._newest_ms(segment) <= retention_ms:
                break
            gone += 1
        if not gone:
            return 0
        if gone == len(self._segments):
            self._begin_segment()
        dropped = self._segments[:gone]
        count = sum(segment.count for segment in dropped)
        self._segments = self._segments[gone:]
        self.min_offset = self._segments[0].base_offset
        for segment in dropped:
            segment.remove()
        return count

    def _newest_ms(self, segment: Segment) -> int:
        if segment.newest_ms is None:
            segment.newest_ms = self.stored_at(segment.end[1] - 1)
        return segment.newest_ms

    def size(self) -> int:
        """Bytes of all entries that can be read."""
        return sum(segment.size for segment in self._segments)

    def flush_index(self) -> None:
        """Write the index rows that wait in memory."""
        if self._segments:
            self._segments[-1].flush_index()

    def delete(self) -> None:
        """Delete all files. Whoever still holds the log finds it empty, and must not append."""
        for segment in self._segments:
            segment.remove()
        self._segments = []
        self.min_offset = self.max_offset
        self._files.remove(self.folder)

    # -- recovery --------------------------------------------------------------------------------

    def recover(self) -> LogRecovery:
        """Take over what the folder holds; see `recovery`. The segments before the last one are taken
        as they are when their sizes fit what follows; from the first that does not on, all is cut."""
        names = self._files.disk.list(self.folder)
        places = sorted(place for name in names if (place := _place(name, LOG_SUFFIX)))
        for name in names:
            place = _place(name, INDEX_SUFFIX)
            if place and place not in places:
                self._files.remove(f"{self.folder}/{name}")
        rows_made = rows_cut = bytes_cut = segments_cut = 0
        for number, place in enumerate(places):
            segment = self._segment(place)
            size = self._files.size(segment.log_path)
            rows = self._files.size(segment.index_path) // ROW_BYTES
            segment = self._segment(place, size, rows)
            if self._segments and self._segments[-1].end != place:
                segments_cut += 1
                bytes_cut += size
                segment.remove()
                continue
            self._segments.append(segment)
            self._files.suspect(segment.log_path)
            if number + 1 < len(places) and segment.end == places[number + 1]:
                continue
            repair = segment.recover(self.log_id)
            rows_made += repair.rows_made
            rows_cut += repair.rows_cut
            bytes_cut += repair.bytes_cut
        if self._segments:
            self.min_offset = self._segments[0].base_offset
            position, self.max_offset = self._segments[-1].end
            self.next_address = self.log_id << POSITION_BITS | position
        return LogRecovery(
            self.topic,
            self.queue_id,
            self.max_offset - self.min_offset,
            rows_made,
            rows_cut,
            bytes_cut,
            segments_cut,
        )

    def check(self) -> None:
        """Assert that the segments follow each other and that the ends agree."""
        assert 0 <= self.min_offset <= self.max_offset
        assert self.next_address >> POSITION_BITS == self.log_id
        for before, after in pairwise(self._segments):
            assert before.end == (after.base_position, after.base_offset)
        if self._segments:
            assert self.min_offset == self._segments[0].base_offset
            end = (self.next_address & POSITION_MAX, self.max_offset)
            assert self._segments[-1].end == end


def _end(rows: bytes, row: int) -> int:
    position, size, _ = ROW.unpack_from(rows, row * ROW_BYTES)
    return int(position + size)


def _place(name: str, suffix: str) -> tuple[int, int] | None:
    """Position and offset in a file's name; None for names that are not ours."""
    position, _, offset = name.removesuffix(suffix).partition("-")
    if not name.endswith(suffix) or not (position + offset).isdecimal():
        return None
    return int(position), int(offset)
