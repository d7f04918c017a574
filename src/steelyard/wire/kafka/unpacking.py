"""The records of one batch, decompressed only as far as needed and in bounded steps.

A batch of 2 KB may decompress to 60 MB and hold a million records. `Unpacking` finds where records
begin (`reach`), in as many calls as the caller likes; the positions are kept, so that reading a
batch from end to end decompresses it once. `records` then reads the records wanted.

A batch is read as far as its records are intact: those from the first that is truncated, damaged or
beyond PLAIN_BYTES_MAX are left out, and `fault` says why. The same batch always ends at the same
record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from steelyard.errors import ProtocolError
from steelyard.wire.kafka.compression import PLAIN_BYTES_MAX, Compression, pieces
from steelyard.wire.kafka.records import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    read_record,
    read_times,
    read_varint,
)
from steelyard.wire.streams import PIECE_BYTES

PIECE_EFFORT = 60
"""Effort of decompressing PIECE_BYTES; an effort of 1 is about a microsecond of an ordinary core.
"""
PLACES_PER_EFFORT = 4
"""Records located per microsecond."""

HEADERS_MAX = 10_000
"""Maximum headers of a record, some 6 ms of work."""
READ_BYTES = 32 * 1024
"""Bytes that `records` reads at a time, some 10 ms if they are nothing but headers."""

SEGMENT_BYTES = 1024 * 1024

_PLACES = 256
"""Positions searched between two checks of the effort."""
_PLACE_BYTES = 4
_OVERHEAD_BYTES = 1_000


class Unpacking:
    """Access to the records of one batch; see the module docstring.

    `header`: the batch's header.
    """

    def __init__(self, batch: bytes, header: BatchHeader) -> None:
        self.header = header
        self.fault = ""
        """Why there are fewer records than the header says; empty while unknown."""
        self._segments = [bytearray()]
        """The decompressed data in segments that begin with a record: growing data is copied.
        """
        self._bases = [0]
        """Where each segment begins."""
        self._end = 0
        """Where the next record begins."""
        self._starts = array("I")
        self._packed_bytes = len(batch)
        self._is_open = True
        try:
            self._pieces = pieces(batch[HEADER_BYTES:], header.compression)
        except ProtocolError as error:
            self._pieces = iter(())
            self._stop(str(error))

    @property
    def reached(self) -> int:
        """Number of records, from the first on, whose position is known."""
        return len(self._starts)

    @property
    def size(self) -> int:
        """Approximate memory of this object; an unfinished decompressor takes as much again."""
        plain = self._plain_bytes
        unpacker = plain if self._is_open else 0
        places = len(self._starts) * _PLACE_BYTES
        return _OVERHEAD_BYTES + self._packed_bytes + plain + unpacker + places

    @property
    def _plain_bytes(self) -> int:
        return self._bases[-1] + len(self._segments[-1])

    def reach(self, count: int, effort: int) -> int:
        """Find the positions of the first `count` records.

        Return the remaining effort, <= 0 if used up.

        Records are missing only if there is a `fault` or no effort is left.
        """
        count = min(count, self.header.count)
        while self.reached < count and not self.fault and effort > 0:
            before = self.reached
            needs_more = self._find(min(count - before, _PLACES))
            effort -= 1 + (self.reached - before) // PLACES_PER_EFFORT
            if needs_more:
                effort -= self._unpack()
        if self.reached == self.header.count:
            self._close()
        return effort

    def size_of(self, index: int) -> int:
        """Return the size of a record whose position is known."""
        starts = self._starts
        end = starts[index + 1] if index + 1 < len(starts) else self._end
        return end - starts[index]

    def raw(self, first: int, stop: int) -> tuple[bytes, list[int]]:
        """Return records from `first` up to `stop` - 1, undecoded, all with known positions.

        As many as READ_BYTES hold, at least one; with the positions where they begin, and the end.
        """
        starts = self._starts
        assert 0 <= first < stop <= len(starts)
        base = starts[first]
        segment, origin, stop = self._segment_at(first, stop)
        end = starts[stop] if stop < len(starts) else self._end
        if end - base > READ_BYTES:
            stop = max(first + 1, bisect_right(starts, base + READ_BYTES, first, stop) - 1)
            end = starts[stop] if stop < len(starts) else self._end
        with memoryview(segment) as view:
            data = bytes(view[base - origin : end - origin])
        return data, [start - base for start in starts[first:stop]] + [end - base]

    def record(self, data: bytes, position: int) -> Record | None:
        """Read a record of what `raw` returned.

        None if it is damaged inside, or has more than HEADERS_MAX headers.
        """
        try:
            return read_record(data, position, self.header, HEADERS_MAX)[0]
        except (ProtocolError, IndexError, UnicodeDecodeError):
            return None

    def times(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return (offset, timestamp) of the records first .. stop - 1, all with known positions.

        The timestamp of an unreadable record is -1, which no search finds.
        """
        found: list[tuple[int, int]] = []
        while first < stop:
            segment, origin, end = self._segment_at(first, stop)
            for number, start in enumerate(self._starts[first:end], first):
                try:
                    found.append(read_times(segment, start - origin, self.header))
                except (ProtocolError, IndexError):
                    found.append((self.header.base_offset + number, -1))
            first = end
        return found

    def offset_at(self, index: int) -> int:
        """Return the offset that a record claims, whose position is known."""
        return self.times(index, index + 1)[0][0]

    def _segment_at(self, first: int, stop: int) -> tuple[bytearray, int, int]:
        """Return the segment that holds a record, where it begins, and where its records end.

        The end is `stop`, or the first record after the segment if that is less.
        """
        number = bisect_right(self._bases, self._starts[first]) - 1
        if number + 1 < len(self._bases):
            stop = bisect_left(self._starts, self._bases[number + 1], first, stop)
        return self._segments[number], self._bases[number], stop

    def _find(self, count: int) -> bool:
        """Find up to `count` more positions; return whether more must be decompressed to go on."""
        plain, starts = self._segments[-1], self._starts
        base, size = self._bases[-1], len(plain)
        at = self._end - base
        try:
            for _ in range(count):
                body = plain[at]
                after = at + 1
                if body < 0x80:
                    length = -1 if body & 1 else body >> 1
                else:
                    length, after = read_varint(plain, at)
                if length < 0:
                    self._stop(f"record {len(starts)} claims {length} bytes")
                    return False
                if after + length > size:
                    return True
                starts.append(base + at)
                at = after + length
                self._end = base + at
        except IndexError:
            return True
        except ProtocolError as error:
            self._stop(str(error))
        return False

    def _unpack(self) -> int:
        """Decompress another piece; return the effort."""
        try:
            piece = next(self._pieces, None)
        except ProtocolError as error:
            self._stop(str(error))
            return PIECE_EFFORT
        if piece is None:
            self._stop(f"the data ends after {self.reached} of {self.header.count} records")
            return 0
        if len(piece) > PLAIN_BYTES_MAX - self._plain_bytes:
            self._stop(f"the records grow beyond {PLAIN_BYTES_MAX} bytes")
            return PIECE_EFFORT
        segment, whole = self._segments[-1], self._end - self._bases[-1]
        if whole >= SEGMENT_BYTES:
            rest = segment[whole:]
            del segment[whole:]
            segment = rest
            self._segments.append(rest)
            self._bases.append(self._end)
        segment += piece
        if self.header.compression == Compression.NONE:
            return 1
        return PIECE_EFFORT * max(1, len(piece) // PIECE_BYTES)

    def _stop(self, fault: str) -> None:
        self.fault = fault
        self._close()

    def _close(self) -> None:
        """Release the decompressor; nothing more is to be decompressed."""
        self._pieces = iter(())
        self._is_open = False
