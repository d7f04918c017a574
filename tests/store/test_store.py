"""The store as a whole: ids, deletion, names, formats, opening, and what is synced."""

from __future__ import annotations

import errno
import struct
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.store.conftest import NOW, build, build_batch, build_kafka, opened, retain_log

from steelyard.config import StoreConfig
from steelyard.driver.disk import LiveDisk
from steelyard.errors import CorruptError, DiskFullError, StorageError
from steelyard.store.check import DAMAGE, CheckFinding, check
from steelyard.store.disk import Disk
from steelyard.store.files import OPEN_FILES_MAX, Files
from steelyard.store.index import ROW_BYTES
from steelyard.store.log import Log
from steelyard.store.log_config import LogConfig
from steelyard.store.memory import MemoryDisk, MemoryFile
from steelyard.store.recovery import LogRecovery, Recovery, TableRecovery
from steelyard.store.store import (
    BUFFERED_ROWS_MAX,
    NAME_BYTES_MAX,
    Store,
    file_name,
)
from steelyard.wire.remoting.flags import tag_code


def put(log: Log, body: bytes = b"body", tags: str = "", now: int = NOW) -> bytes:
    entry = build(log, body, tags, now)
    log.append(entry, tag_code(tags) if tags else 0, now)
    return entry


def found(store: Store, topic: str, queue_id: int) -> Log:
    log = store.log(topic, queue_id)
    assert log is not None
    return log


def sizes(disk: MemoryDisk, suffix: str) -> dict[str, int]:
    return {path: file.size() for path, file in disk.files.items() if path.endswith(suffix)}


def test_logs_by_topic_and_queue(disk: Disk) -> None:
    store, recovery = opened(disk)
    assert recovery == Recovery()
    one = store.create_log("orders", 1)
    zero = store.create_log("orders", 0)
    other = store.create_log("bills", 0)
    assert store.create_log("orders", 1) is one
    assert store.log("orders", 1) is one
    assert store.log("orders", 2) is None
    assert store.log("nothing", 0) is None
    assert store.logs("orders") == [zero, one]
    assert store.logs("nothing") == []
    assert store.topics() == ["bills", "orders"]
    assert len({log.log_id for log in (zero, one, other)}) == 3
    assert store.create_logs("orders", (2, 0)) == [found(store, "orders", 2), zero]
    store.check()


def test_ids_and_addresses_are_stable(disk: Disk) -> None:
    store, _ = opened(disk)
    ids = {queue: store.create_log("orders", queue).log_id for queue in range(3)}
    address = found(store, "orders", 1).next_address
    entry = put(found(store, "orders", 1))
    store.close()
    store, recovery = opened(disk)
    assert {log.queue_id: log.log_id for log in store.logs("orders")} == ids
    assert (recovery.logs, recovery.entries, recovery.repaired) == (3, 1, ())
    assert store.at_address(address) == entry


def test_a_deleted_topic_frees_its_files_and_not_its_ids(disk: Disk) -> None:
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    store.create_log("bills", 0)
    address = log.next_address
    put(log)
    assert store.at_address(address) is not None
    store.delete_topic("orders")
    store.delete_topic("never there")
    assert store.at_address(address) is None
    assert store.log("orders", 0) is None
    assert disk.list("logs") == []
    assert (log.read(0, 32, 1_000).count, log.min_offset, log.max_offset) == (0, 1, 1)
    again = store.create_log("orders", 0)
    assert again.log_id > 2
    assert (again.min_offset, again.max_offset) == (0, 0)
    store.delete_topic("orders")
    store.close()
    store, recovery = opened(disk)
    assert store.topics() == ["bills"]
    assert recovery.unknown == ()
    assert store.create_log("orders", 0).log_id > again.log_id


def test_a_topic_is_deleted_where_the_disk_is_full() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    for queue in range(2):
        put(store.create_log("orders", queue))
    disk.room_bytes = 10
    store.delete_topic("orders")
    assert store.topics() == []
    store, recovery = opened(disk)
    assert store.topics() == []
    assert recovery.unknown == ()
    assert disk.list("logs") == []


def test_a_topic_that_cannot_be_deleted_stays_what_it_was() -> None:
    """Without messages its files make no room for what is to be noted."""
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    disk.room_bytes = 10
    for _ in range(2):
        with pytest.raises(DiskFullError):
            store.delete_topic("orders")
        assert store.log("orders", 0) is log
    disk.room_bytes = None
    put(log)
    store.delete_topic("orders")
    store, _ = opened(disk)
    assert store.topics() == []


