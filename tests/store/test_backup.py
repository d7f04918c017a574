"""Copies of a directory that is written to: by another process all the time, or in between at the worst moment."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import SynchronizedArray
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from tests.store.conftest import NOW, SMALL, build, build_batch, opened, retain_log

from steelyard.driver.disk import LiveDisk
from steelyard.driver.source import LiveSource, LiveSourceFile
from steelyard.errors import DamageError, StorageError
from steelyard.store import backup, check
from steelyard.store.files import Files
from steelyard.store.log import Log
from steelyard.store.store import Store

ROUNDS = 8
QUEUES = 3
ENTRIES_MIN = 300
"""Written before the first copy, so that each has several segments and tables that were replaced."""


def put(log: Log, count: int = 1) -> None:
    for _ in range(count):
        log.append(build(log, b"body" * 30), 0, NOW)


def write(root: str, acknowledged: SynchronizedArray[int], stop: Event) -> None:
    """Append, commit, count in two tables, and delete old segments, until told to stop.

    `acknowledged`: of each queue the offset after the last message, and the committed offset.
    """
    store, _ = opened(LiveDisk(root), SMALL)
    logs = store.create_logs("orders", tuple(range(QUEUES)))
    for number in range(1 << 40):
        if stop.is_set():
            break
        queue = number % QUEUES
        log = logs[queue]
        log.append_many(build_batch(log, [b"x" * 100] * 3), NOW)
        acknowledged[2 * queue] = log.max_offset
        store.table("offsets").put(str(queue), b"%d" % log.max_offset)
        acknowledged[2 * queue + 1] = log.max_offset
        for name in ("ahead", "behind"):
            store.table(name).put("count", b"%0300d" % number)
        if number % 20 == 0:
            retain_log(log, NOW, size=20_000)
    store.close()


def copied(source: LiveSource, target: Path) -> Store:
    """Copy, verify, and open the copy."""
    disk = LiveDisk(str(target))
    files = Files(disk)
    list(backup.copy(source, files))
    found = [item for item in check.check(files) if isinstance(item, check.CheckFinding)]
    assert [item for item in found if item.severity == check.DAMAGE] == []
    files.close()
    store, recovery = opened(disk, SMALL)
    assert recovery.unknown == ()
    store.check()
    return store


@pytest.mark.proof
def test_copies_under_load(tmp_path: Path) -> None:
    """Nothing acknowledged before is missing, offsets have their messages, tables are of one moment."""
    context = multiprocessing.get_context("spawn")
    acknowledged = context.Array("q", 2 * QUEUES)
    stop = context.Event()
    arguments = (str(tmp_path / "data"), acknowledged, stop)
    writer = context.Process(target=write, args=arguments)
    writer.start()
    try:
        while min(acknowledged[:]) < ENTRIES_MIN:
            assert writer.is_alive()
        for number in range(ROUNDS):
            before = acknowledged[:]
            store = copied(LiveSource(str(tmp_path / "data")), tmp_path / f"copy-{number}")
            logs = store.logs("orders")
            offsets = [int(store.table("offsets").get(str(queue)) or 0) for queue in range(QUEUES)]
            for log, offset in zip(logs, offsets, strict=True):
                acknowledged_before, committed_before = before[2 * log.queue_id :][:2]
                # Retention may have deleted what was acknowledged before, but nothing behind it.
                assert acknowledged_before <= log.max_offset
                assert committed_before <= offset <= log.max_offset
            ahead, behind = (
                int(store.table(name).get("count") or 0) for name in ("ahead", "behind")
            )
            assert ahead - behind in (0, 1)
            store.close()
        assert writer.is_alive()
    finally:
        stop.set()
        writer.join()
    assert writer.exitcode == 0
    assert acknowledged[:] > before


# -- at the worst moment ---------------------------------------------------------------------------


class MeddledSource(LiveSource):
    """Something else happens right before the first file is opened, or each, whose path has `part` in it."""

    def __init__(
        self, root: Path, part: str, meddle: Callable[[], None], *, always: bool = False
    ) -> None:
        super().__init__(str(root))
        self._part = part
        self._meddle: Callable[[], None] | None = meddle
        self._always = always

    def open(self, path: str) -> LiveSourceFile | None:
        meddle = self._meddle
        if meddle is not None and self._part in path:
            self._meddle = meddle if self._always else None
            meddle()
        return super().open(path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Two topics with several segments each."""
    store, _ = opened(LiveDisk(str(tmp_path / "data")), SMALL)
    for topic in ("bills", "orders"):
        put(store.create_log(topic, 0), 40)
    yield store
    store.close()


def only(store: Store, topic: str) -> Log:
    (log,) = store.logs(topic)
    return log


