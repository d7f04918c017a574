"""Kafka batches in a log, alone and among RocketMQ's records: appends, runs, places, recovery, starts, limits."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from tests.store.conftest import NOW, SMALL, build, build_kafka, opened, retain_log

from steelyard.config import StoreConfig
from steelyard.errors import CorruptError, DiskFullError
from steelyard.store import batch as batches
from steelyard.store.address import POSITION_BITS
from steelyard.store.disk import Disk
from steelyard.store.entry import BATCHES, MAGIC_V1, RECORDS, places, size_of
from steelyard.store.index import ROW_BYTES, pack_row
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk, MemoryFile
from steelyard.store.reads import Run, Slice
from steelyard.store.store import Store
from steelyard.wire.remoting.flags import tag_code

LARGE = StoreConfig(retention_ms=0)
EVERYTHING = 1 << 40


def add(
    log: Log, count: int, size: int = 10, now: int = NOW, timestamp: int | None = None
) -> bytes:
    batch = build_kafka(log, [b"x" * size] * count, now if timestamp is None else timestamp)
    first = log.max_offset
    assert log.append_batch(batch, count, now) == first
    assert log.max_offset == first + count
    return batch


def put(log: Log, body: bytes = b"", tags: str = "", now: int = NOW) -> bytes:
    entry = build(log, body, tags, now)
    log.append(entry, tag_code(tags) if tags else 0, now)
    return entry


def again(disk: MemoryDisk, config: StoreConfig = LARGE, now: int = NOW) -> Log:
    """The log, as the next process finds it after a kill."""
    log = Store(disk.copy(), config)
    log.open(now)
    found = log.log("orders", 0)
    assert found is not None
    log.check()
    return found


def only(disk: MemoryDisk, suffix: str) -> MemoryFile:
    (file,) = [file for path, file in disk.files.items() if path.endswith(suffix)]
    return file


def test_a_batch_takes_an_offset_for_each_of_its_records(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    one, two = add(log, 3), add(log, 1)
    assert (log.min_offset, log.max_offset) == (0, 4)
    assert [log.entry_at(offset) for offset in range(4)] == [one, one, one, two]
    assert log.read_run(0, EVERYTHING) == Run(BATCHES, one + two, 0, 4)
    assert log.read_run(2, EVERYTHING) == Run(BATCHES, one + two, 0, 4)
    assert log.read_run(3, EVERYTHING) == Run(BATCHES, two, 3, 4)
    store.close()
    store, recovery = opened(disk)
    found = store.log("orders", 0)
    assert found is not None
    assert recovery.repaired == ()
    assert found.read_run(1, EVERYTHING) == Run(BATCHES, one + two, 0, 4)


def test_runs_of_a_mixed_log() -> None:
    store, _ = opened(MemoryDisk(), LARGE)
    log = store.create_log("orders", 0)
    records = put(log, b"0"), put(log, b"1")
    batch = add(log, 3)
    last = put(log, b"5")
    for offset in (0, 1):
        data = b"".join(records[offset:])
        assert log.read_run(offset, EVERYTHING) == Run(RECORDS, data, offset, 2)
        assert log.read(offset, 32, EVERYTHING) == Slice(data, 2 - offset, 2, offset)
    for offset in (2, 3, 4):
        assert log.read_run(offset, EVERYTHING) == Run(BATCHES, batch, 2, 5)
        assert log.read(offset, 32, EVERYTHING) == Slice(b"", 0, offset, offset)
        assert log.record_at(offset) is None
    assert log.read_run(5, EVERYTHING) == Run(RECORDS, last, 5, 6)
    assert log.record_at(5) == log.entry_at(5) == last
    assert log.read_run(6, EVERYTHING) == Run(RECORDS, b"", 6, 6)
    assert log.read_run(99, EVERYTHING) == Run(RECORDS, b"", 6, 6)


def test_a_tagged_read_stops_before_a_batch() -> None:
    store, _ = opened(MemoryDisk(), LARGE)
    log = store.create_log("orders", 0)
    codes = frozenset((tag_code("A"),))
    one = put(log, b"0", "A")
    put(log, b"1", "B")
    add(log, 2)
    two = put(log, b"4", "A")
    assert log.read(0, 32, EVERYTHING, codes) == Slice(one, 1, 2, 0)
    assert log.read(1, 32, EVERYTHING, codes) == Slice(b"", 0, 2, 2)
    assert log.read(2, 32, EVERYTHING, codes) == Slice(b"", 0, 2, 2)
    assert log.read(4, 32, EVERYTHING, codes) == Slice(two, 1, 5, 4)


def test_limits_of_a_run() -> None:
    store, _ = opened(MemoryDisk(), LARGE)
    log = store.create_log("orders", 0)
    written = [add(log, 100) for _ in range(5)]
    size = len(written[0])
    assert log.read_run(150, 1) == Run(BATCHES, written[1], 100, 200)
    assert log.read_run(150, 2 * size - 1) == Run(BATCHES, written[1], 100, 200)
    assert log.read_run(150, 2 * size) == Run(BATCHES, b"".join(written[1:3]), 100, 300)
    assert log.read_run(150, EVERYTHING, 400) == Run(BATCHES, b"".join(written[1:4]), 100, 400)
    for end in (399, 301):
        assert log.read_run(150, EVERYTHING, end) == Run(BATCHES, b"".join(written[1:3]), 100, 300)
    assert log.read_run(150, EVERYTHING, 199) == Run(BATCHES, b"", 150, 150)
    assert log.read_run(150, EVERYTHING, 150) == Run(RECORDS, b"", 150, 150)


def test_a_run_ends_where_its_segment_ends_and_a_batch_is_never_cut_in_two() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(segment_bytes=500))
    log = store.create_log("orders", 0)
    small, big, after = add(log, 2), add(log, 5, 400), add(log, 1)
    assert len([path for path in disk.files if path.endswith(".log")]) == 3
    assert log.read_run(0, EVERYTHING) == Run(BATCHES, small, 0, 2)
    assert log.read_run(4, EVERYTHING) == Run(BATCHES, big, 2, 7)
    assert log.read_run(7, EVERYTHING) == Run(BATCHES, after, 7, 8)
    store.check()


def test_rows_of_a_batch_are_equal_and_hold_when_it_was_appended() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, LARGE)
    log = store.create_log("orders", 0)
    batch = add(log, 4, timestamp=NOW - 1_000_000, now=NOW + 5)
    store.flush()
    tag = batches.row_tag(NOW + 5)
    assert bytes(only(disk, ".rows").data) == pack_row(0, len(batch), tag, crc32c(batch[:21])) * 4
    assert tag >> 32 not in (0, -1)
    assert (batches.is_batch(tag), batches.appended_at(tag)) == (True, NOW + 5)
    for code in (0, -1, 2**31 - 1, -(2**31), tag_code("TagA")):
        assert not batches.is_batch(code)


def test_an_append_of_a_batch_is_one_write() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, LARGE)
    log = store.create_log("orders", 0)
    add(log, 1)
    writes: list[int] = []
    original = MemoryFile.write

    def counted(self: MemoryFile, position: int, data: bytes) -> None:
        writes.append(len(data))
        original(self, position, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "write", counted)
        batch = add(log, 1_000)
    assert writes == [len(batch)]


def test_a_batch_made_for_another_place_is_a_bug() -> None:
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    batch = add(log, 2)
    with pytest.raises(AssertionError, match="another place"):
        log.append_batch(batch, 2, NOW)
    with pytest.raises(AssertionError):
        log.append_batch(build_kafka(log, [b"x"] * 2), 3, NOW)


def test_a_full_disk_refuses_a_batch_and_changes_nothing() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, LARGE)
    log = store.create_log("orders", 0)
    one = add(log, 2)
    disk.room_bytes = 50
    with pytest.raises(DiskFullError):
        log.append_batch(build_kafka(log, [b"y"]), 1, NOW)
    assert (log.max_offset, log.read_run(0, EVERYTHING).data) == (2, one)
    disk.room_bytes = None
    two = add(log, 3)
    assert again(disk).read_run(0, EVERYTHING) == Run(BATCHES, one + two, 0, 5)


def test_an_address_of_a_batch_names_nothing() -> None:
    """1 a batch, 2 a batch with a record in it made for that very address, 3 a record, which is found."""
    store, _ = opened(MemoryDisk(), LARGE)
    log = store.create_log("orders", 0)
    addresses = []
    for _ in range(3):
        addresses.append(log.next_address)
        add(log, 3, 200)
    inner = build(log, b"inner", skip_bytes=69)
    start = log.next_address
    log.append_batch(build_kafka(log, [inner, b""]), 2, NOW)
    assert log.entry_at(9)[69:].startswith(inner)
    assert log.at_address(start + 69) is None
    assert [store.at_address(address) for address in addresses] == [None] * 3
    assert [log.address_at(offset) for offset in range(9)] == sorted(addresses * 3)
    last = log.next_address
    entry = put(log)
    assert store.at_address(last) == entry
    assert log.address_at(11) == last


def test_a_batch_that_holds_its_offset_where_a_record_would() -> None:
    """The first batch of a log, with one record: only the last byte of its checksum has to be 0 for that."""
    store, _ = opened(MemoryDisk(), LARGE)
    log = store.create_log("orders", 0)
    tried = (build_kafka(log, [b"%d" % number + bytes(50)]) for number in range(10_000))
    batch = next(batch for batch in tried if not batch[20])
    assert places(batch)[0] == 0
    log.append_batch(batch, 1, NOW)
    assert log.at_address(log.address_at(0)) is None


# -- times -----------------------------------------------------------------------------------------


def test_the_time_of_a_batch_is_that_of_its_append() -> None:
    """Producers' clocks go wrong by years; offsets by time and retention do not."""
    store, _ = opened(MemoryDisk(), StoreConfig(segment_bytes=150, retention_ms=0))
    log = store.create_log("orders", 0)
    for at, stamp in ((0, NOW * 2), (10, 0), (20, -1), (30, NOW)):
        add(log, 2, now=NOW + at, timestamp=stamp)
    put(log, now=NOW + 40)
    assert [log.stored_at(offset) - NOW for offset in range(9)] == [
        0,
        0,
        10,
        10,
        20,
        20,
        30,
        30,
        40,
    ]
    assert log.offset_at_time(NOW + 10) == 2
    assert log.offset_at_time(NOW + 11) == 4
    assert log.offset_at_time(NOW + 29, upper=True) == 5
    assert retain_log(log, NOW + 65, ms=50) == 4
    assert log.min_offset == 4