class Refusing(MemoryDisk):
    """Tables take half of a write, and cannot be cut afterwards, while the disk is `broken`."""

    broken = False

    def open(self, path: str) -> MemoryFile:
        if path not in self.files:
            super().open(path)
            self.files[path] = RefusingFile(self)
        return self.files[path]


class RefusingFile(MemoryFile):
    def write(self, position: int, data: bytes) -> None:
        broken = isinstance(self._disk, Refusing) and self._disk.broken
        super().write(position, data[:-1] if broken else data)
        if broken:
            raise OSError(errno.EIO, "no")

    def truncate(self, size: int) -> None:
        if isinstance(self._disk, Refusing) and self._disk.broken:
            raise OSError(errno.EIO, "no")
        super().truncate(size)


@pytest.mark.parametrize("flush", [False, True])
def test_a_deletion_that_the_disk_refused_is_not_completed_later(flush: bool) -> None:
    """Part of its write stays in the file until the disk can cut it, which is tried with every write and flush."""
    disk = Refusing()
    store, _ = opened(disk)
    for queue_id in range(3):
        put(store.create_log("orders", queue_id))
    store.take_dirty().sync()
    disk.broken = True
    with pytest.raises(StorageError):
        store.delete_topic("orders")
    assert store.dirty()
    store.take_dirty().sync()
    disk.broken = False
    assert store.dirty()
    if flush:
        store.take_dirty().sync()
        assert not store.dirty()
        assert [log.max_offset for log in opened(disk.copy())[0].logs("orders")] == [1, 1, 1]
    written = put(found(store, "orders", 0))
    store, _ = opened(disk.copy())
    assert found(store, "orders", 0).entry_at(1) == written
    assert [log.max_offset for log in store.logs("orders")] == [2, 1, 1]


def test_a_kill_while_a_topic_is_deleted_is_made_good_at_the_next_start() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    for queue in range(2):
        put(store.create_log("orders", queue))

    class Refusing(MemoryDisk):
        def remove(self, path: str) -> None:
            raise OSError(5, "input/output error")

    refusing = Refusing()
    refusing.files, refusing.folders = disk.files, disk.folders
    store, _ = opened(refusing)
    with pytest.raises(StorageError, match="cannot remove"):
        store.delete_topic("orders")
    assert disk.list("logs") == ["orders"]
    store, recovery = opened(disk)
    assert store.topics() == []
    assert recovery.unknown == ()
    assert disk.list("logs") == []


def test_a_log_that_no_table_knows_is_left_alone_and_its_id_not_given_out() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    for queue in range(3):
        put(store.create_log("orders", queue))
    before = sizes(disk, ".log")
    disk.files["tables/logs.table"].truncate(0)
    store, recovery = opened(disk)
    assert recovery.unknown == ("logs/orders/0-1", "logs/orders/1-2", "logs/orders/2-3")
    assert store.create_log("orders", 0).log_id == 4
    assert sizes(disk, ".log") == before


def test_a_torn_tail_is_cut_and_reported(disk: Disk) -> None:
    store, _ = opened(disk, StoreConfig(index_flush_rows=4))
    log = store.create_log("orders", 7)
    written = [put(log, b"%d" % number, "TagA") for number in range(6)]
    store.flush_index()
    path = next(name for name in disk.list(log.folder) if name.endswith(".log"))
    file = disk.open(f"{log.folder}/{path}")
    file.write(file.size(), build(log, b"torn")[:-1])
    store, recovery = opened(disk)
    assert recovery == Recovery(
        1,
        6,
        (LogRecovery("orders", 7, 6, bytes_cut=len(build(log, b"torn")) - 1),),
        (TableRecovery("logs", 2),),
    )
    assert str(recovery) == (
        "data directory opened (queues: 1, entries: 6, queues repaired after an unclean stop: 1)"
    )
    log = found(store, "orders", 7)
    assert log.read(0, 32, 100_000).data == b"".join(written)
    written.append(put(log, b"after", "TagA"))
    assert log.read(0, 32, 100_000, frozenset((tag_code("TagA"),))).data == b"".join(written)


