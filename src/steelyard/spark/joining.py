"""Arrays of bytes, one value per row, put together and taken apart without a loop per row.

What Arrow joins row by row is contiguous in memory, so that a range of encoded rows is a range of
bytes: the body of a request.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PIECE_BYTES_MAX = 768 << 10
"""Bytes at which a piece ends; brokers take requests of 4 MiB, and record batches of 1 MiB."""

Integers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]


def joined(*parts: pa.Array | bytes) -> pa.Array:
    """Join arrays and constants row by row; a null anywhere makes the row null."""
    arrays = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.binary()))


def blank(array: pa.Array) -> pa.Array:
    """Return the array with empty values for nulls."""
    return pc.fill_null(array, b"") if array.null_count else array


def sizes(array: pa.Array) -> Integers:
    """Return the size of each value, in bytes; 0 for null."""
    return np.asarray(pc.fill_null(pc.binary_length(array), 0), np.int64)


def fixed(values: npt.NDArray[np.void] | npt.NDArray[np.uint8], size: int) -> pa.Array:
    """Return an array of values of `size` bytes each, from contiguous memory."""
    data = np.ascontiguousarray(values)
    count = data.nbytes // size
    ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return _array(count, ends, data)


def grouped(entries: pa.Array, starts: Integers) -> pa.Array:
    """Join consecutive values: row i gets those from `starts[i]` to before `starts[i + 1]`."""
    offsets, data = buffers(blank(entries))
    return _array(len(starts) - 1, offsets[starts].astype(np.int32), data)


def varints(values: Integers) -> pa.Array:
    """Return each number, of at most 32 bits, as a zigzag varint."""
    zigzag = (values << 1) ^ (values >> 63)
    bytes_max = max(1, -(-int(zigzag.max(initial=0)).bit_length() // 7))
    lengths = np.ones(len(values), np.int64)
    for place in range(1, bytes_max):
        lengths += zigzag >= 1 << 7 * place
    places = np.arange(bytes_max)
    digits = (zigzag[:, None] >> 7 * places) & 0x7F
    digits[places < lengths[:, None] - 1] |= 0x80
    data = digits.astype(np.uint8)[places < lengths[:, None]]
    ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return _array(len(values), ends, data)


def buffers(array: pa.Array) -> tuple[npt.NDArray[np.int32], memoryview]:
    """Return where each value of an array without nulls begins, with the end, and the bytes."""
    _, offsets, data = array.buffers()
    found = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return found, memoryview(data if data is not None else b"")


def contiguous(array: pa.Array) -> memoryview:
    """Return the bytes of all values of an array without nulls, back to back."""
    starts, data = buffers(array)
    return data[starts[0] : starts[-1]]


def cut(data: bytes | Octets, kind: pa.DataType, firsts: Integers, ends: Integers) -> pa.Array:
    """Return the spans of `data` as an array: every other one of the pieces between borders.

    Spans are in order and do not overlap. Arrow copies them together in one pass.
    """
    count = len(firsts)
    if not count:
        return pa.array([], kind)
    borders = np.empty(2 * count, np.int32)
    borders[0::2] = firsts
    borders[1::2] = ends
    pieces = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(borders), pa.py_buffer(data)]
    )
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def texts(data: bytes | Octets, firsts: Integers, ends: Integers) -> pa.StringArray:
    """Return spans as text; invalid UTF-8 becomes U+FFFD, as in Java."""
    found = cut(data, pa.string(), firsts, ends)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        raw = cut(data, pa.binary(), firsts, ends)
        return pa.array([str(one, "utf-8", "replace") for one in raw.to_pylist()], pa.string())
    return found


def pieces(array: pa.Array, count_max: int, bytes_max: int = PIECE_BYTES_MAX) -> Iterator[pa.Array]:
    """Cut an array into pieces of at most that many values, and of `bytes_max` if possible."""
    starts, _ = buffers(array)
    first = 0
    while first < len(array):
        limit = int(np.searchsorted(starts, starts[first] + bytes_max, "right")) - 1
        end = min(max(limit, first + 1), first + count_max, len(array))
        yield array.slice(first, end - first)
        first = end


def _array(
    count: int, offsets: npt.NDArray[np.int32], data: memoryview | npt.NDArray[np.generic]
) -> pa.Array:
    held = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, held)
