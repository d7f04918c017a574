"""Flipped bits in logs and index rows: found, named, never passed on; and what follows them is read as before."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from steelyard.config import StoreConfig
from steelyard.errors import CorruptError, StorageError
from steelyard.store import batch as batches
from steelyard.store import index, salvage
from steelyard.store.check import CheckFinding, check
from steelyard.store.files import Files
from steelyard.store.index import ROW_BYTES, are_sound, pack_row
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk
from steelyard.store.spans import SPANS_MAX, Spans
from steelyard.store.store import Store
from steelyard.store.verify import LOG, ROWS, TAIL, Stretch, verify_log
from steelyard.wire.remoting.flags import tag_code

from .conftest import NOW, WornDisk, build, build_kafka, opened, retain_log

CONFIG = StoreConfig(segment_bytes=1_500, index_flush_rows=2, retention_ms=0)
EVERYTHING = 1 << 30
TAGS = ("", "TagA", "TagB")


def filled(disk: MemoryDisk) -> list[tuple[int, int, bytes]]:
    """Records and batches in three segments; (first offset, count, entry) of each. Cleanly stopped."""
    store, _ = opened(disk, CONFIG)
    log = store.create_log("orders", 0)
    entries = []
    for number in range(24):
        first = log.max_offset
        if number % 6 in (2, 3, 5):
            count = 1 + number % 3
            entry = build_kafka(log, [b"%d" % number * 5] * count, timestamp=NOW + number)
            log.append_batch(entry, count, NOW + number)
        else:
            tag = TAGS[number % 3]
            entry = build(log, b"%d" % number * 9, tag, now=NOW + number)
            log.append(entry, tag_code(tag) if tag else 0, NOW + number)
        entries.append((first, log.max_offset - first, entry))
    store.close()
    return entries


def the_log(store: Store) -> Log:
    log = store.log("orders", 0)
    assert log is not None
    return log


def read_everything(log: Log) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of each run in the log, read as records and as runs; damage is passed over as a client would."""
    offset = log.min_offset
    while offset < log.max_offset:
        try:
            found = log.read(offset, 5, EVERYTHING)
            if found.count:
                yield offset, found.data
            if found.next_offset == offset:
                run = log.read_run(offset, 300)
                yield run.first_offset, run.data
                offset = run.next_offset
            else:
                offset = found.next_offset
        except CorruptError as error:
            offset = error.next_offset


def flips(disk: MemoryDisk, rng: random.Random, suffix: str) -> tuple[str, int]:
    """Flip one bit somewhere in the files with this suffix: where."""
    paths = sorted(path for path in disk.files if path.endswith(suffix))
    sizes = [len(disk.files[path].data) for path in paths]
    (path,) = rng.choices(paths, sizes)
    position = rng.randrange(len(disk.files[path].data))
    disk.files[path].data[position] ^= 1 << rng.randrange(8)
    return path, position


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("suffix", [".log", ".rows"])
def test_no_flipped_bit_is_served(suffix: str, *, stopped: bool) -> None:
    """At every read: the bytes that were written, or an error; a bad index row costs nothing at all."""
    whole = MemoryDisk()
    entries = filled(whole)
    stream = b"".join(entry for _, _, entry in entries)
    starts = {}
    position = 0
    for first, _, entry in entries:
        starts[first] = position
        position += len(entry)
    if not stopped:
        whole.remove("clean-stop")
    rng = random.Random(3)
    for _ in range(700):
        disk = whole.copy()
        path, at = flips(disk, rng, suffix)
        store, recovery = opened(disk, CONFIG)
        log = the_log(store)
        where = f"{path}, byte {at}: {recovery.repaired}"
        served = 0
        for offset, data in read_everything(log):
            begin = starts[offset]
            assert data == stream[begin : begin + len(data)], where
            served += len(data)
        found = store.findings.take()
        lost = [item for item in found if not item.mended]
        if suffix == ".rows":
            assert served == len(stream), where
            assert not lost, where
            assert found or recovery.repaired, where
        else:
            assert served < len(stream), where
            assert len(lost) == 1, where
            assert {
                (item.path, item.position <= at < item.position + item.size) for item in lost
            } == {(path, True)}
            assert served == len(stream) - lost[0].size
            assert log.max_offset == sum(count for _, count, _ in entries)
        store.check()