def test_rows_made_anew_are_those_that_were_lost() -> None:
    """Bodies, IPv6 hosts, long topics, tags that are not ASCII: the log alone gives the whole index."""
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    for topic in ("orders", "t" * 200):
        log = store.create_log(topic, 0)
        for number, tag in enumerate(("", "TagA", "größe", "🚀", "a b", "x" * 300)):
            entry = build(log, b"b" * number * 70, tag, ipv6=number % 2 == 1)
            log.append(entry, tag_code(tag) if tag else 0, NOW)
    killed = disk.copy()
    store.flush()
    again, recovery = opened(killed, StoreConfig())
    assert [(report.entries, report.rows_made) for report in recovery.repaired] == [(6, 6)] * 2
    again.flush()
    rows = {path: bytes(file.data) for path, file in disk.files.items() if path.endswith("rows")}
    assert rows == {path: bytes(killed.files[path].data) for path in rows}
    assert [len(row) for row in rows.values()] == [6 * ROW_BYTES] * 2


def test_rows_that_point_past_the_log_are_cut() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    written = [put(log, b"%d" % number) for number in range(10)]
    store.flush()
    path = next(iter(sizes(disk, ".log")))
    disk.files[path].truncate(len(b"".join(written[:4])) + 50)
    store, recovery = opened(disk, StoreConfig())
    assert recovery.repaired == (LogRecovery("orders", 0, 4, rows_cut=6, bytes_cut=50),)
    assert found(store, "orders", 0).read(0, 32, 100_000).data == b"".join(written[:4])


@pytest.mark.parametrize("place", range(0, 120, 7))
def test_a_flipped_bit_where_the_index_was_lost_is_found_unless_nothing_guards_it(
    place: int,
) -> None:
    """The index was lost. Sizes, magic, offset, address and body are guarded; flags, times and hosts are not."""
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    for _ in range(3):
        put(log, b"b" * 40, "Tag")
    path = next(iter(sizes(disk, ".log")))
    size = log.size() // 3
    disk.files[path].data[size + place] ^= 1
    store, _ = opened(disk, StoreConfig())
    log = found(store, "orders", 0)
    assert log.max_offset == 3
    assert log.read(2, 1, 10_000).count == 1
    if place in {*range(12, 20), *range(36, 84)}:
        assert log.read(0, 9, 10_000).count == 3
    else:
        assert log.read(0, 9, 10_000).count == 1
        with pytest.raises(CorruptError):
            log.read(1, 9, 10_000)


def readable(log: Log) -> dict[int, bytes]:
    """The entries of a log that can be read, by offset."""
    found = {}
    for offset in range(log.min_offset, log.max_offset):
        with suppress(CorruptError):
            found[offset] = log.entry_at(offset)
    return found


def filled_log(disk: MemoryDisk) -> tuple[Store, Log, dict[int, bytes], list[str]]:
    """Five segments of ten entries, which are on the disk, and the paths of the segments."""
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    written = {number: put(log, b"b" * 100) for number in range(50)}
    store.flush()
    return store, log, written, sorted(sizes(disk, ".log"))


def cut(disk: MemoryDisk, path: str, size: int) -> None:
    """Leave so many bytes of a file; from its end if negative, none of the file with -1,000."""
    if size == -1_000:
        disk.remove(path)
    else:
        disk.files[path].truncate(size if size >= 0 else disk.files[path].size() + size)


@pytest.mark.parametrize(
    ("size", "first_lost"),
    [(-1, 29), (200, 21), (0, 20), (-1_000, 20)],
    ids=["a byte", "all but a little", "everything", "the file"],
)
def test_what_is_missing_of_a_segment_costs_no_other(size: int, first_lost: int) -> None:
    disk = MemoryDisk()
    store, log, written, paths = filled_log(disk)
    store.close()
    lost = set(range(first_lost, 30))
    cut(disk, paths[2], size)
    (finding,) = [
        item
        for item in check(Files(disk))
        if isinstance(item, CheckFinding) and item.severity == DAMAGE
    ]
    assert set(range(finding.offset, finding.offset + finding.count)) == lost
    for _ in range(3):
        store, recovery = opened(disk)
        log = found(store, "orders", 0)
        assert recovery.bytes_cut == 0
        assert readable(log) == {
            offset: entry for offset, entry in written.items() if offset not in lost
        }
        with pytest.raises(CorruptError):
            log.read(first_lost, 20, 10_000)
        store.check()
        disk = disk.copy()
    put(log)
    assert log.max_offset == 51


