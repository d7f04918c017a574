"""Whose a data directory is: taken over, refused, damaged; formats; what a clean stop leaves."""

from __future__ import annotations

import errno

import pytest
from tests.store.conftest import NOW, SMALL, build, opened

from steelyard.errors import DamageError, OwnerError, StorageError
from steelyard.store import clean_stop, identity
from steelyard.store.disk import Disk
from steelyard.store.files import Files
from steelyard.store.identity import Identity
from steelyard.store.memory import Killed, MemoryDisk, MemoryFile
from steelyard.store.store import Store

ME = Identity("cluster", "id-of-cluster", "broker-a", 1)


def open_as(disk: Disk, owner: Identity) -> Store:
    store = Store(disk, SMALL, owner)
    store.open(NOW)
    return store


def test_a_new_directory_becomes_the_brokers(disk: Disk) -> None:
    open_as(disk, ME).close()
    found = identity.read(Files(disk))
    assert found == identity.StoredIdentity(identity.FORMAT, ME)
    open_as(disk, ME)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            Identity("cluster", "id", "broker-b", 1),
            "belongs to broker 'broker-a' of cluster 'cluster', node 1, not to broker 'broker-b'",
        ),
        (Identity("other", "id", "broker-a", 1), "not to broker 'broker-a' of cluster 'other'"),
        (
            Identity("cluster", "id", "broker-a", 2),
            "belongs to node 1 of Kafka's clients, and the broker was started as node 2",
        ),
    ],
)
def test_another_broker_is_refused_and_changes_nothing(
    disk: Disk, other: Identity, words: str
) -> None:
    open_as(disk, ME).close()
    before = disk.open("format").read(0, 1000)
    with pytest.raises(OwnerError, match=words):
        open_as(disk, other)
    assert disk.open("format").read(0, 1000) == before
    assert disk.exists("clean-stop")


def test_a_node_id_is_kept_from_the_first_time_that_kafka_clients_are_served(disk: Disk) -> None:
    without = Identity("cluster", "id-of-cluster", "broker-a")
    open_as(disk, without)
    open_as(disk, ME)
    open_as(disk, without)
    assert identity.read(Files(disk)).identity == ME


def test_a_tool_that_is_nobody_changes_nothing(disk: Disk) -> None:
    open_as(disk, ME)
    opened(disk)
    assert identity.read(Files(disk)).identity == ME


def test_a_directory_of_format_1_is_taken_over() -> None:
    disk = MemoryDisk()
    disk.open("format").write(0, b"steelyard-store 1\n")
    store = Store(disk, SMALL, ME)
    assert store.open(NOW).upgraded_from == 1
    assert identity.read(Files(disk)) == identity.StoredIdentity(identity.FORMAT, ME)
    with pytest.raises(OwnerError):
        open_as(disk, Identity("cluster", "id", "broker-b"))
    assert Store(disk, SMALL, ME).open(NOW).upgraded_from == 0


def test_versions_that_read_format_1_find_the_number_in_the_first_64_bytes() -> None:
    disk = MemoryDisk()
    open_as(disk, ME)
    assert disk.open("format").read(0, 64).decode().split() == ["steelyard-store", "3"]


def test_a_kill_while_the_file_is_written_leaves_the_one_before() -> None:
    for alive in range(0, 200, 7):
        disk = MemoryDisk()
        disk.open("format").write(0, b"steelyard-store 1\n")
        disk.kill_after_bytes = alive
        try:
            open_as(disk, ME)
        except Killed:
            disk = disk.copy()
            assert bytes(disk.files["format"].data) == b"steelyard-store 1\n"
            open_as(disk, ME)
        assert identity.read(Files(disk)).identity == ME


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_passes(bit: int) -> None:
    whole = MemoryDisk()
    open_as(whole, ME)
    for place in range(whole.files["format"].size()):
        disk = whole.copy()
        disk.files["format"].data[place] ^= 1 << bit
        with pytest.raises(StorageError, match="format"):
            open_as(disk, ME)


def test_a_clean_stop_tells_where_logs_end() -> None:
    disk = MemoryDisk()
    store = open_as(disk, ME)
    log = store.create_log("orders", 0)
    for _ in range(30):
        log.append(build(log, b"x" * 100), 0, NOW)
    store.close()
    path = sorted(name for name in disk.files if name.endswith(".log"))[-1]
    shorter = disk.copy()
    shorter.files[path].truncate(0)
    missing = disk.copy()
    missing.remove(path)
    for each in (shorter, missing):
        with pytest.raises(
            DamageError,
            match=r"logs/orders/0-1 ends at byte \d+ of the log; the last clean stop left it at",
        ):
            open_as(each, ME)
        # The word of a clean stop stays until a store was opened.
        assert each.exists("clean-stop")
    open_as(disk, ME)
    assert not disk.exists("clean-stop")


def test_a_lost_list_of_logs_is_damage() -> None:
    disk = MemoryDisk()
    store = open_as(disk, ME)
    log = store.create_log("orders", 0)
    log.append(build(log, b"x"), 0, NOW)
    disk.remove("tables/logs.table")
    with pytest.raises(DamageError, match=r"tables/logs\.table is missing"):
        open_as(disk, ME)


def test_a_damaged_word_of_a_clean_stop_is_none() -> None:
    whole = MemoryDisk()
    open_as(whole, ME).close()
    for place in range(whole.files["clean-stop"].size()):
        disk = whole.copy()
        disk.files["clean-stop"].data[place] ^= 4
        assert clean_stop.read(Files(disk)) is None
        open_as(disk, ME)


def test_a_disk_that_cannot_forget_a_clean_stop_is_a_storage_error() -> None:
    class Failing(MemoryDisk):
        def sync_folder(self, path: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

    disk = Failing()
    disk.files["clean-stop"] = MemoryFile(disk)
    with pytest.raises(StorageError, match="cannot sync"):
        clean_stop.remove(Files(disk))


def test_what_a_failed_write_left_is_cut_before_a_clean_stop_says_where_files_end() -> None:
    class Stubborn(MemoryDisk):
        """Cannot cut a file, for a while."""

        works = True

        def open(self, path: str) -> MemoryFile:
            file = super().open(path)
            truncate = type(file).truncate

            def cut(size: int) -> None:
                if not self.works:
                    raise OSError(5, "input/output error")
                truncate(file, size)

            file.truncate = cut  # type: ignore[method-assign]
            return file

    for mended in (True, False):
        disk = Stubborn()
        store = open_as(disk, ME)
        store.table("offsets").put("a", b"1")
        disk.works = False
        disk.room_bytes = 5
        with pytest.raises(StorageError):
            store.table("offsets").put("b", b"2")
        disk.room_bytes = None
        disk.works = mended
        store.close()
        assert disk.exists("clean-stop") == mended
        recovered = Store(disk.copy(), SMALL, ME)
        assert recovered.open(NOW).bytes_cut == (0 if mended else 5)
        assert dict(recovered.table("offsets").items()) == {"a": b"1"}
