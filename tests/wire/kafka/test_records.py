"""Record batches: round trips, readers and writers of others both ways, damage, limits, places, markers."""

from __future__ import annotations

import gzip
import struct
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.record.control_record import ControlRecord
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords as KafkaPythonRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from tests.examples import examples

from steelyard.errors import ProtocolError
from steelyard.wire.kafka.compression import Compression, compress, decompress
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Marker,
    Record,
    crc_ok,
    read_header,
    read_headers,
    read_marker,
    read_records,
    with_offset,
    write_batch,
    write_marker,
)

NOW = 1_700_000_000_000
KINDS = list(Compression)
KAFKA_PYTHON_KINDS = [kind for kind in KINDS if kind != Compression.SNAPPY]
"""It needs python-snappy, which is not among our tools; aiokafka reads and writes snappy."""

values = st.none() | st.binary(max_size=60)
headers = st.lists(st.tuples(st.text(max_size=8), values), max_size=3).map(tuple)
parts = st.lists(
    st.tuples(st.integers(-1, 2**42), values, values, headers), min_size=1, max_size=20
)


@st.composite
def record_lists(draw: st.DrawFn) -> tuple[Record, ...]:
    base = draw(st.integers(0, 2**40))
    return tuple(Record(base + number, *part) for number, part in enumerate(draw(parts)))


SOME = tuple(
    Record(
        1_000 + number,
        NOW + 7 * number - 3 * (number % 5),
        b"key %d" % number if number % 3 else None,
        b"v" * (40 * number) if number % 7 else None,
        (("TAGS", b"TagA"), ("no value", None)) if number % 2 else (),
    )
    for number in range(60)
)


@given(record_lists(), st.sampled_from(KINDS))
def test_what_is_written_is_read(records: tuple[Record, ...], compression: Compression) -> None:
    batch = write_batch(records, compression=compression)
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_ok(batch)
    assert header.count_fits
    assert (header.base_offset, header.next_offset) == (records[0].offset, records[-1].offset + 1)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert read_records(batch) == records
    assert read_records(b"xyz" + batch + b"more", 3) == records


def test_a_header_field_by_field() -> None:
    batch = write_batch(
        (Record(7, NOW, b"k", b"v"), Record(8, NOW - 5, None, b"")),
        leader_epoch=3,
        producer_id=99,
        producer_epoch=2,
        base_sequence=41,
        attributes=TRANSACTIONAL,
        compression=Compression.LZ4,
    )
    header = read_header(batch)
    assert header == BatchHeader(
        7, len(batch) - 12, 3, 2, crc32c(batch[21:]), 0x13, 1, NOW, NOW, 99, 2, 41, 2
    )
    assert header.is_transactional
    assert header.has_producer_id
    assert not header.is_control
    assert not header.is_log_append_time
    assert (header.compression, header.last_offset) == (Compression.LZ4, 8)


def test_golden_bytes() -> None:
    """One record, written down by hand from DefaultRecordBatch and DefaultRecord."""
    record = bytes.fromhex("18 00 00 00 02 6b 04 7631 02 02 68 01".replace(" ", ""))
    checked = struct.pack(">hiqqqhii", 0, 0, NOW, NOW, -1, -1, -1, 1) + record
    golden = struct.pack(">qiibI", 5, len(checked) + 9, 0, 2, crc32c(checked)) + checked
    assert write_batch((Record(5, NOW, b"k", b"v1", (("h", None),)),)) == golden


# -- others' code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", KINDS)
def test_aiokafka_reads_what_we_write(compression: Compression) -> None:
    found = AiokafkaRecords(write_batch(SOME, compression=compression)).next_batch()
    assert found is not None
    assert found.validate_crc()
    assert [
        Record(item.offset, item.timestamp, item.key, item.value, tuple(item.headers))
        for item in found
    ] == list(SOME)


@pytest.mark.parametrize("compression", KAFKA_PYTHON_KINDS)
def test_kafka_python_reads_what_we_write(compression: Compression) -> None:
    found = KafkaPythonRecords(write_batch(SOME, compression=compression)).next_batch()
    assert found is not None
    assert found.validate_crc()
    assert [
        Record(item.offset, item.timestamp, item.key, item.value, tuple(item.headers))
        for item in found
    ] == list(SOME)


