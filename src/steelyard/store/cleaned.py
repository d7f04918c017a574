"""A segment that was compacted: what is left of one or several segments, with their offsets.

Differences to a segment that was written by appends:

- Offsets that lost their entries have no row in the file; they are read as rows of the kind
  `index.REMOVED`, which readers skip.
- Entries have moved, so that positions are those of this segment only. A record still holds the
  address at which it was written, and is found by it: message ids stay valid.
- Nothing is appended. Log and index (`runs`) were on the disk before the segment counted, so there
  is no torn end. An index that is missing or does not end where the log does is made anew.
- The next segment begins at a higher position than where this one ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from steelyard.errors import StorageError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import index, links
from steelyard.store.address import distance
from steelyard.store.findings import Finding
from steelyard.store.index import pack_row
from steelyard.store.recovery import SegmentRepair
from steelyard.store.runs import RUN_BYTES, EntryRun, Runs, pack_run
from steelyard.store.scanning import find_left, scan_left
from steelyard.store.segment import Origin, Segment
from steelyard.store.segment_names import SegmentName

_WRITE_BYTES = 4_096 * RUN_BYTES
"""Bytes of an index made anew that are written at once."""


class CleanedSegment(Segment):
    """See the module docstring."""

    __slots__ = ("runs",)

    def __init__(self, origin: Origin, name: SegmentName, size: int, runs: int) -> None:
        """`size`: of the log file. `runs`: in the index file."""
        assert name.round
        super().__init__(origin, name, size)
        self.runs = Runs(origin.files, self.index_path, runs, self._mended)

    @property
    def count(self) -> int:
        return self.name.stop - self.base_offset

    def remove_index(self) -> None:
        self.files.remove(self.index_path)

    def flush_index(self) -> None:
        """Do nothing: no rows are buffered."""

    def stored_at(self, offset: int) -> int:
        """As of any segment; for an offset without entry, of the one before it."""
        number = self.runs.find(offset)
        return super().stored_at(self.runs.at(number).first) if number >= 0 else 0

    # -- the index -------------------------------------------------------------------------------

    def rows(self, offset: int, count: int) -> bytes:
        """As of any segment, with rows of the kind REMOVED where nothing is left."""
        stop = min(offset + count, self.name.stop)
        number = self.runs.find(offset)
        before = self.runs.at(number) if number >= 0 else None
        parts: list[bytes] = []
        if before is not None and offset < before.stop:
            parts.append(before.row * (min(stop, before.stop) - offset))
            offset = before.stop
        if offset < stop:
            for run in self.runs.following(number + 1):
                if run.first > offset:
                    parts.append(self._gap(before) * (min(stop, run.first) - offset))
                if run.first >= stop:
                    break
                parts.append(run.row * (min(stop, run.stop) - run.first))
                offset, before = run.stop, run
                if offset >= stop:
                    break
            else:
                parts.append(self._gap(before) * (stop - offset))
        return b"".join(parts)

    def _gap(self, before: EntryRun | None) -> bytes:
        """Return the row of an offset without entry that follows this run."""
        position, link = self.base_position, 0
        if before is not None:
            begin, size, _, link = before.place
            position = begin + size
        return pack_row(position, 0, index.hole_tag(index.REMOVED, 0), link)

    def first_of(self, offset: int) -> int:
        number = self.runs.find(offset)
        if number < 0:
            return self.base_offset
        run = self.runs.at(number)
        return run.first if offset < run.stop else run.stop

    def last_of(self, offset: int) -> int:
        number = self.runs.find(offset)
        if number >= 0 and offset < self.runs.at(number).stop:
            return self.runs.at(number).stop - 1
        is_last = number + 1 == self.runs.count
        return (self.end[1] if is_last else self.runs.at(number + 1).first) - 1

    def offset_at(self, position: int) -> int | None:
        low, high = 0, self.runs.count
        while low < high:
            middle = (low + high) // 2
            if self.runs.at(middle).written < position:
                low = middle + 1
            else:
                high = middle
        run = self.runs.at(low) if low < self.runs.count else None
        return run.first if run is not None and run.written == position else None

    def entries_from(self, offset: int) -> Iterator[EntryRun]:
        number = self.runs.find(offset)
        if number < 0 or self.runs.at(number).stop <= offset:
            number += 1
        return self.runs.following(number)

    def is_by_itself(
        self, data: bytes, offset: int, position: int, size: int, *, is_batch: bool
    ) -> bool:
        if is_batch:
            return super().is_by_itself(data, offset, position, size, is_batch=True)
        return entries.size_of(data) == size and entries.is_intact(
            data, 0, size, offset, entries.places(data)[1]
        )

    def give_up(self, offset: int) -> tuple[int, int]:
        number = self.runs.find(offset)
        run = self.runs.at(number)
        position, size, _, link = run.place
        tag_code = index.hole_tag(index.GIVEN_UP, self.stored_at(run.first))
        row = pack_row(position, size, tag_code, link)
        self.runs.replace(number, run._replace(row=row))
        return run.first, run.span

    # -- repair ----------------------------------------------------------------------------------

    def recover(self) -> SegmentRepair:
        """Make the index anew if it ends before the log does."""
        number = self.runs.count - 1
        last = self.runs.raw(number) if number >= 0 else None
        end = self.base_position if last is None else last.place[0] + last.place[1]
        self.fresh = self.end[0]
        if (number >= 0 and last is None) or end >= self.end[0]:
            # A damaged run is mended when it is read. What is missing of the log is refused then:
            # an index made anew would say that compaction had removed it.
            return SegmentRepair()
        files = self.files
        files.remove(self.index_path)
        files.create(self.index_path)
        damaged = 0
        made = bytearray()
        count = 0
        for run in self._made(self.base_position, self.end[0], self.base_offset, self.name.stop):
            damaged += index.is_hole(run.place[2])
            made += pack_run(run)
            if len(made) >= _WRITE_BYTES:
                files.write(self.index_path, count * RUN_BYTES, bytes(made))
                count += len(made) // RUN_BYTES
                made.clear()
        files.write(self.index_path, count * RUN_BYTES, bytes(made))
        self.runs.count = count + len(made) // RUN_BYTES
        if damaged:
            self._note_holes()
        return SegmentRepair(rows_made=self.runs.count, damaged=damaged)

    def _note_holes(self) -> None:
        for run in self.runs.following(0):
            if index.kind_of(run.place[2]) == index.DAMAGED:
                self.corrupt(run.first)

    def _mended(self, number: int) -> EntryRun:
        """Make a damaged run anew, with its damaged neighbours; what cannot be proved is a hole.

        The link of the run behind them proves that the entries are what was written.
        """
        runs = self.runs
        begin, end = number, number + 1
        while begin > 0 and runs.raw(begin - 1) is None:
            begin -= 1
        while end < runs.count and runs.raw(end) is None:
            end += 1
        before = runs.raw(begin - 1) if begin else None
        after = runs.raw(end) if end < runs.count else None
        position, offset, link = self.base_position, self.base_offset, 0
        if before is not None:
            at, size, _, link = before.place
            position, offset = at + size, before.stop
        stop = self.end if after is None else (after.place[0], after.first)
        made = list(self._made(position, stop[0], offset, stop[1], before))
        sound = len(made) == end - begin and not any(index.is_hole(run.place[2]) for run in made)
        if sound and after is not None:
            at, size, tag_code, link = after.place
            data = self.peek(at, size)
            is_batch = batches.is_batch(tag_code)
            follows = (links.batch_link if is_batch else links.record_link)(data, made[-1].place[3])
            sound = index.is_hole(tag_code) or follows == link
        if not sound:
            row = pack_row(position, stop[0] - position, index.hole_tag(index.DAMAGED, 0), 0)
            written = position if before is None else before.written
            made = [EntryRun(offset, stop[1] - offset, written, row)]
            empty = pack_row(stop[0], 0, index.hole_tag(index.REMOVED, 0), 0)
            made += [EntryRun(stop[1], 0, written, empty)] * (end - begin - 1)
        with suppress(StorageError):  # otherwise they are made anew the next time
            for place, run in enumerate(made, begin):
                runs.replace(place, run)
        problem = "damaged index rows were rebuilt"
        if not sound:
            problem = "index rows are damaged, and so is the log from which they could be rebuilt"
        origin = self.origin
        finding = Finding(
            self.index_path,
            begin * RUN_BYTES,
            (end - begin) * RUN_BYTES,
            origin.topic,
            origin.queue_id,
            offset,
            stop[1] - offset,
            problem,
            mended=sound,
        )
        origin.findings.note(finding)
        return made[number - begin]

    def _time_of(self, run: EntryRun) -> int:
        """Return about when an entry was stored, without a look at other runs."""
        position, _, tag_code, _ = run.place
        if batches.is_batch(tag_code) or index.is_hole(tag_code):
            return batches.appended_at(tag_code)
        head = self.peek(position, entries.HEAD_BYTES)
        return entries.stored_at(head) if len(head) == entries.HEAD_BYTES else 0

    def _made(
        self, position: int, end: int, offset: int, stop: int, before: EntryRun | None = None
    ) -> Iterator[EntryRun]:
        """Yield runs for what is in the log from `position` to `end`, with offsets below `stop`.

        What is behind the last of these offsets is left out.
        """
        link = 0 if before is None else before.place[3]
        begin = self.origin.address_of(self.base_position)
        written = self.base_position - 1 if before is None else before.written
        newest = 0 if before is None else self._time_of(before)
        while position < end:
            for found in scan_left(self.read, position, offset, end):
                if found.offset + found.count > stop:
                    return  # nothing that compaction wrote
                written += 1
                if found.tag_code is None:
                    newest = max(newest, found.timestamp)
                    tag_code = batches.row_tag(newest)
                    link = links.batch_link(found.data, link)
                else:
                    tag_code, newest = found.tag_code, max(newest, found.timestamp)
                    address = entries.places(found.data)[1]
                    written = self.base_position + distance(begin, address)
                    link = links.record_link(found.data, link)
                row = pack_row(found.position, found.size, tag_code, link)
                yield EntryRun(found.offset, found.count, written, row)
                position, offset = found.position + found.size, found.offset + found.count
            if position >= end or offset >= stop:
                return
            later = find_left(self.read, position, offset, end)
            until, following = (end, stop) if later is None else (later.position, later.offset)
            row = pack_row(position, until - position, index.hole_tag(index.DAMAGED, newest), 0)
            yield EntryRun(offset, max(1, following - offset), written, row)
            position, offset, link = until, max(following, offset + 1), 0