def test_a_flipped_tag_code_hides_no_message_from_a_filter() -> None:
    whole = MemoryDisk()
    filled(whole)
    wanted = frozenset((tag_code("TagA"),))

    def tagged(disk: MemoryDisk) -> bytes:
        log = the_log(opened(disk, CONFIG)[0])
        data, offset = b"", 0
        while offset < log.max_offset:
            found = log.read(offset, 3, EVERYTHING, wanted)
            data += found.data
            if found.next_offset == offset:
                offset = log.read_run(offset, 0).next_offset
            else:
                offset = found.next_offset
        return data

    expected = tagged(whole.copy())
    assert expected
    for path in [path for path in whole.files if path.endswith(".rows")]:
        for row in range(len(whole.files[path].data) // ROW_BYTES):
            for byte in (12, 16, 19):
                disk = whole.copy()
                disk.files[path].data[row * ROW_BYTES + byte] ^= 0x40
                assert tagged(disk) == expected


def test_any_single_row_is_proved_by_its_checksum_and_zeros_are_none() -> None:
    row = pack_row(5, 100, 7, 9)
    assert are_sound(row * 3)
    for bit in range(8 * ROW_BYTES):
        bad = bytearray(row)
        bad[bit // 8] ^= 1 << bit % 8
        assert not are_sound(bytes(bad))
        assert not are_sound(row + bytes(bad) + row)
    for count in range(1, 300):
        assert not are_sound(bytes(count * ROW_BYTES))


def test_the_index_is_whole_again_on_the_disk_after_it_was_mended() -> None:
    disk = MemoryDisk()
    filled(disk)
    before = {path: bytes(file.data) for path, file in disk.files.items() if path.endswith(".rows")}
    for path in before:
        disk.files[path].data[0:100:7] = b"?" * 15
    store, _ = opened(disk, CONFIG)
    log = the_log(store)
    assert sum(len(data) for _, data in read_everything(log)) == log.size()
    assert store.findings.mended
    store.close()
    assert {path: bytes(disk.files[path].data) for path in before} == before


def test_an_index_of_zeros_and_one_that_was_cut_under_a_running_store_are_mended() -> None:
    for damage in ("zeros", "cut"):
        disk = MemoryDisk()
        filled(disk)
        store, _ = opened(disk, CONFIG)
        log = the_log(store)
        size = log.size()
        for path, file in disk.files.items():
            if path.endswith(".rows"):
                file.data[:] = bytes(len(file.data)) if damage == "zeros" else file.data[:30]
        assert sum(len(data) for _, data in read_everything(log)) == size


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "killed"])
def test_rows_that_are_damaged_up_to_the_last_on_the_disk_are_made_anew(*, stopped: bool) -> None:
    """The last one by a single bit, others by more: what is behind them in the log has rows in no file after a kill."""
    whole = MemoryDisk()
    entries = filled(whole)
    size = sum(len(entry) for _, _, entry in entries)
    paths = sorted(path for path in whole.files if path.endswith(".rows"))
    rng = random.Random(7)
    for _ in range(200):
        disk = whole.copy()
        if not stopped:
            disk.remove("clean-stop")
        for path in paths:
            data = disk.files[path].data
            if not stopped and path == paths[-1]:
                del data[rng.randrange(1, len(data) // ROW_BYTES) * ROW_BYTES :]
            for begin in range(0, len(data), ROW_BYTES):
                bits = 1 if begin + ROW_BYTES == len(data) else rng.choice((1, 2, 3))
                for bit in rng.sample(range(8 * ROW_BYTES), bits):
                    data[begin + bit // 8] ^= 1 << bit % 8
        store, _ = opened(disk, CONFIG)
        log = the_log(store)
        assert sum(len(data) for _, data in read_everything(log)) == size
        assert all(item.mended for item in store.findings.take())
        store.check()


def test_a_damaged_entry_whose_row_is_damaged_too_is_refused() -> None:
    whole = MemoryDisk()
    entries = filled(whole)
    log_path = next(path for path in whole.files if path.endswith("0-" + "0" * 20 + ".log"))
    rows_path = log_path.removesuffix(".log") + ".rows"
    first, count, _ = entries[1]
    position = len(entries[0][2])
    for byte in range(90):  # properties and times too, which no checksum of the record covers
        disk = whole.copy()
        disk.files[log_path].data[position + byte] ^= 1
        disk.files[rows_path].data[first * ROW_BYTES + 3] ^= 1
        log = the_log(opened(disk, CONFIG)[0])
        assert log.read(0, 9, EVERYTHING).data == entries[0][2]
        with pytest.raises(CorruptError) as raised:
            log.read(first, 9, EVERYTHING)
        assert raised.value.next_offset == first + count
        assert log.entry_at(entries[2][0]) == entries[2][2]
        assert log.entry_at(entries[3][0]) == entries[3][2]


def test_damaged_rows_behind_a_damaged_entry_are_rebuilt() -> None:
    """The entry is looked at to rebuild them, and they are not looked at to tell of the entry."""
    for first in range(1, 8):
        disk = MemoryDisk()
        store, _ = opened(disk, StoreConfig(index_flush_rows=1))
        log = store.create_log("orders", 0)
        written = []
        for number in range(12):
            entry = build(log, b"%d" % number * 9)
            log.append(entry, 0, NOW)
            written.append(entry)
        position = log.address_at(first) & 0xFFFFFFFF
        store.close()
        (log_path,) = (path for path in disk.files if path.endswith(".log"))
        (rows_path,) = (path for path in disk.files if path.endswith(".rows"))
        disk.files[log_path].data[position + 90] ^= 1
        rows = slice((first + 1) * ROW_BYTES, (first + 4) * ROW_BYTES)
        disk.files[rows_path].data[rows] = bytes(3 * ROW_BYTES)
        found = [
            stretch for stretch in verify_log(Files(disk.copy()), log.folder) if stretch.problem
        ]
        assert [(stretch.part, stretch.offset, stretch.count) for stretch in found] == [
            (LOG, first, 1),
            (ROWS, first + 1, 3),
        ]
        log = the_log(opened(disk)[0])
        for offset, entry in enumerate(written):
            if offset == first:
                with pytest.raises(CorruptError):
                    log.entry_at(offset)
            else:
                assert log.entry_at(offset) == entry


def test_a_batch_whose_base_offset_size_or_epoch_flipped_is_not_lent() -> None:
    """The batch's own checksum does not cover these."""
    whole = MemoryDisk()
    entries = filled(whole)
    first, _, entry = entries[2]
    position = len(entries[0][2]) + len(entries[1][2])
    for byte in range(17):
        disk = whole.copy()
        path = min(path for path in disk.files if path.endswith(".log"))
        disk.files[path].data[position + byte] ^= 1
        log = the_log(opened(disk, CONFIG)[0])
        extent = log.find_run(first, 0, log.max_offset)
        assert (extent.size, extent.is_verified()) == (len(entry), False)
        with pytest.raises(CorruptError):
            extent.read()
        assert not extent.is_verified()
    log = the_log(opened(whole, CONFIG)[0])
    extent = log.find_run(first, 0, log.max_offset)
    assert extent.read().data == entry
    assert extent.is_verified()


def test_many_records_that_were_just_written_are_verified_as_well() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(segment_bytes=1_000_000))
    log = store.create_log("orders", 0)
    sizes = []
    for number in range(100):
        entry = build(log, b"%d" % number * 200, now=NOW)
        sizes.append(len(entry))
        log.append(entry, 0, NOW)
    (path,) = (path for path in disk.files if path.endswith(".log"))
    whole = bytes(disk.files[path].data)
    disk.files[path].data[sum(sizes[:20]) + 100] ^= 1
    for tags in (None, frozenset((0,))):
        found = log.read(0, 100, EVERYTHING, tags)
        assert (found.count, found.data) == (20, whole[: sum(sizes[:20])])


def test_what_was_given_up_is_passed_over_by_all_readers() -> None:
    whole = MemoryDisk()
    entries = filled(whole)
    for number in range(len(entries)):
        disk = whole.copy()
        store, _ = opened(disk, CONFIG)
        log = the_log(store)
        first, count, entry = entries[number]
        segment = log.find_run(first, 0, log.max_offset, refuse=False).segment
        at = segment.row(first)[0] - segment.base_position
        disk.files[segment.log_path].data[at + 30] ^= 4
        with pytest.raises(CorruptError):
            log.entry_at(first)
        stored = log.stored_at(first)
        assert log.give_up(first + count - 1) == (first, count)
        for again in (log, the_log(opened(disk, CONFIG)[0])):
            size = sum(len(data) for _, data in read_everything(again))
            assert size == log.size() - len(entry)
            assert again.read(first, 9, EVERYTHING).next_offset > first
            assert again.read_run(first, 0).data == b""
            assert again.read_run(first, 0).next_offset == first + count
            assert again.record_at(first) is None
            assert again.stored_at(first) == stored
            times = again.offset_for_timestamp(NOW)
            assert times is not None
        store.findings.take()


@pytest.mark.parametrize("is_batch", [False, True], ids=["record", "batch"])
def test_a_damaged_last_entry_beside_a_sector_is_not_taken_for_unwritten(*, is_batch: bool) -> None:
    """Its first bytes are zeros in any case: after a kill it is kept and refused, as its row says what it was."""
    for room in range(1, 17):
        disk = MemoryDisk()
        store, _ = opened(disk, StoreConfig(segment_bytes=1 << 20, index_flush_rows=1))
        log = store.create_log("orders", 0)
        log.append(build(log, b"." * (512 - room - len(build(log, b"")))), 0, NOW)
        if is_batch:
            log.append_batch(build_kafka(log, [b"x" * 300]), 1, NOW)
        else:
            log.append(build(log, b"x" * 300, "TagA"), tag_code("TagA"), NOW)
        log.flush_index()
        (path,) = [path for path in disk.files if path.endswith(".log")]
        disk.files[path].data[512 - room + 7 if is_batch else -3] ^= 2
        log = the_log(opened(disk, CONFIG)[0])
        assert log.max_offset == 2
        with pytest.raises(CorruptError):
            log.entry_at(1)


def test_retention_deletes_no_segment_whose_age_is_not_known() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(segment_bytes=1_000, index_flush_rows=1))
    log = store.create_log("orders", 0)
    for _ in range(6):
        log.append(build(log, b"x" * 900), 0, NOW)
    for path in sorted(path for path in disk.files if path.endswith(".log"))[:3]:
        disk.files[path].data[60] ^= 1  # the time, among others
    log = the_log(opened(disk, CONFIG)[0])
    assert retain_log(log, NOW + 1_000, ms=2_000) == 0
    assert retain_log(log, NOW + 3_000, ms=2_000) == 6


def test_an_entry_behind_one_that_was_given_up_is_guarded_in_full() -> None:
    """Also the properties of a record and the base offset of a batch, which its own checksum does not cover."""
    whole = MemoryDisk()
    entries = filled(whole)
    store, _ = opened(whole, CONFIG)
    for number in range(2, len(entries), 3):
        the_log(store).give_up(entries[number][0])
    store.close()
    for number in range(3, len(entries), 3):
        first, _, entry = entries[number]
        for byte in range(0, len(entry), 2):
            disk = whole.copy()
            if byte % 4:
                disk.remove("clean-stop")
            log = the_log(opened(disk, CONFIG)[0])
            segment = log.find_run(first, 0, log.max_offset, refuse=False).segment
            at = segment.row(first)[0] - segment.base_position
            data = disk.files[segment.log_path].data
            data[at + byte] ^= 1
            with pytest.raises(CorruptError):
                log.entry_at(first)
            log = the_log(opened(disk, CONFIG)[0])
            with pytest.raises(CorruptError):
                log.entry_at(first)
            damaged = bytes(data[at : at + len(entry)])
            assert all(damaged not in run for _, run in read_everything(log))


def test_a_hole_that_a_power_cut_left_is_passed_over_and_what_follows_it_is_kept() -> None:
    disk = MemoryDisk()
    entries = filled(disk)
    disk.remove("clean-stop")
    for path in [path for path in disk.files if path.endswith(".rows")]:
        disk.remove(path)
    path = min(path for path in disk.files if path.endswith(".log"))
    position = len(entries[0][2])
    disk.files[path].data[position : position + len(entries[1][2])] = bytes(len(entries[1][2]))
    store, recovery = opened(disk, CONFIG)
    log = the_log(store)
    assert recovery.bytes_cut == 0
    assert log.max_offset == sum(count for _, count, _ in entries)
    assert log.read(1, 9, EVERYTHING).next_offset == 2
    (found,) = store.findings.take()
    assert (found.offset, found.count, found.mended) == (1, 1, False)


def test_a_damaged_last_entry_is_cut_after_a_kill_only_where_nothing_describes_it() -> None:
    whole = MemoryDisk()
    entries = filled(whole)
    end = sum(count for _, count, _ in entries)
    last = max(path for path in whole.files if path.endswith(".log"))
    for rows, stopped, kept in (
        (True, True, True),
        (True, False, True),
        (False, True, True),
        (False, False, False),
    ):
        disk = whole.copy()
        disk.files[last].data[-20] ^= 1
        if not stopped:
            disk.remove("clean-stop")
        if not rows:
            disk.remove(last.removesuffix(".log") + ".rows")
        store, recovery = opened(disk, CONFIG)
        assert (the_log(store).max_offset == end) == kept
        assert bool(recovery.bytes_cut) == (not kept)
        if kept:
            with pytest.raises(CorruptError):
                the_log(store).entry_at(end - 1)


# -- verify ----------------------------------------------------------------------------------------


def verified(disk: MemoryDisk) -> list[Stretch]:
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    found = list(verify_log(Files(disk), "logs/orders/0-1"))
    assert {path: bytes(file.data) for path, file in disk.files.items()} == before
    return found


def test_a_sound_log_is_verified_in_full() -> None:
    disk = MemoryDisk()
    entries = filled(disk)
    found = verified(disk)
    assert not any(item.problem for item in found)
    assert sum(item.size for item in found) == sum(len(entry) for _, _, entry in entries)
    assert sum(item.count for item in found) == sum(count for _, count, _ in entries)


def test_each_flipped_bit_is_named_and_nothing_is_changed() -> None:
    whole = MemoryDisk()
    filled(whole)
    rng = random.Random(5)
    for _ in range(150):
        for suffix, part in ((".log", LOG), (".rows", ROWS)):
            disk = whole.copy()
            path, at = flips(disk, rng, suffix)
            bad = [item for item in verified(disk) if item.problem]
            if not bad:  # the last row: it is made anew at every start, and is not looked at before
                assert suffix == ".rows"
                continue
            assert [item.part for item in bad] == [part]
            assert bad[0].path == path
            assert bad[0].position <= at < bad[0].position + bad[0].size


def test_a_torn_tail_is_named() -> None:
    disk = MemoryDisk()
    filled(disk)
    last = max(path for path in disk.files if path.endswith(".log"))
    del disk.files[last].data[-20:]
    (bad,) = [item for item in verified(disk) if item.problem]
    assert bad.part == TAIL


# -- spans -----------------------------------------------------------------------------------------


def test_spans_are_sets_of_positions() -> None:
    rng = random.Random(1)
    spans, model = Spans(), set[int]()
    for _ in range(3_000):
        begin = rng.randrange(100)
        end = begin + 1 + rng.randrange(10)
        if rng.random() < 0.5:
            spans.add(begin, end)
            model |= set(range(begin, end))
        else:
            spans.remove(begin, end)
            model -= set(range(begin, end))
        begin = rng.randrange(100)
        end = begin + 1 + rng.randrange(20)
        assert spans.covers(begin, end) == (set(range(begin, end)) <= model)


def test_of_too_many_spans_the_shortest_is_forgotten() -> None:
    spans = Spans()
    for number in range(SPANS_MAX):
        spans.add(100 * number, 100 * number + 50)
    spans.add(90, 91)
    assert not spans.covers(90, 91)
    assert spans.covers(0, 50)
    assert spans.covers(100 * SPANS_MAX - 100, 100 * SPANS_MAX - 50)
    assert index.DAMAGED != batches.KIND != index.GIVEN_UP


@pytest.mark.parametrize("batches", [False, True])
def test_what_the_disk_cannot_read_is_found_and_given_up_like_other_damage(batches: bool) -> None:
    disk = WornDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    written = []
    for number in range(60):
        if batches:
            entry = build_kafka(log, [b"%d" % number * 9])
            log.append_batch(entry, 1, NOW)
        else:
            entry = build(log, b"%d" % number * 9)
            log.append(entry, 0, NOW)
        written.append(entry)
    segment = log._segments.at_offset(17)
    disk.wear(segment.log_path, segment.row(17)[0] - segment.base_position + 70)
    store.close()
    store, _ = opened(disk)
    log = the_log(store)

    def read(offset: int) -> tuple[bytes, int]:
        if batches:
            run = log.read_run(offset, EVERYTHING)
            return run.data, run.next_offset
        tagged, found = (
            log.read(offset, 32, EVERYTHING, frozenset((0,))),
            log.read(offset, 32, EVERYTHING),
        )
        assert tagged.data == written[offset] or tagged.data == found.data
        return found.data, found.next_offset

    offset = segment.base_offset
    while offset < 17:
        data, next_offset = read(offset)
        assert next_offset > offset
        assert data == b"".join(written[offset:next_offset])
        offset = next_offset
    assert offset == 17
    with pytest.raises(StorageError, match="Input/output error"):
        read(17)
    assert read(18)[0].startswith(written[18])
    store.close()
    findings = [item for item in check(Files(disk)) if isinstance(item, CheckFinding)]
    assert [(item.severity, item.offset, item.count) for item in findings] == [("damage", 17, 1)]
    deeds = list(salvage.repair(Files(disk), findings, "1", NOW))
    assert [deed.lost for deed in deeds if deed.lost] == ["offset 17 of queue 0 of topic 'orders'"]
    assert not [item for item in check(Files(disk)) if isinstance(item, CheckFinding)]
    log = the_log(opened(disk)[0])
    assert b"".join(data for _, data in read_everything(log)) == b"".join(
        written[:17] + written[18:]
    )


def test_a_log_that_the_disk_cannot_read_hides_no_damage_of_others() -> None:
    disk = WornDisk()
    store, _ = opened(disk)
    for name in ("a", "b", "c"):
        log = store.create_log(name, 0)
        for number in range(3):
            log.append(build(log, b"%d" % number * 9), 0, NOW)
    store.close()
    first, second, _ = sorted(path for path in disk.files if path.endswith(".log"))
    disk.wear(first, *range(disk.files[first].size()))
    disk.files[second].data[90] ^= 1
    findings = [item for item in check(Files(disk)) if isinstance(item, CheckFinding)]
    assert {(item.severity, item.path.split("/")[1]) for item in findings} == {
        ("damage", "a"),
        ("damage", "b"),
    }
