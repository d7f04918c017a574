"""What cannot be read stays as it is and tells nothing; reading much takes several steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from steelyard.compaction.entries import key_of_message
from steelyard.compaction.filtering import Filtering
from steelyard.compaction.learning import Learning
from steelyard.compaction.offset_map import OffsetMap
from steelyard.compaction.transactions import CleanedTransactions
from steelyard.types import Effort
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.records import Record, read_header, read_records, write_batch
from steelyard.wire.remoting.message import encode_record

T = TypeVar("T")
PLENTY = 1_000_000
STEP = 500
HEADER_BYTES = 61
COUNT = 50


def finished(steps: Generator[None, Any, T], effort: Effort, more: int) -> tuple[T, int]:
    """The result of steps, and how often they asked for more effort."""
    times = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result, times
        times += 1
        effort.left = more


def batch_of(compression: Compression = Compression.NONE) -> bytes:
    """Two records of each key; the values make the batch compressible."""
    records = [Record(n, 1, b"k%d" % (n % (COUNT // 2)), b"value" * 5) for n in range(COUNT)]
    return write_batch(records, compression=compression)


def filtering(keys: OffsetMap) -> Filtering:
    return Filtering(keys, CleanedTransactions([]), {}, COUNT, now=0, delete_retention_ms=1)


def damaged(batch: bytes) -> bytes:
    """The records of a batch replaced by bytes that are none."""
    return batch[:HEADER_BYTES] + b"\xff" * (len(batch) - HEADER_BYTES)


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_that_cannot_be_read_stays_and_its_keys_are_unknown(
    compression: Compression,
) -> None:
    keys = OffsetMap(COUNT)
    learning = Learning(keys, CleanedTransactions([]), start=0)
    whole, broken = batch_of(compression), damaged(batch_of(compression))
    effort = Effort(PLENTY)
    assert finished(learning.batch(broken, effort), effort, 0) == (True, 0)
    assert (len(keys), keys.latest) == (0, COUNT - 1)
    finished(learning.batch(whole, effort), effort, 0)
    assert len(keys) == COUNT // 2
    assert finished(filtering(keys).batch(broken, effort), effort, 0)[0] == broken
    left, _ = finished(filtering(keys).batch(whole, effort), effort, 0)
    assert [each.offset for each in read_records(left)] == list(range(COUNT // 2, COUNT))


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("has_tombstone", [False, True])
def test_no_step_does_much_more_than_its_effort(
    compression: Compression, has_tombstone: bool
) -> None:
    """A batch of a megabyte, of which half is left, and with a tombstone every record is written anew."""
    count = 20_000
    records = [Record(n, n, b"k%d" % (n // 2), b"value%d" % n * 5) for n in range(count)]
    if has_tombstone:
        records[-1] = replace(records[-1], value=None)
    batch = write_batch(records, compression=compression)
    keys, effort = OffsetMap(count), Effort(STEP)
    learning = Learning(keys, CleanedTransactions([]), start=0)
    judged = Filtering(keys, CleanedTransactions([]), {}, count, now=0, delete_retention_ms=1)

    def in_steps(steps: Generator[None, Any, T]) -> T:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            assert effort.left > -2 * STEP
            effort.left = STEP

    assert in_steps(learning.batch(batch, effort))
    left = in_steps(judged.batch(batch, effort))
    assert effort.left > -2 * STEP
    assert read_header(left).compression == compression
    assert read_records(left) == tuple(records[1::2])


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_both_passes_go_on_where_their_effort_ended(compression: Compression) -> None:
    batch = batch_of(compression)
    results = []
    for first, more in ((PLENTY, PLENTY), (0, 10)):
        keys, effort = OffsetMap(COUNT), Effort(first)
        learning = Learning(keys, CleanedTransactions([]), start=0)
        _, learned = finished(learning.batch(batch, effort), effort, more)
        effort.left = first
        left, filtered = finished(filtering(keys).batch(batch, effort), effort, more)
        results.append(({b"k%d" % n: keys.get(b"k%d" % n) for n in range(COUNT)}, left))
        assert (learned > 5, filtered > 5) == (first == 0, first == 0)
    assert results[0] == results[1]


def test_what_is_no_message_has_no_key_and_is_no_tombstone() -> None:
    assert key_of_message(b"\0\0\0\x10 is no message") == (b"", True)


def test_a_record_that_reaches_beyond_its_end_is_not_read() -> None:
    """Its length is right, and so the others could be read; that of its key is not."""
    batch = bytearray(write_batch([Record(0, 1, b"key", b"v"), Record(1, 1, b"other", b"v")]))
    at = batch.index(b"key") - 1
    batch[at] = 0x7E  # 63 bytes
    keys, effort = OffsetMap(COUNT), Effort(PLENTY)
    learning = Learning(keys, CleanedTransactions([]), start=0)
    assert finished(learning.batch(bytes(batch), effort), effort, 0)[0]
    assert len(keys) == 0
    assert finished(filtering(keys).batch(bytes(batch), effort), effort, 0)[0] == batch


def test_a_full_map_ends_the_first_pass_and_the_second_keeps_what_is_behind() -> None:
    keys, effort = OffsetMap(10), Effort(PLENTY)
    learning = Learning(keys, CleanedTransactions([]), start=0)
    assert learning.message(message(0, b"first"), 0, effort)
    assert not finished(learning.batch(batch_of(), effort), effort, 0)[0]
    for number in range(9):
        keys.put(b"more%d" % number, 0)
    assert not learning.message(message(1, b"second"), 1, effort)
    assert keys.latest == 0
    second = filtering(keys)
    assert second.message(message(1, b"first"), 1, 0, effort)
    assert second.message(message(0, b"first"), 0, 0, effort)
    keys.latest = 5
    keys.put(b"first", 3)
    assert not second.message(message(0, b"first"), 0, 0, effort)


def message(offset: int, key: bytes) -> bytes:
    return encode_record(
        topic="table",
        queue_id=0,
        flag=0,
        queue_offset=offset,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"value",
        properties=b"KEYS\x01" + key + b"\x02",
    )
