"""Records of a batch, unpacked bit by bit: what is found, where it ends, and how much is done at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ProtocolError
from steelyard.wire.kafka import unpacking as module
from steelyard.wire.kafka.compression import (
    Compression,
    compress,
    decompress,
    pieces,
)
from steelyard.wire.kafka.records import (
    HEADER_BYTES,
    Record,
    read_header,
    read_records,
    write_batch,
)
from steelyard.wire.kafka.unpacking import HEADERS_MAX, PIECE_EFFORT, READ_BYTES, Unpacking
from steelyard.wire.streams import PIECE_BYTES

EVERY = list(Compression)
PACKED = [each for each in Compression if each != Compression.NONE]
PLENTY = 1 << 40


def batch_of(*values: bytes, compression: int = Compression.NONE) -> bytes:
    records = [Record(number, 5, None, value) for number, value in enumerate(values)]
    return write_batch(records, compression=compression)


def unpacking(batch: bytes) -> Unpacking:
    return Unpacking(batch, read_header(batch))


def records_of(found: Unpacking, first: int, stop: int) -> list[Record | None]:
    data, borders = found.raw(first, stop)
    return [found.record(data, begin) for begin in borders[:-1]]


def all_of(found: Unpacking) -> list[Record | None]:
    """All records that can be reached, each piece with as little effort as there is."""
    records: list[Record | None] = []
    while len(records) < found.header.count:
        found.reach(len(records) + 1, 1)
        if found.reached > len(records):
            records += records_of(found, len(records), found.reached)
        elif found.fault:
            break
    return records


@pytest.mark.parametrize("compression", EVERY)
def test_segments_make_no_difference(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of all sizes, larger than a segment too; each is read whole."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 500)
    monkeypatch.setattr("steelyard.wire.streams.PIECE_BYTES", 300)
    values = [bytes([number % 251]) * (number * 37 % 1_700) for number in range(400)]
    batch = batch_of(*values, compression=compression)
    found = unpacking(batch)
    assert tuple(all_of(found)) == read_records(batch)
    assert found.times(0, 400) == [(number, 5) for number in range(400)]
    assert found.times(100, 250) == found.times(0, 400)[100:250]
    assert sum(map(found.size_of, range(400))) == len(decompress(batch[HEADER_BYTES:], compression))


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**40),
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from(EVERY),
)
def test_it_finds_what_reading_the_whole_batch_finds(
    parts: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    compression: Compression,
) -> None:
    records = [
        Record(7 + number, time, key, value, tuple(headers))
        for number, (time, key, value, headers) in enumerate(parts)
    ]
    batch = write_batch(records, compression=compression)
    found = unpacking(batch)
    assert tuple(all_of(found)) == read_records(batch) == tuple(records)
    assert found.times(0, len(records)) == [(item.offset, item.timestamp) for item in records]
    assert not found.fault


@pytest.mark.parametrize("compression", PACKED)
@pytest.mark.parametrize("data", [b"", b"x" * 10, bytes(300_000), bytes(range(256)) * 2_000])
def test_pieces_are_small_and_make_up_the_whole(compression: Compression, data: bytes) -> None:
    packed = compress(data, compression)
    found = list(pieces(packed, compression))
    assert b"".join(found) == data == decompress(packed, compression)
    assert all(len(piece) <= PIECE_BYTES for piece in found)


@pytest.mark.parametrize("compression", EVERY)
def test_a_batch_is_unpacked_only_as_far_as_it_is_read(compression: Compression) -> None:
    found = unpacking(batch_of(*[bytes(1_000)] * 2_000, compression=compression))
    left = found.reach(10, PLENTY)
    assert PLENTY - left < 2 * PIECE_EFFORT
    assert found.size < (7_000_000 if compression == Compression.NONE else 300_000)
    assert found.reached == 10
    assert len(records_of(found, 0, 10)) == 10


def test_a_large_record_takes_many_small_efforts() -> None:
    found = unpacking(batch_of(bytes(50 * PIECE_BYTES), compression=Compression.ZSTD))
    calls = 0
    while not found.reached:
        assert not found.fault
        before = found.size
        assert found.reach(1, 1) <= 0
        assert found.size - before <= 2 * PIECE_BYTES + 100
        calls += 1
    assert calls > 50


@pytest.mark.parametrize("compression", PACKED)
def test_what_is_cut_gives_its_beginning(compression: Compression) -> None:
    values = [b"%07d" % (number * 7919) for number in range(40_000)]
    batch = batch_of(*values, compression=compression)
    data = batch[HEADER_BYTES : len(batch) * 3 // 4]
    cut = Unpacking(batch[:HEADER_BYTES] + data, read_header(batch))
    found = all_of(cut)
    assert cut.fault
    assert 10_000 < len(found) < 40_000
    assert [item and item.value for item in found] == values[: len(found)]


def test_rubbish_gives_nothing() -> None:
    batch = batch_of(b"x", compression=Compression.ZSTD)
    for data in (b"", b"rubbish" * 20):
        for compression in range(1, 8):
            header = read_header(batch)
            bad = bytearray(batch[:HEADER_BYTES] + data)
            bad[22] = compression
            found = Unpacking(bytes(bad), read_header(bytes(bad)))
            assert found.reach(header.count, PLENTY) > 0
            assert (found.reached, bool(found.fault)) == (0, True)


def test_it_ends_at_a_record_of_impossible_size() -> None:
    for size in (b"\x01", b"\xff" * 11):
        batch = bytearray(batch_of(b"a", b"b", b"c"))
        whole = unpacking(bytes(batch))
        whole.reach(3, PLENTY)
        at = HEADER_BYTES + whole.size_of(0)
        batch[at : at + 1] = size
        found = Unpacking(bytes(batch), read_header(bytes(batch)))
        found.reach(3, PLENTY)
        assert found.reached == 1
        assert "claims" in found.fault or "varint" in found.fault


def test_a_record_that_is_damaged_inside_is_left_out_alone() -> None:
    batch = bytearray(batch_of(b"a", b"b", b"c"))
    whole = unpacking(bytes(batch))
    whole.reach(3, PLENTY)
    batch[HEADER_BYTES + whole.size_of(0) + 5] = 0x7F  # the size of its value
    found = all_of(unpacking(bytes(batch)))
    assert [item and item.value for item in found] == [b"a", None, b"c"]


def test_a_record_with_too_many_headers_is_left_out() -> None:
    headers = [(("h", None),) * count for count in (HEADERS_MAX, HEADERS_MAX + 1, 1)]
    batch = write_batch([Record(n, 5, None, b"", each) for n, each in enumerate(headers)])
    assert [item and len(item.headers) for item in all_of(unpacking(batch))] == [
        HEADERS_MAX,
        None,
        1,
    ]


def test_records_are_read_a_few_at_a_time() -> None:
    found = unpacking(batch_of(*[bytes(READ_BYTES // 4)] * 9, bytes(3 * READ_BYTES), b"last"))
    found.reach(11, PLENTY)
    counts = []
    first = 0
    while first < 11:
        counts.append(len(records_of(found, first, 11)))
        first += counts[-1]
    assert counts == [3, 3, 3, 1, 1]


def test_a_batch_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_BYTES_MAX", 3 * PIECE_BYTES)
    found = unpacking(batch_of(*[bytes(1_000)] * 400, compression=Compression.ZSTD))
    records = all_of(found)
    assert "grow beyond" in found.fault
    assert len(records) == 3 * PIECE_BYTES // found.size_of(1)
    assert found.size < 3 * PIECE_BYTES + 10_000


def test_an_unknown_compression_is_a_fault() -> None:
    with pytest.raises(ProtocolError, match="unknown compression"):
        pieces(b"", 5)