def test_times_of_batches_whose_rows_are_lost() -> None:
    """What a producer's clock says then counts, within what is known from before and the time of the recovery."""
    disk = MemoryDisk()
    store, _ = opened(disk, LARGE)
    log = store.create_log("orders", 0)
    put(log, now=NOW)
    for stamp in (NOW - 50, NOW + 10, NOW + 5, NOW * 2):
        add(log, 2, now=NOW + 20, timestamp=stamp)
    put(log, now=NOW + 25)
    found = again(disk, now=NOW + 30)
    assert [found.stored_at(offset) - NOW for offset in range(0, 9, 2)] == [0, 0, 10, 10, 30]
    store.flush_index()
    kept = again(disk, now=NOW + 30)
    assert [kept.stored_at(offset) - NOW for offset in range(10)] == [0, *[20] * 8, 25]


# -- recovery --------------------------------------------------------------------------------------


def filled(disk: MemoryDisk) -> tuple[Store, list[bytes]]:
    store, _ = opened(disk, StoreConfig(retention_ms=0, index_flush_rows=1))
    log = store.create_log("orders", 0)
    entries = [put(log, b"a"), add(log, 3), put(log, b"b", "TagB"), add(log, 2), add(log, 4)]
    store.flush()
    return store, entries


OFFSETS = [0, 1, 4, 5, 7, 11]
"""Of the entries of `filled`, and the end."""


