"""Rows as messages of SEND_BATCH_MESSAGE (320), and as single messages where they are delayed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from steelyard.errors import MessageError
from steelyard.spark.joining import blank, fixed, grouped, joined, sizes
from steelyard.spark.writing.rows import Rows
from steelyard.wire.remoting.properties import DELAY, KEYS, PROPERTIES_BYTES_MAX, UNIQ_KEY

_HEX = np.array([b"%04X" % number for number in range(1 << 16)], "S4").view(np.uint8).reshape(-1, 4)
_HEAD = np.dtype([("size", ">i4"), ("zero", ">i4", 3), ("body_size", ">i4")])
_ID_NAME = f"{UNIQ_KEY}\x01".encode()


class UniqueKeys:
    """Properties UNIQ_KEY, which no other writer makes: a random prefix and a counter.

    They look like those of RocketMQ's clients: 20 hex digits of the producer, 8 of the time in
    milliseconds, 4 of the message.
    """

    def __init__(self) -> None:
        self._next = (int(time.time() * 1000) & 0x7FFFFFFF) << 16
        self._head = np.frombuffer(_ID_NAME + os.urandom(10).hex().upper().encode(), np.uint8)

    def take(self, count: int) -> pa.Array:
        """Return the encoded properties of the next `count` messages."""
        numbers = np.arange(self._next, self._next + count)
        self._next += count
        parts = [_HEX[(numbers >> shift) & 0xFFFF] for shift in (32, 16, 0)]
        head = np.broadcast_to(self._head, (count, len(self._head)))
        text = np.hstack([head, *parts, np.full((count, 1), 2, np.uint8)])
        return fixed(text, text.shape[1])


def properties(rows: Rows, unique: UniqueKeys) -> pa.Array:
    """Return the encoded properties of each row. Raises MessageError if they are too long."""
    parts = [unique.take(rows.count)]
    columns = [*rows.pairs(), *([(KEYS.encode(), rows.keys)] if rows.keys is not None else [])]
    parts += [blank(joined(name + b"\x01", column, b"\x02")) for name, column in columns]
    if rows.names is not None and rows.property_starts is not None:
        entries = joined(rows.names, b"\x01", rows.values, b"\x02")
        parts.append(grouped(entries, rows.property_starts))
    text = joined(*parts)
    longest = int(sizes(text).max(initial=0))
    if longest > PROPERTIES_BYTES_MAX:
        raise MessageError(
            f"keys, tags and properties of a row have {longest} bytes; at most"
            f" {PROPERTIES_BYTES_MAX} are allowed"
        )
    return text


def encode(body: pa.Array, text: pa.Array) -> pa.Array:
    """Return each row as a message of a batch; see `wire.remoting.message.encode_batch`."""
    body_sizes, text_sizes = sizes(body), sizes(text)
    head = np.zeros(len(body), _HEAD)
    head["size"] = _HEAD.itemsize + body_sizes + 2 + text_sizes
    head["body_size"] = body_sizes
    tail = text_sizes.astype(">u2")
    return joined(fixed(head, _HEAD.itemsize), body, fixed(tail.view(np.uint8), 2), text)


def delayed(rows: Rows, text: pa.Array) -> Iterator[tuple[int, tuple[memoryview, str]]]:
    """Yield row, body and properties of each delayed row."""
    if rows.delay_level is None:
        return
    for row in np.flatnonzero(rows.delay_level).tolist():
        delay = f"{DELAY}\x01{rows.delay_level[row]}\x02"
        properties = str(text[row].as_py(), "utf-8") + delay
        yield row, (memoryview(rows.body[row].as_py()), properties)