@pytest.mark.parametrize(("size", "first_lost"), [(-1, 29), (200, 21), (0, 20), (-1_000, 20)])
def test_after_a_power_cut_a_log_ends_before_what_is_missing(size: int, first_lost: int) -> None:
    """A producer repeats what was not acknowledged, from the first lost batch on: none may be behind it."""
    disk = MemoryDisk()
    _, _, written, paths = filled_log(disk)
    cut(disk, paths[2], size)
    store, recovery = opened(disk)
    (report,) = recovery.repaired
    assert (report.segments_cut, report.damaged) == (2, 0)
    log = found(store, "orders", 0)
    assert readable(log) == {offset: written[offset] for offset in range(first_lost)}
    put(log)
    store.check()


def test_segments_without_entries_after_a_gap_are_cut() -> None:
    """Nothing of them had reached the disk when the power failed, nor of the end of the one before."""
    disk = MemoryDisk()
    _, _, written, paths = filled_log(disk)
    disk.files[paths[2]].truncate(disk.files[paths[2]].size() - 1)
    disk.files[paths[3]].truncate(50)
    disk.files[paths[4]].truncate(0)
    store, recovery = opened(disk)
    (report,) = recovery.repaired
    assert (report.segments_cut, report.damaged) == (2, 0)
    log = found(store, "orders", 0)
    assert readable(log) == {offset: written[offset] for offset in range(29)}
    put(log)
    store.check()


def test_a_segment_far_beyond_the_log_is_no_part_of_it() -> None:
    disk = MemoryDisk()
    _, log, written, paths = filled_log(disk)
    disk.files[f"{log.folder}/{1 << 40:020}-{1 << 50:020}.log"] = disk.copy().files[paths[0]]
    store, _ = opened(disk)
    assert readable(found(store, "orders", 0)) == written


def test_what_looks_like_an_entry_in_a_damaged_message_costs_no_other_segment() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    other = store.create_log("other", 0)
    for _ in range(40):
        put(other)
    looks_like_one = build_kafka(other, [b"at offset 40"])
    written = {number: put(log, looks_like_one + b"b" * 100) for number in range(50)}
    store.flush()
    paths = sorted(path for path in sizes(disk, ".log") if "orders" in path)
    last = int(paths[2].split("-")[-1].removesuffix(".log")) - 1
    disk.files[paths[1]].data[-len(written[0]) + 2] ^= 1
    disk.remove(paths[1].replace(".log", ".rows"))
    store, recovery = opened(disk)
    assert recovery.bytes_cut == 0
    assert readable(found(store, "orders", 0)) == {
        at: entry for at, entry in written.items() if at != last
    }


def test_a_lost_index_file_of_an_old_segment_is_made_again() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    written = [put(log, b"b" * 100) for _ in range(50)]
    store.flush()
    disk.remove(sorted(sizes(disk, ".rows"))[1])
    store, recovery = opened(disk)
    (report,) = recovery.repaired
    assert (report.rows_made > 3, report.bytes_cut, report.entries) == (True, 0, 50)
    log = found(store, "orders", 0)
    assert [log.entry_at(offset) for offset in range(50)] == written


def test_strange_files_in_a_log_folder_are_left_alone() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    put(log)
    for name in ("notes.log", "1-x.rows", "README"):
        disk.open(f"{log.folder}/{name}").write(0, b"hello")
    store, _ = opened(disk)
    assert found(store, "orders", 0).max_offset == 1
    assert disk.exists(f"{log.folder}/README")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            b"steelyard-store 4".ljust(63) + b"\n1b76dd14\n",
            "has format 4, this version reads 1 to 3",
        ),
        (b"steelyard-store 3\n", "'format' is damaged"),
        (b"steelyard-store one\n", "'format' is damaged"),
        (b"steelyard-store 0\n", "'format' is damaged"),
        (b"", "'format' is damaged"),
        (b"\xff\xfe\x00", "'format' is damaged"),
    ],
)
def test_other_formats_are_refused(disk: Disk, text: bytes, message: str) -> None:
    disk.open("format").write(0, text)
    with pytest.raises(StorageError, match=message):
        opened(disk)