def test_a_log_cut_anywhere_keeps_its_whole_entries() -> None:
    whole = MemoryDisk()
    _, entries = filled(whole)
    ends = [len(b"".join(entries[:count])) for count in range(6)]
    for size in range(ends[-1] + 1):
        for rows in (0, 4, 11):
            disk = whole.copy()
            del only(disk, ".log").data[size:]
            del only(disk, ".rows").data[rows * ROW_BYTES :]
            kept = max(count for count in range(6) if ends[count] <= size)
            log = again(disk)
            assert log.max_offset == OFFSETS[kept]
            assert log.next_address & ((1 << POSITION_BITS) - 1) == ends[kept]
            assert [log.entry_at(offset) for offset in OFFSETS[:kept]] == entries[:kept]


def test_an_index_cut_anywhere_is_made_anew() -> None:
    """Also in the middle of the rows of a batch."""
    whole = MemoryDisk()
    _, entries = filled(whole)
    rows = bytes(only(whole, ".rows").data)
    for size in range(len(rows) + 1):
        disk = whole.copy()
        del only(disk, ".rows").data[size:]
        store = Store(disk, LARGE)
        recovery = store.open(NOW)
        log = store.log("orders", 0)
        assert log is not None
        assert recovery.bytes_cut == 0
        assert [log.entry_at(offset) for offset in OFFSETS[:-1]] == entries
        assert log.read(4, 1, EVERYTHING, frozenset((tag_code("TagB"),))).count == 1
        store.flush()
        assert bytes(only(disk, ".rows").data) == rows
        store.check()


