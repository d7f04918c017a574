"""The ordered segments of one log: where the next entry goes, which to drop, and which to replace.

Compaction replaces closed segments by a cleaned one (`cleaning`). The old files stay until the
names of the new ones are on the disk (`remove_replaced`).
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from steelyard.store.cleaned import CleanedSegment
from steelyard.store.index import ROW_BYTES
from steelyard.store.log_config import LogConfig
from steelyard.store.recovery import SegmentRepair
from steelyard.store.repair import Repair
from steelyard.store.runs import RUN_BYTES
from steelyard.store.scanning import Place, find_next, is_ahead, scan
from steelyard.store.segment import Origin, Segment
from steelyard.store.segment_names import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    UNFINISHED_SUFFIX,
    SegmentName,
    all_among,
    named,
    segments_among,
)
from steelyard.store.times import Times


class Segments:
    """The segments of a log; see the module docstring. `all` is read-only for others."""

    __slots__ = (
        "_config",
        "_files",
        "_folder",
        "_origin",
        "_replaced",
        "_roll_at",
        "_times",
        "all",
        "swaps",
    )

    def __init__(self, origin: Origin, config: LogConfig) -> None:
        self._files = origin.files
        self._config = config
        self._folder = origin.folder
        self._roll_at = 0
        """Time, in ms, before which the last segment is certainly not too old for another entry."""
        self._origin = origin
        self._times: dict[int, Times] = {}
        self._replaced: list[Segment] = []
        """Segments that a cleaned one has replaced, whose files are still there."""
        self.all: list[Segment] = []
        self.swaps = 0
        """How often this process has replaced segments."""

    @property
    def origin(self) -> Origin:
        """What the segments share."""
        return self._origin

    # -- finding ---------------------------------------------------------------------------------

    def at_offset(self, offset: int) -> Segment:
        """Return the segment that holds an existing offset."""
        last = self.all[-1]
        if offset >= last.base_offset:
            return last
        return self.all[bisect_right(self.all, offset, key=lambda item: item.base_offset) - 1]

    def at_position(self, position: int) -> Segment | None:
        """Return the segment that begins at a position or last before it, or None."""
        place = bisect_right(self.all, position, key=lambda item: item.base_position)
        return self.all[place - 1] if place else None

    def times(self, segment: Segment) -> Times:
        """Return the timestamps of a segment, which are cached."""
        times = self._times.get(segment.base_offset)
        if times is None:
            times = self._times[segment.base_offset] = Times(segment)
        return times

    def size(self) -> int:
        """The bytes of all entries."""
        return sum(segment.size for segment in self.all)

    # -- growing ---------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    def configure(self, config: LogConfig) -> None:
        """Apply these settings from now on."""
        self._config = config
        self._roll_at = 0

    def for_append(self, end: Place, size: int, now: int) -> Segment:
        """Return the segment for the next `size` bytes, possibly a new one."""
        if self.all:
            last = self.all[-1]
            if not last.size:
                self._roll_at = 0
                return last
            fits = last.size + size <= self._config.segment_bytes
            if fits and (now < self._roll_at or not self._is_old(last, now)):
                return last
            last.flush_index()
        return self._begin(end)

    def _is_old(self, segment: Segment, now: int) -> bool:
        """Return whether the first entry of the last segment is older than segment_ms."""
        segment_ms = self._config.segment_ms
        if segment_ms < 0:
            return False
        self._roll_at = segment.stored_at(segment.base_offset) + segment_ms
        return now >= self._roll_at

    def _begin(self, end: Place) -> Segment:
        segment = Segment(self._origin, SegmentName(*end))
        segment.create()
        self.all.append(segment)
        self._roll_at = 0
        return segment

    # -- shrinking -------------------------------------------------------------------------------

    def past_retention(self, config: LogConfig, now: int) -> int:
        """Return the number of leading segments that age or size allows to delete.

        Source: storage/.../UnifiedLog.deleteOldSegments.
        """
        return max(
            self._older(now, config.retention_ms) if config.retention_ms >= 0 else 0,
            self._beyond(config.retention_bytes) if config.retention_bytes >= 0 else 0,
        )

    def _older(self, now: int, retention_ms: int) -> int:
        """Return the number of leading segments whose entries are all older than that.

        A segment whose age is unknown because of damage goes together with the next one.
        """
        count = 0
        for number, segment in enumerate(self.all):
            newest = segment.newest() if segment.count else now
            if newest and now - newest <= retention_ms:
                break
            if newest:
                count = number + 1
        return count

    def _beyond(self, bytes_max: int) -> int:
        """Return the number of leading segments without which the others still have `bytes_max`.

        The last one stays.
        """
        left = self.size()
        count = 0
        for segment in self.all[:-1]:
            left -= segment.size
            if left < bytes_max:
                break
            count += 1
        return count

    def oldest(self) -> tuple[int, int] | None:
        """Return (store time of its newest entry, bytes) of the first.

        None if it is also the last.
        """
        if len(self.all) < 2:
            return None
        first = self.all[0]
        return (first.newest() if first.count else 0), first.size

    def before(self, offset: int) -> int:
        """Return the number of leading segments that only hold entries before `offset`."""
        return sum(segment.count > 0 and segment.end[1] <= offset for segment in self.all)

    def drop(self, count: int) -> None:
        """Delete the first `count` with their files; on StorageError the others are still there.

        If none is left, an empty one begins at the same end.
        """
        if count and self._replaced:
            # Otherwise they would come back when the segment that replaced them is gone.
            self._files.sync_folder(self._folder)
            self.remove_replaced()
        if count and count == len(self.all):
            # The others first: on a full disk they free the space that the new one needs.
            self._remove(count - 1)
            self._begin(self.all[-1].end)
            count = 1
        self._remove(count)

    def _remove(self, count: int) -> None:
        """Delete the first `count`, one after the other.

        A segment whose file stays must stay in the list, and so must those after it: recovery cuts
        everything after a gap.
        """
        for _ in range(count):
            segment = self.all[0]
            segment.remove_log()
            del self.all[0]
            self._times.pop(segment.base_offset, None)
            segment.remove_index()

    def remove(self) -> None:
        """Delete all files and the folder; on StorageError possibly only the first of them."""
        self._remove(len(self.all))
        self._replaced.clear()
        for name in self._files.list(self._folder):
            self._files.remove(f"{self._folder}/{name}")
        self._files.remove(self._folder)

    # -- replacing -------------------------------------------------------------------------------

    def find_group(self, group: list[Segment]) -> int:
        """Return where these adjacent segments are in `all`; -1 if they are not there any more."""
        for number, segment in enumerate(self.all):
            if segment is group[0]:
                here = self.all[number : number + len(group)]
                same = len(here) == len(group) and all(map(_is, here, group))
                return number if same and number + len(group) < len(self.all) else -1
        return -1

    def replace(self, group: list[Segment], cleaned: CleanedSegment) -> None:
        """Read a cleaned segment, whose files have their names, in place of those it was made of.

        Call `remove_replaced` when the disk has the names.
        """
        number = self.find_group(group)
        assert number >= 0
        for segment in group:
            self._times.pop(segment.base_offset, None)
        self.all[number : number + len(group)] = [cleaned]
        self._replaced += group
        self.swaps += 1

    def remove_replaced(self) -> None:
        """Delete the files of replaced segments. Raises StorageError; call it again then."""
        while self._replaced:
            self._replaced[-1].remove()
            self._replaced.pop()

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, now: int, end: Place | None = None) -> tuple[SegmentRepair, int]:
        """Take over the folder; return the repairs, and the segments cut.

        `end`: as in `Log.recover`.

        Segments before the last are taken over unchanged if their sizes fit the next one. After a
        clean stop, what is missing before a segment with entries becomes offsets that are not
        readable (`repair`). Otherwise, and before segments without entries, the log is cut there:
        after a power cut it must end before the first entry that is lost, because idempotent
        producers repeat what was not acknowledged (Kafka: LogLoader.recoverLog).
        """
        names = self._segment_names()
        repairs: list[SegmentRepair] = []
        segments_cut = 0
        for number, name in enumerate(names):
            segment = self._found(name)
            if end is not None and self.all and self._lacks(self.all[-1], names[number:]):
                repairs.append(self._bridge(now, name[:2]))
            if self.all and not _follows(self.all[-1], name):
                segments_cut += 1
                repairs.append(SegmentRepair(bytes_cut=segment.size))
                segment.remove()
                continue
            newest = self.all[-1].newest() if self.all and self.all[-1].count else 0
            self.all.append(segment)
            self._files.suspect(segment.log_path)
            if isinstance(segment, CleanedSegment):
                repairs.append(segment.recover())
                continue
            following = self._following(segment, names[number + 1 :], end)
            if number + 1 == len(names) or segment.end != following:
                repair = Repair(segment, newest, now, following, was_stopped=end is not None)
                repairs.append(repair.run())
        total = SegmentRepair(
            sum(item.rows_made for item in repairs),
            sum(item.rows_cut for item in repairs),
            sum(item.bytes_cut for item in repairs),
            sum(item.damaged for item in repairs),
        )
        return total, segments_cut

    def _following(
        self, segment: Segment, later: list[SegmentName], end: Place | None
    ) -> Place | None:
        """Return where the log goes on after a segment with the sizes of its files.

        None if that is unknown, or not to be bridged: see `recover`.
        """
        if not later:
            return end if end is not None and end[0] == segment.end[0] else None
        following = later[0][:2]
        is_short = segment.end[0] < following[0]
        is_bridged = end is not None and any(map(self._has_entries, later))
        return None if is_short and not is_bridged else following

    def _lacks(self, cleaned: Segment, later: list[SegmentName]) -> bool:
        """Return whether a segment is missing between a cleaned one and those with entries."""
        return (
            isinstance(cleaned, CleanedSegment)
            and is_ahead(cleaned.end, later[0][:2])
            and any(map(self._has_entries, later))
        )

    def _bridge(self, now: int, following: Place) -> SegmentRepair:
        """Add a segment of offsets that are not readable, up to where the log goes on."""
        last = self.all[-1]
        bridge = self._begin(last.end)
        return Repair(bridge, last.newest(), now, following, was_stopped=True).run()

    def _has_entries(self, name: SegmentName) -> bool:
        """Return whether a segment has a whole entry."""
        segment = self._found(name)
        if name.round or not segment.size:
            return segment.size > 0
        read, address_of, stop = segment.peek, self._origin.address_of, segment.end[0]
        first = next(scan(read, address_of, *name[:2], stop), None)
        return first is not None or find_next(read, address_of, *name[:2], stop) is not None

    def _segment_names(self) -> list[SegmentName]:
        """Return the segments of the folder, after removing what does not count.

        That is an index without a log, what a cleaning wrote that was interrupted, and segments
        that were replaced.
        """
        files = self._files.list(self._folder)
        names = segments_among(files)
        gone = [name for name in all_among(files) if name not in names]
        if gone:
            # Their replacement must have its name on the disk before they go.
            self._files.sync_folder(self._folder)
        for name in gone:
            self._files.remove(f"{self._folder}/{name}{LOG_SUFFIX}")
        for file in files:
            indexes = (each for suffix in INDEX_SUFFIXES if (each := named(file, suffix)))
            if file.endswith(UNFINISHED_SUFFIX) or any(each not in names for each in indexes):
                self._files.remove(f"{self._folder}/{file}")
        return names

    def _found(self, name: SegmentName) -> Segment:
        """Return the segment with the sizes that its files have."""
        segment = Segment(self._origin, name)
        size = self._files.size(segment.log_path)
        index_bytes = self._files.size(segment.index_path)
        if name.round:
            return CleanedSegment(self._origin, name, size, index_bytes // RUN_BYTES)
        return Segment(self._origin, name, size, index_bytes // ROW_BYTES)

    def check(self) -> None:
        """Assert that the segments are contiguous."""
        for before, after in pairwise(self.all):
            assert _follows(before, after.name)


def _follows(before: Segment, name: SegmentName) -> bool:
    """Return whether a segment begins where the one before ends.

    Of a cleaned one that is its offset only. It has fewer bytes than what it replaced, or more:
    delete horizons make records of tombstones' batches longer (see `compaction/filtering`).
    """
    position, offset = before.end
    return offset == name.offset and (before.name.round > 0 or position == name.position)


def _is(one: Segment, other: Segment) -> bool:
    return one is other
