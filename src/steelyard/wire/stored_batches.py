"""Kafka record batches in the answer to a pull, for readers that decode them themselves.

RocketMQ's clients get the messages that brokers make of them. A reader of ours may ask for the
batches (`PullMessageRequestHeader.takes_batches`), each after the time at which the broker stored
it, which a batch does not tell:

    int64  store timestamp, ms         the batch, as in `wire.kafka.records`

The batches are of one queue, in order, and have no control records or records of aborted
transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from steelyard.errors import ProtocolError
from steelyard.wire.kafka.records import BatchHeader, read_header

_STORED = struct.Struct(">q")
STORED_BYTES = _STORED.size
OFFSET_END = 1 << 56
"""Offsets have 14 hexadecimal digits at most, as in the UNIQ_KEYs of converted messages."""


def packed(stored: int, batch: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    """Return the parts of a batch with its store timestamp."""
    return _STORED.pack(stored), batch


def read(data: bytes) -> Iterator[tuple[int, int, BatchHeader]]:
    """Yield store timestamp, position and header of each batch.

    Raises ProtocolError for what is not a whole batch, and for batches that are not in order.
    """
    at, size, next_offset = 0, len(data), 0
    while at < size:
        begin = at + STORED_BYTES
        header = read_header(data, begin)
        at = begin + header.size
        if at > size:
            raise ProtocolError(f"a record batch of {header.size} bytes ends after {size - begin}")
        fits = header.count == header.last_offset_delta + 1 > 0
        if not fits or not next_offset <= header.base_offset < OFFSET_END - header.count:
            raise ProtocolError(
                f"a record batch of {header.count} records, with offsets from {header.base_offset}"
                f" to {header.last_offset}, where one from {next_offset} on was expected"
            )
        next_offset = header.next_offset
        yield _STORED.unpack_from(data, begin - STORED_BYTES)[0], begin, header
