"""Segments that were compacted: what readers find, and that a kill at any point leaves the old ones or the new one."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.store.conftest import NOW, SMALL, build, build_kafka, opened

from steelyard.config import StoreConfig
from steelyard.errors import CorruptError
from steelyard.store import index
from steelyard.store.batch import row_tag
from steelyard.store.check import CheckFinding, check
from steelyard.store.cleaned import CleanedSegment
from steelyard.store.cleaning import Cleaning, in_groups, read_entries
from steelyard.store.disk import Disk
from steelyard.store.entry import BATCHES, RECORDS
from steelyard.store.files import Files
from steelyard.store.index import pack_row
from steelyard.store.log import Log
from steelyard.store.memory import Killed, MemoryDisk, MemoryFile
from steelyard.store.runs import RUN_BYTES, EntryRun, pack_run, unpack_run
from steelyard.store.segment_names import SegmentName, named, segments_among
from steelyard.store.store import Store
from steelyard.wire.kafka.records import Record, write_batch

COUNT = 90
KEPT = frozenset(range(0, COUNT, 7)) | {11, 12, 13, 40, 41}


def fill(log: Log, *, batches: bool) -> None:
    """Entries with their offsets as bodies: messages, or batches of one record."""
    for number in range(COUNT):
        if batches:
            log.append_batch(build_kafka(log, [b"%d" % number]), 1, NOW + number)
        else:
            log.append(build(log, b"%d" % number, now=NOW + number), 0, NOW + number)


def clean(log: Log, keeps: Callable[[int], bool] = KEPT.__contains__) -> Cleaning:
    """Write what is kept of all closed segments aside."""
    cleaning = log.clean(log.closed())
    for segment in log.closed():
        offset = segment.base_offset
        while offset < segment.end[1]:
            found, offset = read_entries(segment, offset, 500)
            for run, data in found:
                if keeps(run.first):
                    cleaning.add(run, data)
    cleaning.write()
    return cleaning


def offsets(log: Log, start: int | None = None) -> list[int]:
    """The offsets of the entries that a reader gets, each verified."""
    found: list[int] = []
    offset = log.min_offset if start is None else start
    while offset < log.max_offset:
        run = log.read_run(offset, 300)
        assert run.next_offset > offset
        at = 0
        while at < len(run.data):
            size = (
                int.from_bytes(run.data[at : at + 4], "big")
                if run.kind == RECORDS
                else 12 + int.from_bytes(run.data[at + 8 : at + 12], "big")
            )
            where = at + 20 if run.kind == RECORDS else at
            found.append(int.from_bytes(run.data[where : where + 8], "big"))
            at += size
        offset = run.next_offset
    return found


def reopened(disk: Disk) -> tuple[Store, Log]:
    store, _ = opened(disk)
    log = store.log("orders", 0)
    assert log is not None
    log.check()
    return store, log


def left(log: Log, closed: int) -> list[int]:
    return [each for each in range(COUNT) if each in KEPT or each >= closed]


@pytest.fixture(params=[False, True], ids=["messages", "batches"])
def batches(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


def test_readers_find_what_is_left_at_its_offsets(disk: Disk, batches: bool) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    closed = log.closed()[-1].end[1]
    addresses = {offset: log.address_at(offset) for offset in range(COUNT)}
    cleaning = clean(log)
    assert offsets(log) == list(range(COUNT))
    cleaning.swap()
    log.remove_replaced()
    log.check()
    for _ in range(2):
        expected = left(log, closed)
        assert offsets(log) == expected
        for start in range(COUNT):
            assert offsets(log, start) == [each for each in expected if each >= start]
        for offset in range(COUNT):
            if offset in expected and not batches:
                entry = log.record_at(offset)
                assert entry is not None
                assert log.at_address(addresses[offset]) == entry
                assert log.stored_at(offset) == NOW + offset
            elif not batches:
                assert log.record_at(offset) is None
                assert log.at_address(addresses[offset]) is None
        assert log.offset_for_timestamp(NOW + 15 if not batches else NOW) is not None
        store.close()
        store, log = reopened(disk)


@pytest.mark.parametrize("operations", range(40))
def test_a_kill_between_two_changes_of_the_folder(operations: int, batches: bool) -> None:
    class Counting(MemoryDisk):
        left = 1 << 30

        def _spend(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed

        def rename(self, old: str, new: str) -> None:
            self._spend()
            super().rename(old, new)

        def remove(self, path: str) -> None:
            self._spend()
            super().remove(path)

    disk = Counting()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    closed = log.closed()[-1].end[1]
    cleaning = clean(log)
    store.take_dirty().sync()
    disk.left = operations
    swapped = False
    try:
        cleaning.swap()
        swapped = True
        store.take_dirty().sync()
        log.remove_replaced()
    except Killed:
        pass
    after = disk.copy()
    for _ in range(2):
        store, log = reopened(after)
        assert offsets(log) == (left(log, closed) if swapped else list(range(COUNT)))
        names = after.list(log.folder)
        assert not [name for name in names if name.endswith(".cleaning")]
        assert len(segments_among(names)) == sum(name.endswith(".log") for name in names)
        store.close()
        assert not [item for item in check(Files(after)) if isinstance(item, CheckFinding)]


@pytest.mark.parametrize("seed", range(12))
def test_a_kill_inside_a_write_and_a_power_cut_leave_the_old_ones(seed: int, batches: bool) -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    store.flush()
    rng = Random(seed)
    disk.kill_after_bytes = rng.randrange(2_000)

    def clean_twice() -> None:
        clean(log)
        clean(log)

    with pytest.raises(Killed):
        clean_twice()
    after = disk.copy().lose_power(rng)
    store, log = reopened(after)
    assert offsets(log) == list(range(COUNT))
    assert not [name for name in after.list(log.folder) if name.endswith(".cleaning")]


def cleaned_log(batches: bool) -> tuple[MemoryDisk, Log, CleanedSegment]:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    cleaning = clean(log)
    cleaning.swap()
    log.remove_replaced()
    store.close()
    _, log = reopened(disk)
    (segment,) = log.closed()
    assert isinstance(segment, CleanedSegment)
    return disk, log, segment


@pytest.mark.parametrize("number", [0, 1, 5, -1])
def test_a_damaged_run_is_made_anew(number: int, batches: bool) -> None:
    disk, log, segment = cleaned_log(batches)
    expected = offsets(log)
    data = disk.files[segment.index_path].data
    number %= segment.runs.count
    before = bytes(data)
    for byte in range(0, RUN_BYTES, 9):
        data[number * RUN_BYTES + byte] ^= 0x10
        _, log = reopened(disk.copy())
        assert offsets(log) == expected
        data[:] = before


def test_an_index_that_is_missing_is_made_anew(batches: bool) -> None:
    disk, log, segment = cleaned_log(batches)
    expected = offsets(log)
    places = [run.place[:2] for run in segment.runs.following(0)]
    for size in (0, RUN_BYTES, 5 * RUN_BYTES + 3):
        copy = disk.copy()
        copy.files[segment.index_path].truncate(size)
        _, log = reopened(copy)
        assert offsets(log) == expected
        found = log.closed()[0]
        assert isinstance(found, CleanedSegment)
        assert [run.place[:2] for run in found.runs.following(0)] == places
        assert offsets(log, 12) == [each for each in expected if each >= 12]


def test_damage_in_what_is_left_is_refused_and_can_be_given_up(batches: bool) -> None:
    disk, log, segment = cleaned_log(batches)
    expected = offsets(log)
    position = segment.row(40)[0] - segment.base_position
    disk.files[segment.log_path].data[position + 65] ^= 1
    _, log = reopened(disk)
    with pytest.raises(CorruptError) as refused:
        log.read_run(40, 100)
    assert refused.value.next_offset == 41
    (finding,) = [item for item in check(Files(disk.copy())) if isinstance(item, CheckFinding)]
    assert (finding.offset, finding.count) == (40, 1)
    assert log.give_up(40) == (40, 1)
    assert offsets(log) == [each for each in expected if each != 40]


def test_damage_ends_a_run_that_goes_on_across_gaps(batches: bool) -> None:
    disk, _, segment = cleaned_log(batches)
    position = segment.row(40)[0] - segment.base_position
    disk.files[segment.log_path].data[position + 65] ^= 1
    _, log = reopened(disk)
    for offset in (0, 28):
        run = log.find_run(offset, 1 << 20, log.max_offset, across_gaps=(RECORDS, BATCHES)).read()
        assert (run.first_offset, run.next_offset) == (offset, 40)
        assert len(run.data) == segment.row(40)[0] - segment.row(offset)[0]
    with pytest.raises(CorruptError) as refused:
        log.find_run(40, 1 << 20, log.max_offset, across_gaps=(RECORDS, BATCHES)).read()
    assert refused.value.next_offset == 41


@pytest.mark.parametrize("has_rows", [True, False])
def test_damage_in_the_log_and_its_index_costs_the_damaged_entry_only(
    batches: bool, has_rows: bool
) -> None:
    """One row is damaged, or all are gone: rows are made anew around what cannot be proved."""
    disk, log, segment = cleaned_log(batches)
    expected = offsets(log)
    number = segment.runs.find(40)
    covered = 65 if batches else 88  # by a checksum of its own: records, a message's body
    disk.files[segment.log_path].data[segment.row(40)[0] - segment.base_position + covered] ^= 1
    if has_rows:
        disk.files[segment.index_path].data[number * RUN_BYTES + 9] ^= 1
    else:
        disk.files[segment.index_path].truncate(0)
    _, log = reopened(disk)
    for _ in range(2):
        assert offsets(log, 41) == [each for each in expected if each > 40]
        with pytest.raises(CorruptError) as refused:
            log.read_run(40, 100)
        assert refused.value.next_offset == 41
        assert log.read_run(35, 1).first_offset == 35
        _, log = reopened(disk)  # what was made anew is on the disk
    assert log.give_up(40) in ((36, 5), (40, 1))  # nobody knows where the entry began
    assert offsets(log) == [each for each in expected if each != 40]


def scattered_log(batches: bool) -> tuple[Disk, Log, CleanedSegment]:
    """Every other one of 3,000 entries was removed."""
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(segment_bytes=1 << 20, retention_ms=0))
    log = store.create_log("orders", 0)
    while not log.closed():
        if batches:
            log.append_batch(build_kafka(log, [b"x" * 250]), 1, NOW)
        else:
            log.append(build(log, b"x" * 250, now=NOW), 0, NOW)
    clean(log, lambda offset: offset % 2 == 0).swap()
    log.remove_replaced()
    (segment,) = log.closed()
    assert isinstance(segment, CleanedSegment)
    assert segment.runs.count > 1_000
    return disk, log, segment


def test_what_is_left_is_read_without_a_look_at_what_is_gone(
    batches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By compaction in a few pieces; by readers in many, of which each reads little of the index."""
    _, log, segment = scattered_log(batches)
    read, sizes = MemoryFile.read, []

    def counted(file: MemoryFile, position: int, size: int) -> bytes:
        data = read(file, position, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(MemoryFile, "read", counted)
    entries, offset, pieces = [], 0, 0
    while offset < segment.end[1]:
        found, offset = read_entries(segment, offset, 64 * 1024)
        entries += [run.first for run, _ in found]
        pieces += 1
    assert entries == list(range(0, segment.end[1], 2))
    assert pieces < 20
    size = segment.size + segment.runs.count * RUN_BYTES
    assert sum(sizes) < 5 * size
    sizes.clear()
    assert offsets(log)[: len(entries)] == entries
    assert sum(sizes) < len(entries) * 10_000


def test_segments_are_cleaned_again_together(batches: bool) -> None:
    disk, log, segment = cleaned_log(batches)
    assert segment.name.round == 1
    for number in range(30):
        log.append_batch(build_kafka(log, [b"%d" % number]), 1, NOW + 1_000)
    cleaning = clean(log, lambda offset: offset in (14, 41, 100))
    cleaning.swap()
    log.remove_replaced()
    first = log.closed()[0]
    assert (first.name.round, first.base_offset) == (2, 0)
    assert offsets(log)[:2] == [14, 41]
    _, log = reopened(disk.copy())
    assert offsets(log)[:2] == [14, 41]


def test_nothing_may_be_left(batches: bool) -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    end = log.closed()[-1].end[1]
    clean(log, lambda offset: False).swap()
    log.remove_replaced()
    for _ in range(2):
        assert offsets(log) == list(range(end, COUNT))
        assert log.closed()[0].size == 0
        store.close()
        store, log = reopened(disk)


def test_a_batch_keeps_its_offsets_when_it_loses_records() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    while len(log.closed()) < 2:
        log.append_batch(build_kafka(log, [b"a", b"b", b"c"]), 3, NOW)
    cleaning = log.clean(log.closed())
    (run, _), *_ = read_entries(log.closed()[0], 0, 100)[0]
    rest = write_batch([Record(1, NOW, None, b"b")], base_offset=0)
    sparse = bytearray(rest)
    sparse[23:27] = (2).to_bytes(4, "big")  # the offset of the last record
    from crc32c import crc32c

    sparse[17:21] = crc32c(bytes(sparse[21:])).to_bytes(4, "big")
    cleaning.add(run, bytes(sparse))
    cleaning.write()
    cleaning.swap()
    for _ in range(2):
        assert [log.entry_end(offset) for offset in (0, 1, 2)] == [3, 3, 3]
        assert log.entry_at(2) == bytes(sparse)
        assert log.read_run(1, 1).first_offset == 0
        store.close()
        store, log = reopened(disk)
        for segment in log.closed()[:1]:
            disk.files[segment.index_path].truncate(0)
        store, log = reopened(disk)


def test_names_of_segments() -> None:
    raw, cleaned = SegmentName(7, 3), SegmentName(0, 0, 9, 2)
    for name in (raw, cleaned):
        assert named(f"{name}.log", ".log") == name
        assert named(f"{name}.rows", ".log") is None
    assert named("README", ".log") is None
    assert named("1-2-3.log", ".log") is None
    assert cleaned.replaces(raw)
    assert cleaned.replaces(SegmentName(0, 0, 3, 1))
    assert not cleaned.replaces(SegmentName(90, 9))
    assert not cleaned.replaces(cleaned)
    files = [f"{raw}.log", f"{cleaned}.log", f"{SegmentName(90, 9)}.log", "x.log"]
    assert segments_among(files) == [cleaned, SegmentName(90, 9)]


def test_runs_are_checked() -> None:
    run = EntryRun(5, 2, 100, pack_row(1, 2, row_tag(3), 4))
    packed = pack_run(run)
    assert len(packed) == RUN_BYTES
    assert unpack_run(packed) == run
    assert (run.stop, run.place) == (7, (1, 2, row_tag(3), 4))
    for at in range(RUN_BYTES):
        assert unpack_run(packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]) is None
    assert unpack_run(packed[:-1]) is None