def test_a_folder_with_logs_and_no_format_is_refused() -> None:
    disk = MemoryDisk()
    disk.make_folder("logs/orders/0-1")
    with pytest.raises(StorageError, match="'format' is missing"):
        opened(disk)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first = LiveDisk(str(tmp_path))
    opened(first)
    with pytest.raises(StorageError, match="in use"):
        LiveDisk(str(tmp_path))
    first.close()
    LiveDisk(str(tmp_path)).close()


@given(st.text(min_size=1, max_size=255), st.text(min_size=1, max_size=255))
@settings(max_examples=examples(200))
def test_file_names_are_safe_and_different(one: str, other: str) -> None:
    for name in (file_name(one), file_name(other)):
        assert len(name) <= NAME_BYTES_MAX
        assert set(name) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%~"
        )
    assert (file_name(one) == file_name(other)) == (one == other)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders_1-a", "orders_1-a"),
        ("%RETRY%group", "%25RETRY%25group"),
        ("..", "%2E%2E"),
        ("a/b", "a%2Fb"),
        ("ü", "%C3%BC"),
        ("|", "%7C"),
    ],
)
def test_file_names(topic: str, name: str) -> None:
    assert file_name(topic) == name


def test_long_and_odd_topics_live_on_the_disk(disk: Disk) -> None:
    topics = ["%" * 255, "%" * 254 + "x", "t" * 255, "..", "a/../../b", "%RETRY%g|x"]
    store, _ = opened(disk)
    written = {topic: put(store.create_log(topic, 0), topic.encode()) for topic in topics}
    store.close()
    store, _ = opened(disk)
    assert {topic: found(store, topic, 0).entry_at(0) for topic in topics} == written


def test_idle_logs_have_no_files_and_open_files_are_bounded(tmp_path: Path) -> None:
    disk = LiveDisk(str(tmp_path))
    store, _ = opened(disk, StoreConfig())
    store.create_logs("idle", tuple(range(5_000)))
    assert disk.list("logs") == []
    for queue in range(OPEN_FILES_MAX):
        put(store.create_log("busy", queue))
    assert _descriptors(tmp_path) <= OPEN_FILES_MAX + 1
    entries = [found(store, "busy", queue).entry_at(0) for queue in range(OPEN_FILES_MAX)]
    assert len(entries) == OPEN_FILES_MAX
    store.close()
    assert _descriptors(tmp_path) == 1
    store, recovery = opened(disk)
    assert (recovery.logs, recovery.entries) == (5_000 + OPEN_FILES_MAX, OPEN_FILES_MAX)
    store.close()
    disk.close()


def _descriptors(folder: Path) -> int:
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.exists()]
    return sum(str(link).startswith(str(folder)) for link in links)


def test_what_was_taken_and_synced_survives_a_power_cut() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    assert store.dirty()
    synced = [put(log, b"%d" % number) for number in range(10)]
    unsynced = store.take_dirty()
    assert not any(path.endswith(".rows") for path in unsynced.paths)
    later = [put(log, b"later") for _ in range(5)]
    unsynced.sync()
    assert store.dirty()
    for seed in range(20):
        again, _ = opened(disk.lose_power(Random(seed)), StoreConfig())
        survivor = found(again, "orders", 0)
        read = [survivor.entry_at(offset) for offset in range(survivor.max_offset)]
        assert read[:10] == synced
        assert read[10:] == later[: len(read) - 10]


@pytest.mark.parametrize("close", [False, True])
def test_a_flush_brings_to_the_disk_what_another_thread_has_not_synced_yet(*, close: bool) -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    entries = [put(log, b"%d" % number) for number in range(10)]
    assert store.take_dirty().paths
    if close:
        store.close()
    else:
        store.flush()
    again, _ = opened(disk.lose_power(Random(0)), StoreConfig())
    log = found(again, "orders", 0)
    assert [log.entry_at(offset) for offset in range(log.max_offset)] == entries


def test_syncing_in_another_thread_while_files_come_and_go(tmp_path: Path) -> None:
    """The other thread syncs what this one appends to, drops and deletes at the same time."""
    disk = LiveDisk(str(tmp_path))
    store, _ = opened(disk, StoreConfig(segment_bytes=1_000))
    errors: list[BaseException] = []
    for round_ in range(15):
        log = store.create_log(f"topic-{round_}", 0)
        log.append_many(build_batch(log, [b"x" * 200] * 3), NOW)
        unsynced = store.take_dirty()
        assert unsynced.paths

        def work() -> None:
            try:
                unsynced.sync()  # noqa: B023  # joined within the round
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        put(log, b"y" * 900)
        retain_log(log, NOW + 10, ms=1)
        store.delete_topic(f"topic-{round_}")
        thread.join()
    assert errors == []
    store.flush()
    assert not store.dirty()
    assert disk.list("logs") == []
    store.close()
    disk.close()


