"""Index rows that are damaged are made anew, when they are read: a single wrong bit is found by the row's checksum alone.

Others are made from the log. The sound rows on both sides say where in the log the entries lie, and the link of the row behind them proves that
the entries are what was written. Where that cannot be proved the rows become DAMAGED: their offsets are refused to
readers, and what follows them is read as before.
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
"""Damaged rows in a row in which single wrong bits are looked for, some 40 µs each."""


def mended(segment: Segment, offset: int, count: int) -> bytes:
    """The packed rows from `offset` on, as many of `count` as there are, after those that are damaged were made anew."""
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
        with suppress(StorageError):  # then they are made again the next time
            segment.index.replace(begin, made)
        upto = min(end, stop)
        rows[at : (upto - first) * ROW_BYTES] = made[
            (number - begin) * ROW_BYTES : (upto - begin) * ROW_BYTES
        ]
        number = end
    return bytes(rows)


def put_right(segment: Segment, number: int) -> bytes:
    """A row that is damaged, without a look at its neighbours: as it was where a single bit of it is wrong, else as it is.

    For repairs, which do not know yet what is behind it. Raises StorageError.
    """
    packed = _raw(segment, number, number + 1)
    row = index.corrected(packed)
    if row is None:
        return packed
    segment.index.replace(number, row)
    _note(segment, number, number + 1, lost=False)
    return row


def _raw(segment: Segment, first: int, stop: int) -> bytes:
    """Rows as they lie in the file."""
    return segment.index.read(first, stop - first)


def _gap(segment: Segment, number: int) -> tuple[int, int]:
    """The damaged rows around one of them: the first and one past the last."""
    begin, end = number, number + 1
    while begin > 0 and not index.are_sound(_raw(segment, begin - 1, begin)):
        begin -= 1
    while end < segment.index.count and not index.are_sound(_raw(segment, end, end + 1)):
        end += 1
    return begin, end


def _made(segment: Segment, begin: int, end: int) -> bytes:
    """Rows begin .. end - 1, made anew; it is noted what became of them."""
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
    """The rows, where a single bit of each is wrong."""
    if len(rows) > _CORRECTED_MAX * ROW_BYTES:
        return None
    parts = [index.corrected(rows[at : at + ROW_BYTES]) for at in range(0, len(rows), ROW_BYTES)]
    return b"".join([part for part in parts if part is not None]) if None not in parts else None


def _from_log(segment: Segment, begin: int, end: int, after: bytes) -> bytes | None:
    """The rows, from the entries in the log; None where these are not proved to be what was written."""
    base = segment.base_offset
    position, offset = segment.base_position, base
    if begin:
        held_position, size, tag_code, _ = segment.row(base + begin - 1)
        if batches.is_batch(tag_code):  # it may go on
            position, offset = held_position, segment.first_of(base + begin - 1)
        else:
            position, offset = held_position + size, base + begin
    link = segment.link_before(offset)
    following = ROW.unpack(after) if after else None
    stop = segment.end[0] if following is None else following[0] + following[1]
    log_base = segment.origin.log_address
    rows = b""
    found: ScannedEntry | None = None
    try:
        for found in scan(segment.read, log_base, position, offset, stop):
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
    """Do the rows, the last of them of the entry `last`, agree with the row after them?"""
    if not after:
        is_end = last.position + last.size == segment.end[0]
        return is_end and (not segment.link or link == segment.link)
    if last.offset + last.count > segment.base_offset + end:  # a batch that goes on
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
    """The tag code of the rows of a batch: known from its other rows, else about when it was appended.

    That is its largest timestamp, but not outside the times of what is before and behind the rows.
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
    """About when the entry behind the rows was stored. It is not verified: that would take these rows."""
    position, _, tag_code, _ = ROW.unpack(after)
    if batches.is_batch(tag_code) or index.is_hole(tag_code):
        return batches.appended_at(tag_code)
    return entries.stored_at(segment.read(position, entries.HEAD_BYTES))


def _hole(segment: Segment, begin: int, end: int, after: bytes) -> bytes:
    """Rows that say that nothing is known of these offsets."""
    position, stored = segment.base_position, 0
    if begin:
        held_position, size, _, _ = segment.row(segment.base_offset + begin - 1)
        position = held_position + size
        stored = segment.stored_at(segment.base_offset + begin - 1)
    stop = ROW.unpack(after)[0] if after else segment.end[0]
    tag_code = index.hole_tag(index.DAMAGED, stored)
    return pack_row(min(position, stop), max(0, stop - position), tag_code, 0) * (end - begin)