def test_small_segments_are_cleaned_together() -> None:
    store, _ = opened(MemoryDisk(), SMALL)
    log = store.create_log("orders", 0)
    fill(log, batches=False)
    segments = log.closed()
    for bytes_max in (1, 2_000, 5_000, 1_000_000):
        groups = list(in_groups(segments, bytes_max))
        assert [each for group in groups for each in group] == segments
        assert all(len(g) == 1 or sum(s.size for s in g) <= bytes_max for g in groups)
    assert len(list(in_groups(segments, 1_000_000))) == 1


def test_a_removed_row_is_no_damage() -> None:
    tag = index.hole_tag(index.REMOVED, 5)
    assert index.is_removed(tag)
    assert index.is_hole(tag)
    assert not index.tells_no_link(tag, 0)


def test_what_is_missing_of_a_cleaned_segment_is_refused(batches: bool) -> None:
    """An index made anew would say that compaction had removed it."""
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    cleaning = clean(log)
    store.flush()
    cleaning.swap()
    log.remove_replaced()
    store.close()
    (path,) = (path for path in disk.files if path.endswith("-1.log"))
    disk.files[path].truncate(disk.files[path].size() - 1)
    assert [item.severity for item in check(Files(disk)) if isinstance(item, CheckFinding)] == [
        "damage"
    ]
    store, log = reopened(disk)
    last = max(offset for offset in KEPT if offset < log._segments.all[0].end[1])
    with pytest.raises(CorruptError):
        log.entry_at(last)
    log.give_up(last)
    assert offsets(log) == [
        offset for offset in left(log, log._segments.all[0].end[1]) if offset != last
    ]