@pytest.mark.parametrize("compression", KINDS)
def test_we_read_what_aiokafka_writes(compression: Compression) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=int(compression),
        is_transactional=1,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        batch_size=1 << 20,
    )
    for number, record in enumerate(SOME):
        builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
    batch = with_offset(bytes(builder.build()), 1_000)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert header.is_transactional
    assert header.compression == compression
    assert crc_ok(batch)
    assert read_records(batch) == SOME


@pytest.mark.parametrize("compression", KAFKA_PYTHON_KINDS)
def test_we_read_what_kafka_python_writes(compression: Compression) -> None:
    builder = KafkaPythonBuilder(2, int(compression), False, -1, -1, -1, 1 << 20)
    for number, record in enumerate(SOME):
        builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
    batch = with_offset(bytes(builder.build()), 1_000)
    assert crc_ok(batch)
    assert read_records(batch) == SOME


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_markers(kind: int) -> None:
    batch = write_marker(
        Marker(kind, 4), base_offset=12, producer_id=77, producer_epoch=3, timestamp=NOW
    )
    header = read_header(batch)
    assert (header.attributes, header.count, header.base_sequence) == (
        TRANSACTIONAL | CONTROL,
        1,
        -1,
    )
    assert (header.producer_id, header.producer_epoch, header.base_offset) == (77, 3, 12)
    assert read_marker(batch) == Marker(kind, 4)
    found = AiokafkaRecords(batch).next_batch()
    assert found is not None
    assert found.is_control_batch
    assert ControlRecord.parse(next(found).key) == (
        ControlRecord(0, 1) if kind == COMMIT else ControlRecord(0, 0)
    )


def test_control_records_of_other_kinds_are_passed_over_and_data_is_no_marker() -> None:
    other = write_batch((Record(1, NOW, b"\0\0\0\2", b""),), attributes=CONTROL)
    assert read_marker(other) is None
    with pytest.raises(ProtocolError, match="control batch is wanted"):
        read_marker(write_batch((Record(1, NOW, b"\0\0\0\1", b"\0\0\0\0\0\0"),)))
    for key, value in ((b"\0", b""), (None, b""), (b"\0\0\0\1", b"\0"), (b"\0\0\0\1", None)):
        with pytest.raises(ProtocolError, match="too short"):
            read_marker(write_batch((Record(1, NOW, key, value),), attributes=CONTROL))


# -- places ----------------------------------------------------------------------------------------


def test_a_batch_gets_its_place_without_a_new_checksum() -> None:
    batch = write_batch(SOME, compression=Compression.ZSTD)
    placed = with_offset(batch, 5_000, 9)
    assert placed[21:] == batch[21:]
    assert crc_ok(placed)
    header = read_header(placed)
    assert (header.base_offset, header.leader_epoch) == (5_000, 9)
    assert [item.offset for item in read_records(placed)] == list(range(5_000, 5_060))


def test_the_time_of_append_instead_of_the_producers() -> None:
    placed = with_offset(write_batch(SOME), 5_000, append_time=NOW + 99)
    header = read_header(placed)
    assert crc_ok(placed)
    assert (header.attributes, header.max_timestamp) == (LOG_APPEND_TIME, NOW + 99)
    assert {item.timestamp for item in read_records(placed)} == {NOW + 99}
    found = AiokafkaRecords(placed).next_batch()
    assert found is not None
    assert {item.timestamp for item in found} == {NOW + 99}


