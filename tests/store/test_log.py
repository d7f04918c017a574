"""One log: appends, reads with and without a filter, times, addresses, segments, retention, a full disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

import pytest
from tests.store.conftest import NOW, SMALL, build, build_batch, opened, retain_log

from steelyard.config import StoreConfig
from steelyard.errors import CorruptError, DiskFullError, StorageError
from steelyard.store.disk import Disk
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk, MemoryFile
from steelyard.store.reads import SCAN_ROWS_MAX, Slice
from steelyard.wire.remoting.flags import tag_code


def fill(log: Log, count: int, step_ms: int = 0, tags: tuple[str, ...] = ("",)) -> list[bytes]:
    """Append `count` entries of some 130 bytes; tags in turn."""
    written = []
    for number in range(count):
        now = NOW + number * step_ms
        tag = tags[number % len(tags)]
        entry = build(log, b"body %d" % number, tag, now)
        assert log.append(entry, tag_code(tag) if tag else 0, now) == log.max_offset - 1
        written.append(entry)
    return written


def test_reads_give_back_what_was_appended(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 3)
    written = fill(log, 60)
    assert (log.min_offset, log.max_offset) == (0, 60)
    assert len([name for name in disk.list(log.folder) if name.endswith(".log")]) > 2
    assert [log.entry_at(offset) for offset in range(60)] == written
    offset, found = 0, b""
    while offset < 60:
        part = log.read(offset, 32, 1_000_000)
        assert part.first_offset == offset
        assert part.next_offset == offset + part.count
        offset, found = part.next_offset, found + part.data
    assert found == b"".join(written)
    log.check()


def test_limits_of_a_read(disk: Disk) -> None:
    store, _ = opened(disk, StoreConfig(index_flush_rows=4))
    log = store.create_log("orders", 0)
    written = fill(log, 10)
    size = len(written[0])
    assert log.read(2, 3, 1_000_000) == Slice(b"".join(written[2:5]), 3, 5, 2)
    assert log.read(2, 32, 3 * size) == Slice(b"".join(written[2:5]), 3, 5, 2)
    assert log.read(2, 32, 3 * size - 1) == Slice(b"".join(written[2:4]), 2, 4, 2)
    assert log.read(2, 32, 1) == Slice(written[2], 1, 3, 2)
    assert log.read(9, 32, 1_000) == Slice(written[9], 1, 10, 9)


def test_a_read_may_be_told_where_to_end(disk: Disk) -> None:
    store, _ = opened(disk, StoreConfig(index_flush_rows=4))
    log = store.create_log("orders", 0)
    written = fill(log, 10, tags=("A", "B"))
    tagged = frozenset((tag_code("A"),))
    assert log.read(2, 32, 1_000_000, None, 5) == Slice(b"".join(written[2:5]), 3, 5, 2)
    assert log.read(5, 32, 1_000_000, None, 5) == Slice(b"", 0, 5, 5)
    assert log.read(8, 32, 1_000_000, None, 5) == Slice(b"", 0, 5, 5)
    assert log.read(8, 32, 1_000_000, None, 99) == Slice(b"".join(written[8:]), 2, 10, 8)
    assert log.read(1, 32, 1_000_000, tagged, 5) == Slice(written[2] + written[4], 2, 5, 2)
    assert log.read(1, 32, 1_000_000, tagged, 2) == Slice(b"", 0, 2, 2)


def test_reads_outside_the_log_are_empty_and_say_where_it_is(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    assert log.read(0, 32, 1_000) == Slice(b"", 0, 0, 0)
    fill(log, 30, step_ms=10)
    retain_log(log, NOW + 1_000, ms=800)
    assert log.min_offset > 0
    assert log.read(30, 32, 1_000) == Slice(b"", 0, 30, 30)
    assert log.read(99, 32, 1_000) == Slice(b"", 0, 30, 30)
    assert log.read(0, 32, 1_000) == Slice(b"", 0, log.min_offset, log.min_offset)


def test_a_tagged_read_gives_these_entries_only(disk: Disk) -> None:
    store, _ = opened(disk, StoreConfig(index_flush_rows=4))
    log = store.create_log("orders", 0)
    written = fill(log, 20, tags=("A", "B", "B", "C"))
    wanted = frozenset((tag_code("A"), tag_code("C")))
    hits = [entry for number, entry in enumerate(written) if number % 4 in (0, 3)]
    assert log.read(0, 32, 1_000_000, wanted) == Slice(b"".join(hits), 10, 20, 0)
    assert log.read(1, 2, 1_000_000, wanted) == Slice(b"".join(written[3:5]), 2, 5, 3)
    assert log.read(1, 32, 1, wanted) == Slice(written[3], 1, 4, 3)
    assert log.read(5, 32, 1_000_000, frozenset((tag_code("D"),))) == Slice(b"", 0, 20, 20)


def test_a_tagged_read_looks_at_a_bounded_number_of_entries() -> None:
    store, _ = opened(MemoryDisk(), StoreConfig())
    log = store.create_log("orders", 0)
    log.append_many(build_batch(log, [b""] * (SCAN_ROWS_MAX + 10)), NOW)
    log.append(build(log, b"", "A"), tag_code("A"), NOW)
    wanted = frozenset((tag_code("A"),))
    first = log.read(0, 32, 1_000_000, wanted)
    assert first == Slice(b"", 0, SCAN_ROWS_MAX, SCAN_ROWS_MAX)
    assert log.read(first.next_offset, 32, 1_000_000, wanted).count == 1


def test_a_batch_takes_consecutive_offsets(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, 1)
    batch = build_batch(log, [b"a", b"bb", b"ccc"])
    assert log.append_many(batch, NOW) == 1
    assert log.max_offset == 4
    assert log.read(1, 3, 10_000).data == b"".join(entry for entry, _ in batch)


def test_an_append_is_one_write_and_no_sync() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    fill(log, 1)
    before = {path: file.size() for path, file in disk.files.items()}
    writes: list[str] = []
    original = MemoryFile.write

    def counted(self: MemoryFile, position: int, data: bytes) -> None:
        writes.append(next(path for path, file in disk.files.items() if file is self))
        original(self, position, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "write", counted)
        fill(log, 100)
        log.append_many(build_batch(log, [b"x"] * 50), NOW)
    assert len(writes) == 101
    assert len(set(writes)) == 1
    assert [path for path, size in before.items() if disk.files[path].size() != size] == writes[:1]


def test_an_entry_made_for_another_place_is_a_bug() -> None:
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    entry = build(log, b"x")
    log.append(entry, 0, NOW)
    with pytest.raises(AssertionError, match="another place"):
        log.append(entry, 0, NOW)
    with pytest.raises(AssertionError, match="another place"):
        log.append_many([(entry, 0)], NOW)


@pytest.mark.parametrize("ipv6", [False, True])
def test_store_times(ipv6: bool) -> None:
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    for now in (NOW, NOW + 5, NOW + 5, NOW + 9):
        log.append(build(log, b"x" * 700, now=now, ipv6=ipv6), 0, now)
    assert [log.stored_at(offset) for offset in range(4)] == [NOW, NOW + 5, NOW + 5, NOW + 9]


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(-1, 0, 0), (0, 0, 0), (1, 1, 0), (5, 1, 3), (6, 4, 3), (9, 4, 4), (10, 5, 4)],
)
def test_offsets_by_time(timestamp: int, lower: int, upper: int) -> None:
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    assert log.offset_at_time(NOW + timestamp) == 0
    for at in (0, 5, 5, 5, 9):
        log.append(build(log, b"x" * 700, now=NOW + at), 0, NOW + at)
    assert log.offset_at_time(NOW + timestamp) == lower
    assert log.offset_at_time(NOW + timestamp, upper=True) == upper


def test_addresses_name_entries_and_nothing_else() -> None:
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    other = store.create_log("orders", 1)
    addresses = []
    for number in range(30):
        addresses.append(log.next_address)
        log.append(build(log, b"%d" % number), 0, NOW)
    fill(other, 3)
    assert [store.at_address(address) for address in addresses] == [
        log.entry_at(offset) for offset in range(30)
    ]
    for wrong in (0, -1, addresses[3] + 1, addresses[3] - 4, log.next_address, 1 << 62, 9 << 40):
        assert store.at_address(wrong) is None


def test_an_address_inside_a_body_that_looks_like_an_entry() -> None:
    """A client sends a message whose body is a record made for the very address that it will have."""
    store, _ = opened(MemoryDisk())
    log = store.create_log("orders", 0)
    inner = build(log, b"inner", skip_bytes=88)
    address = log.next_address
    log.append(build(log, inner), 0, NOW)
    assert log.entry_at(0)[88:].startswith(inner)
    assert store.at_address(address + 88) is None
    assert store.at_address(address) == log.entry_at(0)


class Stubborn(MemoryDisk):
    """A disk that refuses to remove files with this in their path."""

    stays = "nothing"

    def remove(self, path: str) -> None:
        if self.stays in path:
            raise OSError(errno.EIO, "no")
        super().remove(path)


@pytest.mark.parametrize("suffix", [".log", ".rows"])
def test_a_segment_that_cannot_be_removed_costs_no_other(suffix: str) -> None:
    """A restart cuts what comes after a gap: there must be none."""
    disk = Stubborn()
    store, _ = opened(disk)
    log = store.create_log("topic", 0)
    fill(log, 60)
    first = log._segments.all[0]
    disk.stays = f"{first.base_offset:020}{suffix}"
    for _ in range(2):
        with suppress(StorageError):
            retain_log(log, NOW, size=4_000)
        log.check()
        fill(log, 30)
    end = log.end
    disk.stays = "nothing"
    store, _ = opened(disk)
    again = store.log("topic", 0)
    assert again is not None
    assert (again.min_offset, again.end) == (log.min_offset, end)
    retain_log(again, NOW, size=4_000)
    assert again.min_offset > first.end[1]
    assert len(disk.list(again.folder)) == 2 * len(again._segments.all)


class Crowded(MemoryDisk):
    """A disk with room for so many files."""

    files_max = 1_000

    def open(self, path: str) -> MemoryFile:
        if path not in self.files and len(self.files) >= self.files_max:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().open(path)


def test_retention_frees_a_disk_that_has_no_room_for_another_file() -> None:
    disk = Crowded()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, 60)
    store.flush_index()
    disk.files_max = len(disk.files)
    assert retain_log(log, NOW + 1_000_000, ms=1_000) == 60
    assert (log.min_offset, log.max_offset) == (60, 60)
    fill(log, 1)
    log.check()


def test_retention_drops_whole_old_segments_and_goes_on(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    written = fill(log, 60, step_ms=10)
    size = log.size()
    dropped = retain_log(log, NOW + 1_000, ms=700)
    assert 0 < dropped < 31
    assert log.min_offset == dropped
    assert log.stored_at(log.min_offset - 1 + 16) >= NOW + 300
    assert log.size() < size
    store.close()

    store, recovery = opened(disk)
    again = store.log("orders", 0)
    assert again is not None
    assert recovery.repaired == ()
    assert (again.min_offset, again.max_offset) == (dropped, 60)
    assert [again.entry_at(offset) for offset in range(dropped, 60)] == written[dropped:]

    assert retain_log(again, NOW + 10_000, ms=700) == 60 - dropped
    assert (again.min_offset, again.max_offset, again.size()) == (60, 60, 0)
    assert retain_log(again, NOW + 20_000, ms=700) == 0
    entry = build(again, b"after")
    assert again.append(entry, 0, NOW + 20_000) == 60
    store.close()
    store, _ = opened(disk)
    last = store.log("orders", 0)
    assert last is not None
    assert (last.min_offset, last.max_offset, last.entry_at(60)) == (60, 61, entry)


def test_an_emptied_log_keeps_its_place_over_a_restart(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, 5)
    address = log.next_address
    assert retain_log(log, NOW + 1_000, ms=10) == 5
    store.close()
    store, _ = opened(disk)
    again = store.log("orders", 0)
    assert again is not None
    assert (again.min_offset, again.max_offset, again.next_address) == (5, 5, address)


def test_a_full_disk_changes_nothing_and_heals() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    written = fill(log, 3)
    place = (log.max_offset, log.next_address)
    entry = build(log, b"y" * 200)
    disk.room_bytes = 100
    with pytest.raises(DiskFullError):
        log.append(entry, 0, NOW)
    with pytest.raises(DiskFullError):
        log.append_many([(entry, 0)], NOW)
    assert (log.max_offset, log.next_address) == place
    assert log.read(0, 32, 10_000).data == b"".join(written)
    disk.room_bytes = None
    shorter = build(log, b"z")
    assert log.append(shorter, 0, NOW) == 3
    assert log.entry_at(3) == shorter

    store, recovery = opened(disk.copy())
    again = store.log("orders", 0)
    assert again is not None
    assert recovery.bytes_cut == 0
    assert again.read(0, 32, 10_000).data == b"".join([*written, shorter])


def test_a_full_disk_under_the_index_refuses_the_append() -> None:
    """1 append, 2 the row buffer fills, 3 no room for its rows: the log must not get an entry it cannot index."""
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(index_flush_rows=4))
    log = store.create_log("orders", 0)
    fill(log, 4)
    disk.room_bytes = 10
    with pytest.raises(DiskFullError):
        log.append(build(log), 0, NOW)
    assert log.max_offset == 4
    disk.room_bytes = None
    fill(log, 10)
    assert log.max_offset == 14
    log.check()


def test_a_torn_write_that_cannot_be_undone_at_once_is_undone_before_the_next() -> None:
    """The half-written tail holds a whole entry for an offset that the next, shorter append takes."""

    refusing = False

    class Stubborn(MemoryFile):
        def truncate(self, size: int) -> None:
            if refusing:
                raise OSError(errno.EIO, "input/output error")
            super().truncate(size)

    class StubbornDisk(MemoryDisk):
        def open(self, path: str) -> MemoryFile:
            if path.endswith(".log") and path not in self.files:
                self.files[path] = Stubborn(self)
            return super().open(path)

    disk = StubbornDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    one = build(log, b"1")
    two = build(log, b"2", skip=1, skip_bytes=len(one))
    three = build(log, b"3", skip=2, skip_bytes=len(one) + len(two))
    refusing = True
    disk.room_bytes = len(one) + len(two) + 10
    with pytest.raises(DiskFullError):
        log.append_many([(one, 0), (two, 0), (three, 0)], NOW)
    path = next(path for path in disk.files if path.endswith(".log"))
    assert disk.files[path].size() > len(one) + len(two)
    disk.room_bytes = None
    with pytest.raises(StorageError, match="cannot cut"):
        log.append(one, 0, NOW)
    refusing = False
    log.append(one, 0, NOW)
    store, _ = opened(disk.copy(), StoreConfig())
    again = store.log("orders", 0)
    assert again is not None
    assert again.max_offset == 1


def test_entries_of_a_file_cut_by_somebody_else_are_damaged(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, 3)
    path = next(name for name in disk.list(log.folder) if name.endswith(".log"))
    disk.open(f"{log.folder}/{path}").truncate(150)
    assert log.read(0, 32, 10_000).count == 1
    for offset in (1, 2):
        with pytest.raises(CorruptError):
            log.read(offset, 32, 10_000)
    with pytest.raises(StorageError, match="ends before"):
        log.find_run(1, 10_000, 3).segment.read(100, 100)


def test_a_real_full_disk() -> None:
    """/dev/full answers every write with ENOSPC, where the system has it."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    from steelyard.driver.disk import LiveFile

    class Full(MemoryDisk):
        def open(self, path: str) -> MemoryFile:
            if path.endswith(".log"):
                return LiveFile("/dev/full")  # type: ignore[return-value]  # a File all the same
            return super().open(path)

    store, _ = opened(Full(), SMALL)
    log = store.create_log("orders", 0)
    with pytest.raises(DiskFullError):
        log.append(build(log), 0, NOW)
    assert log.max_offset == 0