def test_a_damaged_batch_whose_rows_are_lost_is_refused_and_what_follows_it_is_kept() -> None:
    whole = MemoryDisk()
    _, entries = filled(whole)
    start = len(entries[0])
    # But for the leader epoch, which is not looked at where there is no row.
    for place in (*range(12), *range(16, len(entries[1]))):
        disk = whole.copy()
        only(disk, ".log").data[start + place] ^= 0x40
        only(disk, ".rows").data.clear()
        log = again(disk)
        assert log.max_offset == 11
        assert log.read(0, 9, EVERYTHING).count == 1
        for offset in (1, 2, 3):
            with pytest.raises(CorruptError) as raised:
                log.read_run(offset, EVERYTHING)
            assert raised.value.next_offset == 4
        assert [log.entry_at(offset) for offset in OFFSETS[2:-1]] == entries[2:]


def test_the_rows_of_a_lost_batch_are_passed_over_at_once() -> None:
    """The log lost a batch of many records, the index kept its rows: they are not each looked up in the log."""
    disk = MemoryDisk()
    store, _ = opened(disk, LARGE)
    log = store.create_log("orders", 0)
    kept = add(log, 2)
    lost = add(log, 30_000, 0)
    store.flush()
    only(disk, ".log").data[len(kept) :] = bytes(len(lost))
    reads: list[int] = []
    original = MemoryFile.read

    def counted(self: MemoryFile, position: int, size: int) -> bytes:
        reads.append(size)
        return original(self, position, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "read", counted)
        found = again(disk)
    assert found.max_offset == 2
    assert sum(size >= len(lost) for size in reads) <= 2
    assert len(reads) < 100