@pytest.mark.parametrize("garbage", ["zeros", "an entry", "anything"])
def test_what_stands_behind_a_cleaned_segment_costs_no_entry(garbage: str, batches: bool) -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    last = log.entry_at(COUNT - 1)
    cleaning = clean(log)
    store.flush()
    cleaning.swap()
    log.remove_replaced()
    at = offsets(log)
    expected = [log.entry_at(offset) for offset in at]
    store.close()
    (path,) = (path for path in disk.files if path.endswith("-1.log"))
    disk.files[path].data += {
        "zeros": bytes(600),
        "an entry": last,
        "anything": Random(1).randbytes(99),
    }[garbage]
    for _ in range(2):
        list(check(Files(disk)))
        store, log = reopened(disk)
        assert [log.entry_at(offset) for offset in at] == expected
        store.check()


def test_a_missing_segment_after_a_cleaned_one_costs_no_other(batches: bool) -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    fill(log, batches=batches)
    closed = log.closed()
    cleaning = log.clean(closed[:2])
    cleaning.write()
    store.flush()
    cleaning.swap()
    log.remove_replaced()
    store.close()
    missing = closed[2]
    disk.remove(missing.log_path)
    for _ in range(2):
        store, log = reopened(disk)
        store.check()
        assert log.max_offset == COUNT
        assert offsets(log, missing.end[1]) == list(range(missing.end[1], COUNT))
        for offset in range(missing.base_offset, missing.end[1]):
            with pytest.raises(CorruptError):
                log.entry_at(offset)
        store.close()
        disk = disk.copy()
