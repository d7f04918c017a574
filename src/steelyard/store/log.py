"""The log of one queue: entries in segments, found by offset, by time or by address.

    entry     a RocketMQ commit log record (`entry`) or a Kafka record batch (`batch`), in any order
    offset    counts messages of this log, from 0: a record takes one offset, a batch of n records
              takes n; readable: min_offset <= offset < max_offset
    position  counts bytes of this log, from 0; dropping old segments does not change it
    address   one number for an entry in the whole store (`address`), used where RocketMQ has its
              commit-log offset

An entry must carry its offset, and a record also its address, so that recovery can recognise whole
entries: build it with `max_offset` and `next_address`, then `append` it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crc32c import crc32c

from steelyard.errors import CorruptError, DiskFullError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import index, links, reads
from steelyard.store.address import POSITION_MASK, address_of, distance
from steelyard.store.cleaning import Cleaning
from steelyard.store.entry import PLACES_BYTE, unpack_places
from steelyard.store.index import pack_row
from steelyard.store.log_config import LogConfig
from steelyard.store.reads import Run, RunExtent, Slice
from steelyard.store.recovery import LogRecovery
from steelyard.store.segment import Origin, Segment
from steelyard.store.segments import Segments
from steelyard.store.tables import Table

_MISPLACED = "the entry was made for another place"


class Log:
    """The log of one queue, created by `Store`; see the module docstring."""

    __slots__ = (
        "_log_base",
        "_pinned",
        "_position",
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
        """`starts`: by log id, the offsets passed to `delete_before` of all logs."""
        self.topic = origin.topic
        self.queue_id = origin.queue_id
        self.log_id = origin.log_id
        self.folder = origin.folder
        self.min_offset = 0
        self.max_offset = 0
        self.next_address = self._log_base = address_of(self.log_id, 0)
        self._position = 0
        self._segments = Segments(origin, config)
        self._pinned: int | None = None
        self._starts = starts

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entry: bytes, tag_code: int, now: int) -> int:
        """Append an entry with one write; return its offset. On return the kernel has the entry.

        Raises DiskFullError or StorageError; the log is then unchanged.
        """
        position = self._position
        offset = self.max_offset
        assert unpack_places(entry, PLACES_BYTE) == (offset, self.next_address), _MISPLACED
        size = len(entry)
        segment = self._segments.for_append((position, offset), size, now)
        link = crc32c(entry, segment.link)  # as in `links`, without the call
        segment.append(entry, pack_row(position, size, tag_code, link), link)
        segment.newest_ms = now
        self.max_offset = offset + 1
        self._position = position = position + size
        self.next_address = self._log_base | position & POSITION_MASK
        return offset

    def append_many(self, batch: Sequence[tuple[bytes, int]], now: int) -> int:
        """Append (entry, tag code) pairs, at least one, with one write; return the first offset."""
        first = offset = self.max_offset
        begin = self._position
        log_base = self._log_base
        assert batch, "an empty batch"
        data = b"".join([entry for entry, _ in batch])
        segment = self._segments.for_append((begin, first), len(data), now)
        link = segment.link
        position = begin
        rows = []
        for entry, tag_code in batch:
            address = log_base | position & POSITION_MASK
            assert unpack_places(entry, PLACES_BYTE) == (offset, address), _MISPLACED
            size = len(entry)
            link = crc32c(entry, link)
            rows.append(pack_row(position, size, tag_code, link))
            position += size
            offset += 1
        segment.append(data, b"".join(rows), link)
        segment.newest_ms = now
        self.max_offset = offset
        self._position = position
        self.next_address = log_base | position & POSITION_MASK
        return first

    def append_batch(self, batch: bytes, count: int, now: int) -> int:
        """Append a Kafka batch of `count` records with one write; return its base offset.

        The caller has checked it and set its base offset to `max_offset`. `now` is the time that
        `stored_at` will return for it.
        """
        first = self.max_offset
        size = len(batch)
        assert batches.size_of(batch, 0, first) == size, _MISPLACED
        assert batches.span_of(batch) == count
        position = self._position
        segment = self._segments.for_append((position, first), size, now)
        link = links.batch_link(batch, segment.link)
        row = pack_row(position, size, batches.row_tag(now), link)
        segment.append(batch, row * count, link)
        segment.newest_ms = now
        self.max_offset = first + count
        self._position = position = position + size
        self.next_address = self._log_base | position & POSITION_MASK
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
        """Read records from `offset` on: at most `count_max`, and `bytes_max` bytes but always one.

        `end`: read as if the log ended there; None or more than max_offset means max_offset.

        With `tag_codes` only records with one of these codes are returned; a bounded number of rows
        is examined, so an empty slice with a `next_offset` past `offset` means: continue there. A
        slice ends at the end of a segment or at a batch; if `offset` is in a batch, the slice is
        empty and `next_offset` is `offset`: see `read_run`. Outside min_offset .. max_offset the
        slice is empty and `next_offset` is the nearer of the two.
        """
        end = self.max_offset if end is None else min(end, self.max_offset)
        if not self.min_offset <= offset < end:
            nearest = max(self.min_offset, min(offset, end))
            return Slice(b"", 0, nearest, nearest)
        segment = self._segment_at(offset)
        if segment.name.round and index.is_removed(segment.row(offset)[2]):
            offset = segment.last_of(offset) + 1
            if offset >= min(end, segment.end[1]):
                return Slice(b"", 0, min(offset, end), min(offset, end))
        if tag_codes is not None:
            return reads.read_tagged(segment, offset, end, count_max, bytes_max, tag_codes)
        return reads.read_records(segment, offset, end, count_max, bytes_max)

    def read_run(self, offset: int, bytes_max: int, end: int | None = None) -> Run:
        """Read entries of one kind, from the one that holds `offset`; one at least."""
        end = self.max_offset if end is None else min(end, self.max_offset)
        if not self.min_offset <= offset < end:
            nearest = max(self.min_offset, min(offset, end))
            return Run(entries.RECORDS, b"", nearest, nearest)
        return reads.find_run(self._segment_at(offset), offset, end, bytes_max).read()

    def find_run(
        self,
        offset: int,
        bytes_max: int,
        end: int,
        *,
        refuse: bool = True,
        across_gaps: Collection[int] = (),
    ) -> RunExtent:
        """Return where the run of `read_run` lies. min_offset <= offset < end <= max_offset.

        `refuse`, `across_gaps`: see `reads.find_run`.
        """
        segment = self._segment_at(offset)
        return reads.find_run(
            segment, offset, end, bytes_max, refuse=refuse, across_gaps=across_gaps
        )

    def entry_at(self, offset: int) -> bytes:
        """Return the entry that holds an existing offset: a record or batch.

        Raises CorruptError.
        """
        return self._segment_at(offset).entry(offset)

    def record_at(self, offset: int) -> bytes | None:
        """Return the record at an existing offset.

        None if a batch holds it, or if it was given up or removed by compaction.

        Raises CorruptError.
        """
        segment = self._segment_at(offset)
        tag_code = segment.row(offset)[2]
        if batches.is_batch(tag_code) or index.kind_of(tag_code) in index.SKIPPED:
            return None
        return segment.entry(offset)

    def address_at(self, offset: int) -> int:
        """Return the address of the entry that holds an existing offset."""
        return address_of(self.log_id, self._segment_at(offset).row(offset)[0])

    def entry_end(self, offset: int) -> int:
        """Return the offset after the entry that holds an existing offset."""
        return self._segment_at(offset).last_of(offset) + 1

    def stored_at(self, offset: int) -> int:
        """Return when the entry that holds an existing offset was stored, in ms.

        For a record this is its own store timestamp, for a batch the time of its append by this
        broker's clock, not the producers', so that times are in order.
        """
        return self._segment_at(offset).stored_at(offset)

    def offset_at_time(self, timestamp: int, upper: bool = False) -> int:
        """Return the first offset stored at `timestamp` or later, max_offset if there is none.

        With `upper`, the last offset stored at `timestamp` or before, min_offset if there is none.
        Assumes that store timestamps are in order, as they are unless a clock was set back. Source:
        store/ConsumeQueue.binarySearchInQueueByTime.
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
        """Find the first entry with this timestamp or a later one: (offset, timestamp), or None."""
        start = self.min_offset if start is None else max(start, self.min_offset)
        for segment in self._segments.all:
            if segment.end[1] > start:
                found = self._segments.times(segment).first_at(timestamp, start)
                if found is not None:
                    return found
        return None

    def max_timestamp(self, start: int | None = None) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first entry with the largest timestamp, or None."""
        start = self.min_offset if start is None else max(start, self.min_offset)
        best: tuple[int, int] | None = None
        for segment in self._segments.all:
            found = self._segments.times(segment).largest(start)
            if found is not None and (best is None or found[1] > best[1]):
                best = found
        return best

    def learn_times(self, timestamp: int | None = None) -> bool:
        """Do a part, at most some 4 ms, of the scan for time queries (None: `max_timestamp`)."""
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
        """Return the record that begins at an address of this log; None if none does.

        The address may be anyone's guess. A batch is never returned: it may hold many messages, and
        no message id of RocketMQ names one of them.
        """
        position = self._position - distance(address, self.next_address)
        segment = self._segments.at_position(position)
        offset = None if segment is None else segment.offset_at(position)
        if segment is None or offset is None or offset < self.min_offset:
            return None
        tag_code = segment.row(offset)[2]
        if batches.is_batch(tag_code) or index.is_hole(tag_code):
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
        """Apply these settings from now on; `retain` applies them to existing entries as well."""
        self._segments.configure(config)

    def retain(self, now: int) -> int:
        """Delete the segments that are past their retention; return the number of deleted messages.

        If all entries are too old, the log begins a new segment: offsets and positions continue.
        Raises StorageError; segments deleted before that stay deleted.
        """
        gone = self._segments.past_retention(self.config, now)
        if self._pinned is not None:
            gone = min(gone, self._segments.before(self._pinned))
        return self._drop(gone)

    def pin(self, offset: int) -> None:
        """Keep the entries from this offset on, whatever `retain` and `drop_oldest` would delete.

        Replaces an earlier pin. The pin is not stored.
        """
        self._pinned = offset

    def oldest(self) -> tuple[int, int] | None:
        """Return (store time of its newest entry, bytes) of the first segment.

        None if it is the only one, or has entries that are pinned.
        """
        if self._pinned is not None and not self._segments.before(self._pinned):
            return None
        return self._segments.oldest()

    def drop_oldest(self) -> int:
        """Delete the segment returned by `oldest` despite its retention.

        Return the deleted messages.
        """
        return self._drop(1)

    @property
    def swaps(self) -> int:
        """How often this process has replaced segments: until then, positions stay as they are."""
        return self._segments.swaps

    def closed(self) -> list[Segment]:
        """Return the segments to which nothing will be appended, in order."""
        return self._segments.all[:-1]

    def clean(self, group: list[Segment]) -> Cleaning:
        """Begin to replace these adjacent closed segments. Raises StorageError."""
        return Cleaning(self._segments, group)

    def remove_replaced(self) -> None:
        """Delete what `Cleaning.swap` has replaced; the disk must have the new names.

        Raises StorageError; call it again then.
        """
        self._segments.remove_replaced()

    def delete_before(self, offset: int) -> None:
        """Raise `min_offset` permanently to `offset`, at most `max_offset`.

        Delete whole segments before it.

        The rest of a segment, or of a batch, stays on disk and is not read. Raises StorageError;
        segments deleted before that stay deleted. Source:
        storage/.../UnifiedLog.maybeIncrementLogStartOffset (KIP-107).
        """
        offset = min(offset, self.max_offset)
        if offset > self.min_offset:
            try:
                self._starts.put(str(self.log_id), b"%d" % offset)
            except DiskFullError:
                # Segments that can be deleted whole free the space that is missing.
                if not self._drop(self._segments.before(offset)):
                    raise
                if self.min_offset < offset:
                    self._starts.put(str(self.log_id), b"%d" % offset)
            self.min_offset = offset
            self._drop(self._segments.before(offset))

    def _drop(self, gone: int) -> int:
        """Delete the first segments; return how far min_offset moved."""
        if not gone:
            return 0
        before = self.min_offset
        try:
            self._segments.drop(gone)
        finally:  # possibly only some of them were dropped
            self.min_offset = max(before, self._segments.all[0].base_offset)
        return self.min_offset - before

    @property
    def end(self) -> tuple[int, int]:
        """Return the position and offset after the last entry."""
        return self._position, self.max_offset

    @property
    def has_files(self) -> bool:
        """Return whether an entry has ever been appended and the log not deleted."""
        return bool(self._segments.all)

    def size(self) -> int:
        """The bytes of all segments, including entries that are no longer readable."""
        return self._segments.size()

    def flush_index(self) -> None:
        """Write the buffered index rows."""
        if self._segments.all:
            self._segments.all[-1].flush_index()

    def delete(self) -> None:
        """Delete all files. Other holders of the log find it empty and must not append."""
        self.min_offset = self.max_offset
        self._segments.remove()

    # -- damage ----------------------------------------------------------------------------------

    def give_up(self, offset: int) -> tuple[int, int]:
        """Make readers skip the damaged entry that holds an offset.

        Return its first offset and count.

        The offsets stay, and so do the bytes in the log file. Only the index records it: a rebuilt
        index marks the entry as damaged again. Raises StorageError if the index cannot be written.
        """
        return self._segment_at(offset).give_up(offset)

    def verify(self, offset: int, bytes_max: int) -> tuple[int, int]:
        """Read and verify entries from an offset on, about `bytes_max` bytes.

        Add damage to `findings`.

        Returns the offset to continue from (max_offset at the end) and the number of bytes read.
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
        """Take over the contents of the folder; see `recovery` and `repair`.

        `end`: position and offset recorded by a clean stop; None after a kill.
        """
        repair, segments_cut = self._segments.recover(now, end)
        if self._segments.all:
            self.min_offset = self._segments.all[0].base_offset
            self._position, self.max_offset = self._segments.all[-1].end
            self.next_address = address_of(self.log_id, self._position)
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
        """Restore the effect of `delete_before`, and complete one that a kill interrupted."""
        key = str(self.log_id)
        start = int(self._starts.get(key) or 0)
        if start > self.max_offset:
            # A power cut lost entries. Their offsets are given to new ones, which must not be
            # deleted.
            start = self.max_offset
            self._starts.put(key, b"%d" % start)
        self.min_offset = max(self.min_offset, start)
        self._drop(self._segments.before(start))

    def check(self) -> None:
        """Assert that the segments are contiguous and that the ends agree."""
        assert 0 <= self.min_offset <= self.max_offset
        assert self.next_address == address_of(self.log_id, self._position)
        self._segments.check()
        if self._segments.all:
            assert self._segments.all[0].base_offset <= self.min_offset
            assert self._segments.all[-1].end == self.end
