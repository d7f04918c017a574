"""Log segments: every compression, copies, torn ends, damage, transactions."""

from __future__ import annotations

import pytest
from tests.incident.dumps import DUMPS, GROUP, segment, topic

from steelyard.errors import ProtocolError
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.incident.kafka.segments import Scanned, SegmentScanner, segment_end
from steelyard.types import TopicPartition
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.messages.coordinator_records import (
    CONSUMER_GROUP_MEMBER_METADATA,
    GROUP_METADATA,
    GROUP_TYPES,
    OFFSET_COMMIT,
    GroupKey,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
    read_value,
    type_of,
    write_key,
    write_value,
)
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    Marker,
    Record,
    read_headers,
    read_records,
    write_batch,
    write_marker,
)

PLACE = TopicPartition("orders", 3)


def commit(offset: int, at: int, number: int = 0, version: int = 3, group: str = "g") -> Record:
    key = write_key(OFFSET_COMMIT, OffsetCommitKey(group, *PLACE))
    value = OffsetCommitValue(offset, metadata="note", commit_timestamp=at, topic_id=b"\1" * 16)
    return Record(number, at, key, write_value(OFFSET_COMMIT, value, version))


def series(found: OffsetsTopic, group: str = "g") -> list[tuple[int, int]]:
    commits = found.groups[group].commits[PLACE]
    return list(zip(commits.at, commits.offsets, strict=True))


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("version", range(5))
def test_versions_and_compressions(compression: int, version: int) -> None:
    records = [commit(offset, 1000 + offset, offset, version) for offset in range(20)]
    found = OffsetsTopic()
    data = write_batch(records, compression=compression)
    assert SegmentScanner(found).scan(data) == Scanned(1, 20, 0)
    assert series(found) == [(1000 + offset, offset) for offset in range(20)]
    assert found.topics == ({b"\1" * 16: "orders"} if version == 4 else {})


@pytest.mark.parametrize("dump", DUMPS)
def test_what_kafka_wrote_is_read_as_by_the_slow_way(dump: str) -> None:
    data, found = segment(dump), topic(dump)
    slow = OffsetsTopic()
    for at, header in read_headers(data):
        if not header.is_control:
            for record in read_records(data, at):
                assert record.key is not None
                slow.take(record.timestamp, record.key, record.value)
    assert found.commits == slow.commits > 300
    assert found.groups[GROUP].records == slow.groups[GROUP].records
    assert found.unknown == slow.unknown == {}


@pytest.mark.parametrize("dump", DUMPS)
def test_what_kafka_wrote_is_written_the_same(dump: str) -> None:
    data = segment(dump)
    for at, header in read_headers(data):
        for record in () if header.is_control else read_records(data, at):
            assert record.key is not None
            kind = type_of(record.key, GROUP_TYPES)
            assert kind is not None
            assert write_key(kind, read_key(kind, record.key)) == record.key
            if record.value is not None:
                value = read_value(kind, record.value)
                assert value is not None
                version = int.from_bytes(record.value[:2])
                written = write_value(kind, value, version)
                if kind is CONSUMER_GROUP_MEMBER_METADATA:  # Kafka writes a tagged null, we do not
                    assert read_value(kind, written) == value
                else:
                    assert written == record.value


def test_copies_of_several_brokers_count_once() -> None:
    batches = [write_batch([commit(offset, offset, offset)]) for offset in range(10)]
    found = OffsetsTopic()
    scanner = SegmentScanner(found)
    for some in (batches[:6], batches[:8], batches[4:]):
        scanner.scan(b"".join(some))
    assert [offset for _, offset in series(found)] == list(range(10))


@pytest.mark.parametrize("left", [1, 40, 61, 70])
def test_a_torn_end_is_left(left: int) -> None:
    data = write_batch([commit(1, 1)])
    found = OffsetsTopic()
    scanned = SegmentScanner(found).scan(data + write_batch([commit(2, 2, 1)])[:left])
    assert scanned == Scanned(1, 1, left)
    assert SegmentScanner(OffsetsTopic()).scan(data + bytes(100)) == Scanned(1, 1, 100)
    assert segment_end(data + data[:left]) == (1, len(data))


def test_damage_is_an_error() -> None:
    data = bytearray(write_batch([commit(1, 1)]) + write_batch([commit(2, 2, 1)]))
    data[70] ^= 1
    with pytest.raises(ProtocolError, match="batch at byte 0 is damaged"):
        SegmentScanner(OffsetsTopic()).scan(bytes(data))
    with pytest.raises(ProtocolError, match="not the beginning"):
        SegmentScanner(OffsetsTopic()).scan(b"x" * 100)


@pytest.mark.parametrize(("kind", "count"), [(COMMIT, 1), (ABORT, 0)])
def test_offsets_of_a_transaction(kind: int, count: int) -> None:
    written = write_batch([commit(5, 5)], producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL)
    found = OffsetsTopic()
    scanner = SegmentScanner(found)
    scanner.scan(written)
    assert found.commits == 0
    marker = write_marker(
        Marker(kind, 0), base_offset=1, producer_id=7, producer_epoch=0, timestamp=6
    )
    scanner.scan(marker)
    assert found.commits == count


def test_one_group_only() -> None:
    records = [commit(n, n, n, group="g" if n % 2 else "other") for n in range(10)]
    found = OffsetsTopic("g")
    SegmentScanner(found).scan(write_batch(records))
    assert set(found.groups) == {"g"}
    assert found.names == {"g", "other"}
    assert [offset for _, offset in series(found)] == [1, 3, 5, 7, 9]


def test_unknown_records_are_counted() -> None:
    share = Record(0, 1, b"\x00\x0b\x00\x01g", b"\x00\x00\x00\x00\x00\x01\x00")
    later = Record(1, 1, write_key(GROUP_METADATA, GroupKey("g")), b"\x00\x09")
    broken = Record(2, 1, write_key(GROUP_METADATA, GroupKey("g")), b"\x00\x03\xff")
    found = OffsetsTopic()
    SegmentScanner(found).scan(write_batch([share, later, broken, commit(1, 1, 3)]))
    assert found.unknown == {11: 1, 2: 1}
    assert found.unreadable == 1
    assert found.commits == 1
