"""Damaged index rows are rebuilt when they are read.

A single wrong bit is corrected from the row's checksum alone; other rows are rebuilt from the log.
The intact rows on both sides locate the entries in the log, and the link of the row after them
proves that the entries are what was written. If that cannot be proved, the rows become DAMAGED:
their offsets are refused to readers, and later entries are read as before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from steelyard.errors import StorageError
from steelyard.store import batch as batches
from steelyard.store import entry as entries
from steelyard.store import index, links
from steelyard.store.findings import Finding
from steelyard.store.index import ROW, ROW_BYTES, pack_row
from steelyard.store.scanning import ScannedEntry, scan

if TYPE_CHECKING:
    from steelyard.store.segment import Segment

_CORRECTED_MAX = 4
"""Number of consecutive damaged rows for which single wrong bits are searched, some 40 µs each."""


def mended(segment: Segment, offset: int, count: int) -> bytes:
    """Return the packed rows from `offset` on, at most `count`, after rebuilding damaged ones."""
    first = offset - segment.base_offset
    stop = min(first + count, segment.index.count)
    rows = bytearray(_raw(segment, first, stop))
    number = first
    while number < stop:
        at = (number - first) * ROW_BYTES
        if index.are_sound(bytes(rows[at : at + ROW_BYTES])):
            number += 1
            continue
        begin, end = _gap(segment, number)
        made = _made(segment, begin, end)
        with suppress(StorageError):  # otherwise they are rebuilt the next time
            segment.index.replace(begin, made)
        upto = min(end, stop)
        rows[at : (upto - first) * ROW_BYTES] = made[
            (number - begin) * ROW_BYTES : (upto - begin) * ROW_BYTES
        ]
        number = end
    return bytes(rows)


def put_right(segment: Segment, number: int) -> bytes:
    """Correct a damaged row without regard to its neighbours, if a single bit of it is wrong.

    Otherwise it is returned unchanged. For repairs, which do not know the following rows yet.
    Raises StorageError.
    """
    packed = _raw(segment, number, number + 1)
    row = index.corrected(packed)
    if row is None:
        return packed
    segment.index.replace(number, row)
    _note(segment, number, number + 1, lost=False)
    return row


def _raw(segment: Segment, first: int, stop: int) -> bytes:
    """Return rows as they are in the file."""
    return segment.index.read(first, stop - first)


def _gap(segment: Segment, number: int) -> tuple[int, int]:
    """Return the range of damaged rows around one of them: the first, and one past the last."""
    begin, end = number, number + 1
    while begin > 0 and not index.are_sound(_raw(segment, begin - 1, begin)):
        begin -= 1
    while end < segment.index.count and not index.are_sound(_raw(segment, end, end + 1)):
        end += 1
    return begin, end


def _made(segment: Segment, begin: int, end: int) -> bytes:
    """Rebuild rows begin .. end - 1, and note the outcome."""
    before = _raw(segment, begin - 1, begin) if begin else b""
    after = _raw(segment, end, end + 1) if end < segment.index.count else b""
    rows = _corrected(_raw(segment, begin, end))
    if rows is not None:
        pass
    elif before and before == after:  # the middle of a batch
        rows = before * (end - begin)
    else:
        rows = _from_log(segment, begin, end, after)
    lost = rows is None
    if rows is None:
        rows = _hole(segment, begin, end, after)
    _note(segment, begin, end, lost=lost)
    return rows


def _note(segment: Segment, begin: int, end: int, *, lost: bool) -> None:
    origin, offset = segment.origin, segment.base_offset + begin
    problem = "damaged index rows were rebuilt"
    if lost:
        problem = "index rows are damaged, and so is the log from which they could be rebuilt"
    place = (segment.index_path, begin * ROW_BYTES, (end - begin) * ROW_BYTES)
    queue = (origin.topic, origin.queue_id)
    finding = Finding(*place, *queue, offset, end - begin, problem, mended=not lost)
    origin.findings.note(finding)


def _corrected(rows: bytes) -> bytes | None:
    """Correct the rows if a single bit of each is wrong."""
    if len(rows) > _CORRECTED_MAX * ROW_BYTES:
        return None
    parts = [index.corrected(rows[at : at + ROW_BYTES]) for at in range(0, len(rows), ROW_BYTES)]
    return b"".join([part for part in parts if part is not None]) if None not in parts else None


def _from_log(segment: Segment, begin: int, end: int, after: bytes) -> bytes | None:
    """Build the rows from the log; None if its entries are not proved to be what was written."""
    base = segment.base_offset
    position, offset = segment.base_position, base
    if begin:
        held_position, size, tag_code, _ = segment.row(base + begin - 1)
        if batches.is_batch(tag_code):  # it may continue
            position, offset = held_position, segment.first_of(base + begin - 1)
        else:
            position, offset = held_position + size, base + begin
    link = segment.link_before(offset)
    following = ROW.unpack(after) if after else None
    stop = segment.end[0] if following is None else following[0] + following[1]
    address_of = segment.origin.address_of
    rows = b""
    found: ScannedEntry | None = None
    try:
        for found in scan(segment.read, address_of, position, offset, stop):
            is_batch = found.tag_code is None
            link = (links.batch_link if is_batch else links.record_link)(found.data, link)
            tag_code = _batch_tag(segment, found, begin, after)
            tag_code = tag_code if found.tag_code is None else found.tag_code
            count = min(found.offset + found.count, base + end) - max(found.offset, base + begin)
            if count > 0:
                rows += pack_row(found.position, found.size, tag_code, link) * count
            if found.offset + found.count >= base + end:
                break
        if found is None or len(rows) != (end - begin) * ROW_BYTES:
            return None
        return rows if _is_proved(segment, found, link, rows, end, after) else None
    except StorageError:  # the log was cut
        return None


def _is_proved(
    segment: Segment, last: ScannedEntry, link: int, rows: bytes, end: int, after: bytes
) -> bool:
    """Return whether the rows, ending with the entry `last`, agree with the row after them."""
    if not after:
        is_end = last.position + last.size == segment.end[0]
        return is_end and (not segment.link or link == segment.link)
    if last.offset + last.count > segment.base_offset + end:  # a batch that continues
        return rows[-ROW_BYTES:] == after
    position, size, tag_code, expected = ROW.unpack(after)
    if position != last.position + last.size:
        return False
    if index.is_hole(tag_code):
        return True
    data = segment.read(position, size)
    if batches.is_batch(tag_code):
        return links.batch_link(data, link) == int(expected)
    return links.record_link(data, link) == int(expected)


def _batch_tag(segment: Segment, found: ScannedEntry, begin: int, after: bytes) -> int:
    """Return the tag code of a batch's rows: from its other rows, else about its time of appending.

    The latter holds the largest timestamp, limited to the times of the entries before and after.
    """
    first = segment.base_offset + begin
    if found.offset < first:
        return segment.row(first - 1)[2]
    if after and ROW.unpack(after)[0] == found.position:
        return int(ROW.unpack(after)[2])
    before = segment.stored_at(first - 1) if begin else 0
    behind = _stored_behind(segment, after) if after else before
    return batches.row_tag(max(before, min(found.timestamp, behind)))


def _stored_behind(segment: Segment, after: bytes) -> int:
    """Return the approximate store time of the entry after the rows.

    It is not verified, because that would need these rows.
    """
    position, _, tag_code, _ = ROW.unpack(after)
    if batches.is_batch(tag_code) or index.is_hole(tag_code):
        return batches.appended_at(tag_code)
    return entries.stored_at(segment.read(position, entries.HEAD_BYTES))


def _hole(segment: Segment, begin: int, end: int, after: bytes) -> bytes:
    """Return rows that mark these offsets as unknown."""
    position, stored = segment.base_position, 0
    if begin:
        held_position, size, _, _ = segment.row(segment.base_offset + begin - 1)
        position = held_position + size
        stored = segment.stored_at(segment.base_offset + begin - 1)
    stop = ROW.unpack(after)[0] if after else segment.end[0]
    tag_code = index.hole_tag(index.DAMAGED, stored)
    return pack_row(min(position, stop), max(0, stop - position), tag_code, 0) * (end - begin)