def test_a_sync_that_fails_says_so() -> None:
    class Failing(MemoryDisk):
        works = True

        def sync_folder(self, path: str) -> None:
            if not self.works:
                raise OSError(5, "input/output error")

    disk = Failing()
    store, _ = opened(disk)
    disk.works = False
    put(store.create_log("orders", 0))
    with pytest.raises(StorageError, match="cannot sync"):
        store.take_dirty().sync()


def test_index_rows_in_memory_are_bounded_over_all_logs() -> None:
    """Many logs with a few rows each: when there are too many, the oldest ones write theirs."""
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(index_flush_rows=BUFFERED_ROWS_MAX))
    share = BUFFERED_ROWS_MAX // 8
    for queue in range(10):
        log = store.create_log("orders", queue)
        log.append_many(build_batch(log, [b""] * share), NOW)
    assert sizes(disk, ".rows") == {
        found(store, "orders", queue).folder + f"/{0:020}-{0:020}.rows": share * ROW_BYTES
        for queue in range(2)
    }
    assert [found(store, "orders", queue).read(share - 1, 1, 1).count for queue in range(10)] == [
        1
    ] * 10
    store.check()


def test_retention_when_asked_and_not_at_start() -> None:
    """A store that opens knows no topic's own retention yet."""
    disk = MemoryDisk()
    store, _ = opened(disk)
    put(store.create_log("orders", 0))
    put(store.create_log("orders", 1))
    store.close()
    keep = StoreConfig(retention_ms=1_000)
    store, _ = opened(disk, keep, now=NOW + 1_000)
    assert found(store, "orders", 0).min_offset == 0
    assert retain(store, NOW + 1_001) == 2
    assert found(store, "orders", 0).min_offset == 1
    put(found(store, "orders", 0))
    store.close()
    store, _ = opened(disk, keep, now=NOW + 9_000)
    assert found(store, "orders", 0).min_offset == 1
    assert retain(store, NOW + 9_000) == 1
    assert found(store, "orders", 0).min_offset == 2


def retain(store: Store, now: int) -> int:
    """Delete what is past its retention in all logs; how many messages."""
    return sum(log.retain(now) for log in store.all_logs())


def test_topics_may_have_their_own_retention() -> None:
    store, _ = opened(MemoryDisk(), StoreConfig(segment_bytes=500, retention_ms=1_000))
    for topic in ("short", "small", "kept"):
        log = store.create_log(topic, 0)
        for _ in range(10):
            put(log, b"x" * 100)
    store.configure(
        {
            "short": LogConfig(500, -1, retention_ms=10),
            "small": LogConfig(500, -1, retention_bytes=1_000),
            "kept": LogConfig(500, -1),
        }.__getitem__
    )
    assert retain(store, NOW + 20) > 10
    assert [found(store, topic, 0).min_offset for topic in ("short", "kept")] == [10, 0]
    small = found(store, "small", 0)
    assert 0 < small.min_offset < 10
    assert 1_000 <= small.size() < 1_500
    assert retain(store, NOW + 20) == 0
    store.check()


def test_topics_may_have_segments_of_their_own() -> None:
    """Their settings hold for logs that are there, for new ones, and after a restart."""
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig(retention_ms=0))
    configs = {"large": LogConfig(10**6, -1), "small": LogConfig(300, -1)}
    for topic in configs:
        put(store.create_log(topic, 0), b"x" * 100)
    store.configure(configs.__getitem__)
    for _ in range(9):
        put(found(store, "small", 0), b"x" * 100)
        put(found(store, "large", 0), b"x" * 100)
    assert segments(disk) == {"large": 1, "small": 10}
    put(store.create_log("small", 1), b"x" * 100)
    put(store.create_log("small", 1), b"x" * 100)
    assert segments(disk) == {"large": 1, "small": 12}
    store.close()
    store, recovery = opened(disk, StoreConfig(retention_ms=0))
    assert recovery.repaired == ()
    assert found(store, "small", 0).max_offset == 10