def test_retention_while_segments_are_copied_leaves_no_gap(store: Store, tmp_path: Path) -> None:
    """1 the last segment was copied, 2 retention deletes two of those before, 3 the copy begins after them."""
    log = only(store, "orders")
    first = sorted(path.name for path in (tmp_path / "data" / log.folder).iterdir())[-4]

    def drop() -> None:
        log.drop_oldest()
        log.drop_oldest()

    copy = copied(MeddledSource(tmp_path / "data", first, drop), tmp_path / "copy")
    assert only(copy, "orders").max_offset == 40
    assert only(copy, "orders").min_offset == log.min_offset > 0
    copy.close()


def test_a_topic_deleted_meanwhile_is_not_in_the_copy(store: Store, tmp_path: Path) -> None:
    source = MeddledSource(tmp_path / "data", "logs/orders/", lambda: store.delete_topic("orders"))
    copy = copied(source, tmp_path / "copy")
    assert copy.topics() == ["bills"]
    copy.close()


def test_nor_what_was_copied_of_it(store: Store, tmp_path: Path) -> None:
    """1 bills were copied, 2 they are deleted, 3 the copy has nothing of them."""
    source = MeddledSource(tmp_path / "data", "logs/orders/", lambda: store.delete_topic("bills"))
    copy = copied(source, tmp_path / "copy")
    assert copy.topics() == ["orders"]
    assert [path.name for path in (tmp_path / "copy" / "logs").iterdir()] == ["orders"]
    copy.close()


def test_a_topic_created_meanwhile_is_left_out(store: Store, tmp_path: Path) -> None:
    def create() -> None:
        put(store.create_log("later", 0))

    copy = copied(MeddledSource(tmp_path / "data", "logs/bills/", create), tmp_path / "copy")
    assert copy.topics() == ["bills", "orders"]
    copy.close()


def test_a_log_of_which_everything_is_deleted_meanwhile_keeps_its_end(
    store: Store, tmp_path: Path
) -> None:
    log = only(store, "orders")

    def expire() -> None:
        retain_log(log, NOW + 10, ms=1)

    copy = copied(MeddledSource(tmp_path / "data", "logs/orders/", expire), tmp_path / "copy")
    found = only(copy, "orders")
    assert (found.min_offset, found.max_offset) == (40, 40)
    copy.close()


def test_entries_appended_meanwhile_are_not_in_the_copy(store: Store, tmp_path: Path) -> None:
    """Their index rows are on the disk already when the index is copied."""
    log = only(store, "orders")
    source = MeddledSource(tmp_path / "data", "logs/orders/", lambda: put(log, 20))
    copy = copied(source, tmp_path / "copy")
    assert only(copy, "orders").max_offset == 40
    copy.close()


def test_a_table_replaced_meanwhile_is_copied_as_it_was_or_is(store: Store, tmp_path: Path) -> None:
    def grow() -> None:
        for number in range(300):
            store.table("offsets").put("q", b"%0300d" % number)

    store.table("offsets").put("q", b"first")
    size = (tmp_path / "data/tables/offsets.table").stat().st_size
    copy = copied(MeddledSource(tmp_path / "data", "offsets.table", grow), tmp_path / "copy")
    assert int(copy.table("offsets").get("q") or 0) == 299
    copy.close()
    assert (tmp_path / "data/tables/offsets.table").stat().st_size > size


def test_deletions_that_never_end_are_an_error_and_leave_no_data_directory(
    store: Store, tmp_path: Path
) -> None:
    def renew() -> None:
        store.delete_topic("orders")
        put(store.create_log("orders", 0))

    source = MeddledSource(tmp_path / "data", "logs/orders/", renew, always=True)
    files = Files(LiveDisk(str(tmp_path / "copy")))
    with pytest.raises(StorageError, match=f"each of {backup.ATTEMPTS_MAX} attempts"):
        list(backup.copy(source, files))
    with pytest.raises(DamageError, match="'format' is missing"):
        opened(files.disk)


def test_tables_that_never_rest_are_an_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(LiveSource):
        def list(self, folder: str) -> list[str]:
            store.table("offsets").put("q", b"1")
            return super().list(folder)

    monkeypatch.setattr(backup, "LOOKS_MAX", 5)
    files = Files(LiveDisk(str(tmp_path / "copy")))
    with pytest.raises(StorageError, match="each of the 5 times"):
        list(backup.copy(Busy(str(tmp_path / "data")), files))


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not a data directory: the file 'format' is missing"):
        list(backup.copy(LiveSource(str(tmp_path / "x")), Files(LiveDisk(str(tmp_path / "copy")))))