def test_a_batch_whose_offset_looks_like_the_magic_of_a_record() -> None:
    """Bytes 4..8 of that batch are a record's magic, bytes 0..4 a plausible size."""
    disk = MemoryDisk()
    store, _ = opened(disk, LARGE)
    log = store.create_log("orders", 0)
    log.max_offset = 1_000 << 32 | MAGIC_V1
    log.min_offset = log.max_offset
    one, two = add(log, 3, 300), put(log, b"x")
    assert size_of(one) == 1_000
    found = again(disk)
    assert found.min_offset == log.min_offset
    assert found.entry_at(found.min_offset + 2) == one
    assert found.entry_at(found.min_offset + 3) == two


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (16, ">b", 1),
        (8, ">i", 48),
        (8, ">i", -1),
        (23, ">i", 1),
        (57, ">i", 0),
        (57, ">i", batches.COUNT_MAX + 1),
    ],
)
def test_what_is_no_batch(at: int, form: str, value: int) -> None:
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    batch = bytearray(build_kafka(log, [b"x"] * 3))
    assert batches.size_of(bytes(batch), 0, 0) == len(batch)
    assert not batches.size_of(bytes(batch), 0, 1)
    assert not batches.size_of(bytes(batch[:60]), 0, 0)
    struct.pack_into(form, batch, at, value)
    if at == 57:
        struct.pack_into(">i", batch, 23, value - 1)
    assert not batches.size_of(bytes(batch), 0, 0)


# -- starts and sizes ------------------------------------------------------------------------------


def test_deleting_before_an_offset(disk: Disk) -> None:
    store, _ = opened(disk, SMALL)
    log = store.create_log("orders", 0)
    for _ in range(20):
        add(log, 3, 50)
        put(log)
    address = log.address_at(7)
    assert store.at_address(address) is not None
    log.delete_before(30)
    size = log.size()
    assert (log.min_offset, log.max_offset) == (30, 80)
    assert store.at_address(address) is None
    assert log.read_run(29, 1) == Run(RECORDS, b"", 30, 30)
    assert log.read_run(30, 1).first_offset == 28
    log.delete_before(29)
    log.delete_before(30)
    assert (log.min_offset, log.size()) == (30, size)
    store.close()
    store, recovery = opened(disk, SMALL)
    found = store.log("orders", 0)
    assert found is not None
    assert recovery.repaired == ()
    assert (found.min_offset, found.max_offset) == (30, 80)
    assert found.offset_at_time(0) == 30
    found.delete_before(1_000)
    assert (found.min_offset, found.max_offset, found.size()) == (80, 80, 0)
    found.delete_before(80)
    store.check()
    add(found, 1)
    assert found.read_run(80, 1).next_offset == 81
    store.check()


def test_what_was_deleted_is_not_found_by_its_address_though_its_segment_is_there() -> None:
    store, _ = opened(MemoryDisk(), LARGE)
    log = store.create_log("orders", 0)
    entries = [put(log, b"%d" % number) for number in range(3)]
    addresses = [log.address_at(offset) for offset in range(3)]
    log.delete_before(2)
    assert [store.at_address(address) for address in addresses] == [None, None, entries[2]]


def test_a_kill_between_the_new_start_and_the_deletion_is_made_good() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, SMALL)
    log = store.create_log("orders", 0)
    for _ in range(20):
        add(log, 3, 100)
    before = disk.copy()
    store.table("log starts").put(str(log.log_id), b"31")
    after = disk.copy()
    assert again(before, SMALL).min_offset == 0
    found = again(after, SMALL)
    assert found.min_offset == 31
    assert found.size() < log.size()


def test_dropping_beyond_a_size() -> None:
    store, _ = opened(MemoryDisk(), SMALL)
    log = store.create_log("orders", 0)
    for _ in range(40):
        add(log, 2, 100)
    size = log.size()
    assert retain_log(log, NOW, size=size) == 0
    gone = retain_log(log, NOW, size=size // 2)
    assert 0 < gone == log.min_offset < 80
    assert size // 2 <= log.size() < size // 2 + SMALL.segment_bytes
    retain_log(log, NOW, size=0)
    assert 0 < log.size() <= SMALL.segment_bytes
    store.check()


def test_what_was_deleted_counts_once() -> None:
    """Retention drops a segment of which a part was deleted before: only the rest is gone by it."""
    store, _ = opened(MemoryDisk(), SMALL)
    log = store.create_log("orders", 0)
    for number in range(20):
        add(log, 3, 100, now=NOW + number)
    log.delete_before(2)
    gone = retain_log(log, NOW + 1_000, ms=500)
    assert gone == 58
    assert log.min_offset == log.max_offset == 60
