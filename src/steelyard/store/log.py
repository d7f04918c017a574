"""The log of one queue: entries in segments, found by offset, by time or by address.

    entry     a record of RocketMQ's commit log (`entry`) or a Kafka record batch (`batch`), in any order
    offset    counts messages of this log, from 0: a record takes one offset, a batch of n records takes n;
              min_offset <= offset < max_offset can be read
    position  counts bytes of this log, from 0; it goes on growing when old segments are dropped
    address   log id << 40 | position: one number for an entry in the whole store, which stands where
              RocketMQ has its commit-log offset

An entry must carry its offset, a record its address as well, so that recovery can tell a whole entry from
rubbish: build it with `max_offset` and `next_address`, then `append` it.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from steelyard.errors import CorruptError, DiskFullError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import index, links, reads
from steelyard.store.entry import PLACES_BYTE, unpack_places
from steelyard.store.index import pack_row
from steelyard.store.log_config import LogConfig
from steelyard.store.reads import Run, RunExtent, Slice
from steelyard.store.recovery import LogRecovery
from steelyard.store.segment import POSITION_BITS, POSITION_MAX, Origin, Segment
from steelyard.store.segments import Segments
from steelyard.store.tables import Table

_MISPLACED = "the entry was made for another place"
LOG_ID_MAX = (1 << 63 - POSITION_BITS) - 1


class Log:
    """See the module's text. Made by `Store`."""

    __slots__ = (
        "_segments",
        "_starts",
        "folder",
        "log_id",
        "max_offset",
        "min_offset",
        "next_address",
        "queue_id",
        "topic",
    )

    def __init__(self, origin: Origin, config: LogConfig, starts: Table) -> None:
        """`starts`: of all logs, by log id, what `delete_before` was told."""
        self.topic = origin.topic
        self.queue_id = origin.queue_id
        self.log_id = origin.log_id
        self.folder = origin.folder
        self.min_offset = 0
        self.max_offset = 0
        self.next_address = self.log_id << POSITION_BITS
        self._segments = Segments(origin, config)
        self._starts = starts

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entry: bytes, tag_code: int, now: int) -> int:
        """Add an entry; its offset. One write: when this returns, the kernel has the entry.

        Raises DiskFullError or StorageError; then the log is as before.
        """
        address = self.next_address
        offset = self.max_offset
        position = address & POSITION_MAX
        assert unpack_places(entry, PLACES_BYTE) == (offset, address), _MISPLACED
        size = len(entry)
        segment = self._segments.for_append((position, offset), size, now)
        link = crc32c(entry, segment.link)  # as in `links`, without the call
        segment.append(entry, pack_row(position, size, tag_code, link), link)
        segment.newest_ms = now
        self.max_offset = offset + 1
        self.next_address = address + size
        return offset

    def append_many(self, batch: Sequence[tuple[bytes, int]], now: int) -> int:
        """Add (entry, tag code) pairs, at least one, at consecutive offsets; the first offset. One write for all."""
        first = offset = self.max_offset
        begin = self.next_address & POSITION_MAX
        log_base = self.next_address - begin
        assert batch, "an empty batch"
        data = b"".join([entry for entry, _ in batch])
        segment = self._segments.for_append((begin, first), len(data), now)
        link = segment.link
        position = begin
        rows = []
        for entry, tag_code in batch:
            assert unpack_places(entry, PLACES_BYTE) == (offset, log_base + position), _MISPLACED
            size = len(entry)
            link = crc32c(entry, link)
            rows.append(pack_row(position, size, tag_code, link))
            position += size
            offset += 1
        segment.append(data, b"".join(rows), link)
        segment.newest_ms = now
        self.max_offset = offset
        self.next_address = log_base + position
        return first

    def append_batch(self, batch: bytes, count: int, now: int) -> int:
        """Add a Kafka record batch of `count` records; its base offset. One write.

        The caller has checked it and set its base offset to `max_offset`. `now` is what `stored_at` says of it.
        """
        first = self.max_offset
        size = len(batch)
        assert batches.size_of(batch, 0, first) == size, _MISPLACED
        assert batches.count_of(batch) == count
        address = self.next_address
        position = address & POSITION_MAX
        segment = self._segments.for_append((position, first), size, now)
        link = links.batch_link(batch, segment.link)
        row = pack_row(position, size, batches.row_tag(now), link)
        segment.append(batch, row * count, link)
        segment.newest_ms = now
        self.max_offset = first + count
        self.next_address = address + size
        return first

    # -- reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        count_max: int,
        bytes_max: int,
        tag_codes: frozenset[int] | None = None,
        end: int | None = None,
    ) -> Slice:
        """Records from `offset` on: at most `count_max`, at most `bytes_max` bytes but always one.

        `end`: as if the log ended there; None or more than max_offset is max_offset.

        With `tag_codes` only records with one of these codes; a bounded number of them is looked at, so
        an empty slice with a `next_offset` past `offset` means: read on. A slice ends where a segment ends
        or a batch begins; where `offset` is in a batch it is empty and `next_offset` is `offset`: see
        `read_run`. Outside min_offset .. max_offset the slice is empty and `next_offset` the nearest of the two.
        """
        end = self.max_offset if end is None else min(end, self.max_offset)
        if not self.min_offset <= offset < end:
            nearest = max(self.min_offset, min(offset, end))
            return Slice(b"", 0, nearest, nearest)
        segment = self._segment_at(offset)
        if tag_codes is not None:
            return reads.read_tagged(segment, offset, end, count_max, bytes_max, tag_codes)
        return reads.read_records(segment, offset, end, count_max, bytes_max)

    def read_run(self, offset: int, bytes_max: int, end: int | None = None) -> Run:
        """Entries of one kind from the one that holds `offset` on: at most `bytes_max` bytes but always one.

        `end`: as if the log ended there; a batch that goes on beyond it is not given. A run ends where a
        segment ends. Outside min_offset .. max_offset the run is empty and `next_offset` the nearest of the two.
        """
        end = self.max_offset if end is None else min(end, self.max_offset)
        if not self.min_offset <= offset < end:
            nearest = max(self.min_offset, min(offset, end))
            return Run(entries.RECORDS, b"", nearest, nearest)
        return reads.find_run(self._segment_at(offset), offset, end, bytes_max).read()

    def find_run(self, offset: int, bytes_max: int, end: int, *, refuse: bool = True) -> RunExtent:
        """Where the run is that `read_run` reads, for whoever decides how to. min_offset <= offset < end <= max_offset.

        `refuse`: see `reads.find_run`.
        """
        return reads.find_run(self._segment_at(offset), offset, end, bytes_max, refuse=refuse)

    def entry_at(self, offset: int) -> bytes:
        """The entry that holds an offset that the log has: a record, or a whole batch. Raises CorruptError."""
        return self._segment_at(offset).entry(offset)

    def record_at(self, offset: int) -> bytes | None:
        """The record at an offset that the log has, None where a batch holds it, or it was given up. Raises CorruptError."""
        segment = self._segment_at(offset)
        tag_code = segment.row(offset)[2]
        if batches.is_batch(tag_code) or index.kind_of(tag_code) == index.GIVEN_UP:
            return None
        return segment.entry(offset)

    def address_at(self, offset: int) -> int:
        """The address of the entry that holds an offset that the log has."""
        return self.log_id << POSITION_BITS | self._segment_at(offset).row(offset)[0]

    def stored_at(self, offset: int) -> int:
        """When the entry that holds `offset`, which the log has, was stored, ms.

        Of a record it is its own store timestamp, of a batch the time of its append by this broker's
        clock, not the producers', so that times are in order.
        """
        return self._segment_at(offset).stored_at(offset)

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

    def offset_for_timestamp(
        self, timestamp: int, start: int | None = None
    ) -> tuple[int, int] | None:
        """(offset, timestamp) of the first entry with this timestamp or a later one; None without one.

        See `times` for what the timestamp of an entry is. Of a batch it is the largest of its records,
        of which the first that fits is to be found by the caller; where `min_offset` is inside the batch, that
        may be one that is deleted: then look on, from `start`.
        """
        start = self.min_offset if start is None else max(start, self.min_offset)
        for segment in self._segments.all:
            if segment.end[1] > start:
                found = self._segments.times(segment).first_at(timestamp, start)
                if found is not None:
                    return found
        return None

    def max_timestamp(self, start: int | None = None) -> tuple[int, int] | None:
        """(offset, timestamp) of the first entry from `start` on with the largest timestamp; None without an entry.

        Where `min_offset` is inside a batch, the largest of its records may be one that is deleted.
        """
        start = self.min_offset if start is None else max(start, self.min_offset)
        best: tuple[int, int] | None = None
        for segment in self._segments.all:
            found = self._segments.times(segment).largest(start)
            if found is not None and (best is None or found[1] > best[1]):
                best = found
        return best

    def learn_times(self, timestamp: int | None = None) -> bool:
        """Do a part, of some 4 ms at most, of what `offset_for_timestamp` and `max_timestamp` (None) have to find out first.

        False: there is more to be done. Those who cannot wait call these at once.
        """
        may_learn = True
        for segment in self._segments.all:
            times = self._segments.times(segment)
            if not times.is_complete and may_learn:
                may_learn = False
                times.extend(1)
            if not times.is_complete:
                return False
            if timestamp is not None and times.reaches(timestamp):
                return True
        return True

    def at_address(self, address: int) -> bytes | None:
        """The record that begins at an address of this log; None when none does (it may be anybody's guess).

        A batch is none: it may hold many messages, and no id of RocketMQ's names one of them.
        """
        position = address & POSITION_MAX
        segment = self._segments.at_position(position)
        if segment is None or segment.end[0] - position < entries.SIZE_MIN:
            return None
        offset = segment.offset_at(position)
        if offset is None or offset < self.min_offset:
            return None
        begin, _, tag_code, _ = segment.row(offset)
        if begin != position or batches.is_batch(tag_code) or index.is_hole(tag_code):
            return None
        return segment.entry(offset)

    def _segment_at(self, offset: int) -> Segment:
        assert self.min_offset <= offset < self.max_offset, f"{self.folder} has no offset {offset}"
        return self._segments.at_offset(offset)

    # -- keeping ---------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._segments.config

    def configure(self, config: LogConfig) -> None:
        """From now on these settings hold; `retain` acts on what was written before as well."""
        self._segments.configure(config)

    def retain(self, now: int) -> int:
        """Delete the segments that are past their retention; the number of messages gone.

        A log whose entries are all too old begins a new segment: offsets and positions go on.
        Raises StorageError; what was deleted by then stays so.
        """
        return self._drop(self._segments.past_retention(self.config, now))

    def oldest(self) -> tuple[int, int] | None:
        """(when its newest entry was stored, bytes) of the first segment, None where there is no other one."""
        return self._segments.oldest()

    def drop_oldest(self) -> int:
        """Delete the segment that `oldest` told of, whatever the retention; the number of messages gone."""
        return self._drop(1)

    def delete_before(self, offset: int) -> None:
        """Make `min_offset` at least `offset`, at most `max_offset`, for good; delete whole segments before it.

        What is left of a segment, or of a batch, stays on the disk and is not read. Raises StorageError; what
        was deleted by then stays so. Source: storage/.../UnifiedLog.maybeIncrementLogStartOffset (KIP-107).
        """
        offset = min(offset, self.max_offset)
        if offset > self.min_offset:
            try:
                self._starts.put(str(self.log_id), b"%d" % offset)
            except DiskFullError:
                # What can be deleted whole makes the room that is missing.
                if not self._drop(self._segments.before(offset)):
                    raise
                if self.min_offset < offset:
                    self._starts.put(str(self.log_id), b"%d" % offset)
            self.min_offset = offset
            self._drop(self._segments.before(offset))

    def _drop(self, gone: int) -> int:
        """Delete the first segments; how far that moves min_offset."""
        if not gone:
            return 0
        before = self.min_offset
        try:
            self._segments.drop(gone)
        finally:  # a file may stay where the disk refuses; what is not listed any more is not read
            self.min_offset = max(before, self._segments.all[0].base_offset)
        return self.min_offset - before

    @property
    def end(self) -> tuple[int, int]:
        """Position and offset after the last entry."""
        return self.next_address & POSITION_MAX, self.max_offset

    @property
    def has_files(self) -> bool:
        """Has an entry ever been appended, and is the log not deleted?"""
        return bool(self._segments.all)

    def size(self) -> int:
        """Bytes of all segments: of all entries that can be read, and of those before them that are not deleted yet."""
        return self._segments.size()

    def flush_index(self) -> None:
        """Write the index rows that wait in memory."""
        if self._segments.all:
            self._segments.all[-1].flush_index()

    def delete(self) -> None:
        """Delete all files. Whoever still holds the log finds it empty, and must not append."""
        self.min_offset = self.max_offset
        self._segments.remove()

    # -- damage ----------------------------------------------------------------------------------

    def give_up(self, offset: int) -> tuple[int, int]:
        """Have readers pass over the damaged entry that holds an offset: its first offset, and how many it has.

        The offsets stay, and so do the bytes in the log file. It is noted in the index only: an index that is made anew
        says again that the entry is damaged. Raises StorageError when the index cannot be written.
        """
        return self._segment_at(offset).give_up(offset)

    def verify(self, offset: int, bytes_max: int) -> tuple[int, int]:
        """Read and verify entries from an offset on, about `bytes_max` bytes; what is damaged is noted in `findings`.

        The offset to go on from, max_offset at the end, and how many bytes were read.
        """
        offset = max(offset, self.min_offset)
        if offset >= self.max_offset:
            return self.max_offset, 0
        extent = self.find_run(offset, bytes_max, self.max_offset, refuse=False)
        if not extent.size:
            return extent.next_offset, 0
        try:
            run = extent.read()
        except CorruptError as error:
            return error.next_offset, extent.size
        return run.next_offset, len(run.data)

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, now: int, end: tuple[int, int] | None = None) -> LogRecovery:
        """Take over what the folder holds; see `recovery` and `repair`.

        `end`: position and offset where a clean stop left it; None after a kill.
        """
        repair, segments_cut = self._segments.recover(now, end)
        if self._segments.all:
            self.min_offset = self._segments.all[0].base_offset
            position, self.max_offset = self._segments.all[-1].end
            self.next_address = self.log_id << POSITION_BITS | position
        self._recover_start()
        return LogRecovery(
            self.topic,
            self.queue_id,
            self.max_offset - self.min_offset,
            repair.rows_made,
            repair.rows_cut,
            repair.bytes_cut,
            segments_cut,
            repair.damaged,
        )

    def _recover_start(self) -> None:
        """Take over what `delete_before` did, and end it where a kill came in between."""
        key = str(self.log_id)
        start = int(self._starts.get(key) or 0)
        if start > self.max_offset:
            # A power cut took entries. Others get their offsets, and are not deleted.
            start = self.max_offset
            self._starts.put(key, b"%d" % start)
        self.min_offset = max(self.min_offset, start)
        self._drop(self._segments.before(start))

    def check(self) -> None:
        """Assert that the segments follow each other and that the ends agree."""
        assert 0 <= self.min_offset <= self.max_offset
        assert self.next_address >> POSITION_BITS == self.log_id
        self._segments.check()
        if self._segments.all:
            assert self._segments.all[0].base_offset <= self.min_offset
            end = (self.next_address & POSITION_MAX, self.max_offset)
            assert self._segments.all[-1].end == end