def segments(disk: MemoryDisk) -> dict[str, int]:
    """How many segments each topic has on the disk."""
    return dict(Counter(path.split("/")[1] for path in disk.files if path.endswith(".log")))


@pytest.mark.parametrize("restart", [False, True])
def test_an_old_segment_is_closed_when_the_next_entry_comes(restart: bool) -> None:
    """Its age counts from its first entry (LogSegment.shouldRoll); a log that nobody writes to does not roll."""
    disk = MemoryDisk()
    config = StoreConfig(segment_ms=1_000, retention_ms=0)
    store, _ = opened(disk, config)
    log = store.create_log("orders", 0)
    for after in (0, 600, 999):
        put(log, b"x", now=NOW + after)
    assert segments(disk) == {"orders": 1}
    if restart:
        store.close()
        store, _ = opened(disk, config, now=NOW + 50_000)
        log = found(store, "orders", 0)
    retain(store, NOW + 50_000)
    assert segments(disk) == {"orders": 1}
    put(log, b"x", now=NOW + 1_000)
    assert segments(disk) == {"orders": 2}
    put(log, b"x", now=NOW + 1_999)
    assert segments(disk) == {"orders": 2}
    put(log, b"x", now=NOW + 2_000)
    assert segments(disk) == {"orders": 3}
    log.configure(LogConfig(10**6, -1))
    put(log, b"x", now=NOW + 90_000)
    assert segments(disk) == {"orders": 3}
    store.check()


def test_the_oldest_segments_of_all_logs_go_first() -> None:
    """What is deleted early is the oldest, in whatever log it is; the last segment of a log stays."""
    store, _ = opened(MemoryDisk(), StoreConfig(segment_bytes=400, retention_ms=0))
    for number in range(12):
        put(store.create_log(("a", "b")[number % 2], 0), b"x" * 200, now=NOW + number)
    entry = store.logs("a")[0].size() // 6
    assert store.drop_oldest(1) == (1, entry)
    assert [found(store, topic, 0).min_offset for topic in "ab"] == [1, 0]
    assert store.drop_oldest(4 * entry) == (4, 4 * entry)
    assert [found(store, topic, 0).min_offset for topic in "ab"] == [3, 2]
    assert store.drop_oldest(10**9) == (5, 5 * entry)
    assert [found(store, topic, 0).min_offset for topic in "ab"] == [5, 5]
    assert store.drop_oldest(10**9) == (0, 0)
    store.check()


def test_the_start_of_a_log_does_not_outlive_the_log() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    put(log)
    put(log)
    log.delete_before(2)
    assert store.table("log starts").get(str(log.log_id)) == b"2"
    store.delete_topic("orders")
    assert len(store.table("log starts")) == 0
    # A power cut brought it back for an id that is given out again.
    store.table("log starts").put(str(log.log_id + 1), b"7")
    store.create_log("orders", 0)
    assert len(store.table("log starts")) == 0
    store.close()
    store, _ = opened(disk)
    assert (found(store, "orders", 0).min_offset, found(store, "orders", 0).max_offset) == (0, 0)


def test_the_start_of_a_log_that_lost_its_entries() -> None:
    """1 append and delete before 2, 2 a power cut takes the entries only, 3 new entries are not deleted."""
    disk = MemoryDisk()
    store, _ = opened(disk)
    log = store.create_log("orders", 0)
    put(log)
    put(log)
    store.flush()
    log.delete_before(2)
    for path in [path for path in disk.files if path.startswith("logs/")]:
        disk.remove(path)
    store, _ = opened(disk)
    again = found(store, "orders", 0)
    assert (again.min_offset, again.max_offset) == (0, 0)
    put(again)
    for _ in range(2):
        store, _ = opened(disk)
        again = found(store, "orders", 0)
        assert (again.min_offset, again.max_offset) == (0, 1)
    store.check()


def test_rows_begin_with_rocketmqs_consume_queue_units() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk, StoreConfig())
    log = store.create_log("orders", 0)
    first = put(log, b"one", "TagA")
    second = put(log, b"two")
    store.flush()
    index = next(file for path, file in disk.files.items() if path.endswith(".rows"))
    data = bytes(index.data)
    assert data[:20] == struct.pack(">qiq", 0, len(first), tag_code("TagA"))
    assert data[ROW_BYTES:][:20] == struct.pack(">qiq", len(first), len(second), 0)
