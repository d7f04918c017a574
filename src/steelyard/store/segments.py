"""The ordered segments of one log: where the next entry goes, and which segments to drop."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from steelyard.errors import StorageError
from steelyard.store.files import Files
from steelyard.store.index import ROW_BYTES
from steelyard.store.log_config import LogConfig
from steelyard.store.recovery import SegmentRepair
from steelyard.store.repair import Repair
from steelyard.store.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    OLD_INDEX_SUFFIX,
    POSITION_MAX,
    Origin,
    Segment,
)
from steelyard.store.times import Times

Place = tuple[int, int]
"""Position and offset."""


class Segments:
    """The segments of a log; see the module docstring. `all` is read-only for others."""

    __slots__ = (
        "_config",
        "_files",
        "_folder",
        "_origin",
        "_roll_at",
        "_times",
        "all",
    )

    def __init__(self, origin: Origin, config: LogConfig) -> None:
        self._files = origin.files
        self._config = config
        self._folder = origin.folder
        self._roll_at = 0
        """Time, in ms, before which the last segment is certainly not too old for another entry."""
        self._origin = origin
        self._times: dict[int, Times] = {}
        self.all: list[Segment] = []

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
        if end[0] + size > POSITION_MAX:
            raise StorageError(f"{self._folder} has reached its last position, {POSITION_MAX}")
        return self._begin(end)

    def _is_old(self, segment: Segment, now: int) -> bool:
        """Return whether the first entry of the last segment is older than segment_ms."""
        segment_ms = self._config.segment_ms
        if segment_ms < 0:
            return False
        self._roll_at = segment.stored_at(segment.base_offset) + segment_ms
        return now >= self._roll_at

    def _begin(self, end: Place) -> Segment:
        segment = Segment(self._origin, end)
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
        if count and count == len(self.all):
            self._begin(self.all[-1].end)
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
        self._files.remove(self._folder)

    # -- recovery --------------------------------------------------------------------------------

    def recover(self, now: int, end: Place | None = None) -> tuple[SegmentRepair, int]:
        """Take over the folder; return the repairs, and the segments cut.

        `end`: as in `Log.recover`.

        Segments before the last are taken over unchanged if their sizes fit the next one; from the
        first that does not, all are cut.
        """
        names = self._files.list(self._folder)
        places = places_in(self._files, self._folder)
        for name in names:
            for suffix in (INDEX_SUFFIX, OLD_INDEX_SUFFIX):
                place = _place(name, suffix)
                if place and place not in places:
                    self._files.remove(f"{self._folder}/{name}")
        repairs: list[SegmentRepair] = []
        segments_cut = 0
        for number, place in enumerate(places):
            segment = Segment(self._origin, place)
            size = self._files.size(segment.log_path)
            rows = self._files.size(segment.index_path) // ROW_BYTES
            segment = Segment(self._origin, place, size, rows)
            if self.all and self.all[-1].end != place:
                segments_cut += 1
                repairs.append(SegmentRepair(bytes_cut=size))
                segment.remove()
                continue
            newest = self.all[-1].newest() if self.all and self.all[-1].count else 0
            self.all.append(segment)
            self._files.suspect(segment.log_path)
            is_last = number + 1 == len(places)
            following = end if is_last else places[number + 1]
            if is_last or segment.end != following:
                repair = Repair(segment, newest, now, following, was_stopped=end is not None)
                repairs.append(repair.run())
        total = SegmentRepair(
            sum(item.rows_made for item in repairs),
            sum(item.rows_cut for item in repairs),
            sum(item.bytes_cut for item in repairs),
            sum(item.damaged for item in repairs),
        )
        return total, segments_cut

    def check(self) -> None:
        """Assert that the segments are contiguous."""
        for before, after in pairwise(self.all):
            assert before.end == (after.base_position, after.base_offset)


def end_position(files: Files, folder: str) -> int:
    """Return the position after the last byte of a log, judged by its files; 0 without any."""
    places = [place for name in files.disk.list(folder) if (place := _place(name, LOG_SUFFIX))]
    if not places:
        return 0
    position, offset = max(places)
    return position + files.size(f"{folder}/{position:020}-{offset:020}{LOG_SUFFIX}")


def places_in(files: Files, folder: str) -> list[Place]:
    """Return where the segments in a folder begin, in order."""
    return places_among(files.list(folder))


def places_among(names: list[str]) -> list[Place]:
    """Return where the segments begin whose files have these names, in order."""
    return sorted(place for name in names if (place := _place(name, LOG_SUFFIX)))


def _place(name: str, suffix: str) -> Place | None:
    """Return position and offset in a file's name; None for other names."""
    position, _, offset = name.removesuffix(suffix).partition("-")
    if not name.endswith(suffix) or not (position + offset).isdecimal():
        return None
    return int(position), int(offset)