def test_batches_back_to_back_and_the_last_one_cut() -> None:
    batches = [write_batch(SOME[:3]), write_batch(SOME[3:4]), write_batch(SOME[4:])]
    data = b"".join(batches)
    found = list(read_headers(data))
    assert [at for at, _ in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [header.base_offset for _, header in found] == [1_000, 1_003, 1_004]
    for cut in (1, 100, len(batches[2]) - 1):
        assert [at for at, _ in read_headers(data[:-cut])] == [at for at, _ in found[:2]]
    with pytest.raises(ProtocolError):
        list(read_headers(batches[0] + bytes(80)))


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", KINDS)
def test_every_cut_and_every_damaged_byte_is_noticed(compression: Compression) -> None:
    batch = write_batch(SOME[:4], compression=compression)
    for size in range(len(batch)):
        assert not crc_ok(batch[:size])
        with pytest.raises(ProtocolError):
            read_records(batch[:size])
    for place in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[place] ^= 0x55
        assert not crc_ok(bytes(damaged))
        with suppress(ProtocolError):  # what is read is not believed, but must not break us
            read_records(bytes(damaged))


@settings(max_examples=examples(300))
@given(st.binary(max_size=120), st.sampled_from(KINDS), st.integers(-2, 300))
def test_rubbish_after_a_good_header(data: bytes, compression: Compression, count: int) -> None:
    head = bytearray(write_batch((Record(0, 0, None, None),), compression=compression))
    del head[HEADER_BYTES:]
    struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(data))
    struct.pack_into(">i", head, 57, count)
    with suppress(ProtocolError):
        read_records(bytes(head) + data)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused(magic: int) -> None:
    batch = bytearray(write_batch(SOME))
    batch[16] = magic
    with pytest.raises(ProtocolError, match=f"format {magic}"):
        read_header(bytes(batch))
    with pytest.raises(ProtocolError, match=f"format {magic}"):
        read_header(bytes(batch[:30]))


def test_counts_that_do_not_fit() -> None:
    batch = bytearray(write_batch(SOME[:1]))
    struct.pack_into(">i", batch, 23, 9_999)
    struct.pack_into(">i", batch, 57, 10_000)
    assert not read_header(bytes(batch)).count_fits
    with pytest.raises(ProtocolError, match="do not fit"):
        read_records(bytes(batch))
    struct.pack_into(">i", batch, 57, 1)
    assert not read_header(bytes(batch)).count_fits


# -- compression -----------------------------------------------------------------------------------


@given(st.binary(max_size=3_000), st.sampled_from(KINDS), st.integers(1, 50))
def test_compression_round_trips(data: bytes, compression: Compression, times: int) -> None:
    assert decompress(compress(data * times, compression), compression) == data * times


def test_foreign_compression_is_read() -> None:
    data = b"some text, " * 10_000
    assert decompress(gzip.compress(data), Compression.GZIP) == data
    assert decompress(bytes(cramjam.snappy.compress_raw(data)), Compression.SNAPPY) == data
    assert decompress(lz4.frame.compress(data), Compression.LZ4) == data
    streamed = zstandard.ZstdCompressor().compressobj()
    assert decompress(streamed.compress(data) + streamed.flush(), Compression.ZSTD) == data


def test_snappy_as_java_writes_it() -> None:
    """Xerial's frame: magic, version, compatible version, then blocks with their sizes."""
    packed = compress(b"a" * 40_000, Compression.SNAPPY)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == b"a" * 32 * 1024


@pytest.mark.parametrize("compression", [kind for kind in KINDS if kind])
def test_bombs_do_not_go_off(compression: Compression) -> None:
    bomb = compress(bytes(8 * 1024 * 1024), compression)
    assert len(decompress(bomb, compression, 8 * 1024 * 1024)) == 8 * 1024 * 1024
    with pytest.raises(ProtocolError, match="grow beyond 8388607 bytes"):
        decompress(bomb, compression, 8 * 1024 * 1024 - 1)


def test_a_snappy_block_that_claims_too_much_is_not_allocated() -> None:
    with pytest.raises(ProtocolError, match="grow beyond"):
        decompress(b"\xff\xff\xff\xff\x0f" + b"x", Compression.SNAPPY)


@pytest.mark.parametrize("compression", [5, 6, 7])
def test_unknown_compressions(compression: int) -> None:
    with pytest.raises(ProtocolError, match="unknown compression"):
        decompress(b"", compression)
    with pytest.raises(ProtocolError, match="unknown compression"):
        compress(b"", compression)
