"""Tables: values, deletions, torn tails, snapshots, a full disk."""

from __future__ import annotations

import pytest
from tests.store.conftest import opened

from steelyard.errors import DiskFullError
from steelyard.store.disk import Disk
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.store.recovery import TableRecovery
from steelyard.store.tables import SNAPSHOT_BYTES_MIN


def test_values_outlive_the_store(disk: Disk) -> None:
    store, _ = opened(disk)
    table = store.table("offsets")
    table.put("group@topic:0", b"17")
    table.put("group@topic:0", b"18")
    table.put_many([("a", b""), ("ü", b"\x00\xff"), ("gone", b"1"), ("gone", None)])
    table.delete("never there")
    table.delete("a")
    expected = {"group@topic:0": b"18", "ü": b"\x00\xff"}
    assert dict(table.items()) == expected
    store.close()
    store, recovery = opened(disk)
    again = store.table("offsets")
    assert dict(again.items()) == expected
    assert (again.get("ü"), again.get("a"), "a" in again, len(again)) == (
        b"\x00\xff",
        None,
        False,
        2,
    )
    assert recovery.tables == (TableRecovery("offsets", 7),)


def test_a_torn_tail_is_cut_at_every_length() -> None:
    whole = MemoryDisk()
    store, _ = opened(whole)
    table = store.table("offsets")
    table.put("first", b"1")
    kept = whole.files["tables/offsets.table"].size()
    table.put("second", b"22")
    size = whole.files["tables/offsets.table"].size()
    for cut in range(kept, size):
        disk = whole.copy()
        disk.files["tables/offsets.table"].truncate(cut)
        store, recovery = opened(disk)
        assert dict(store.table("offsets").items()) == {"first": b"1"}
        assert recovery.tables == (TableRecovery("offsets", 1, cut - kept),)
        assert recovery.bytes_cut == cut - kept
        store.table("offsets").put("third", b"3")
        store, recovery = opened(disk)
        assert dict(store.table("offsets").items()) == {"first": b"1", "third": b"3"}


def test_a_flipped_bit_ends_the_table() -> None:
    whole = MemoryDisk()
    store, _ = opened(whole)
    store.table("offsets").put("first", b"1")
    kept = whole.files["tables/offsets.table"].size()
    store.table("offsets").put("second", b"22")
    for place in range(kept, whole.files["tables/offsets.table"].size()):
        disk = whole.copy()
        disk.files["tables/offsets.table"].data[place] ^= 0x10
        store, _ = opened(disk)
        assert dict(store.table("offsets").items()) == {"first": b"1"}


def test_the_log_stays_within_a_few_times_of_what_lives(disk: Disk) -> None:
    store, _ = opened(disk)
    table = store.table("offsets")
    for number in range(20_000):
        table.put(f"group@topic:{number % 50}", b"%020d" % number)
    path = "tables/offsets.table"
    assert disk.open(path).size() < 2 * SNAPSHOT_BYTES_MIN
    expected = dict(table.items())
    assert len(expected) == 50
    assert not disk.exists(path + ".new")
    store, _ = opened(disk)
    assert dict(store.table("offsets").items()) == expected


def test_a_kill_while_the_snapshot_is_written_loses_nothing() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    table = store.table("offsets")
    number = 0
    while True:
        before = disk.copy()
        table.put("key", b"%01000d" % number)
        if disk.files["tables/offsets.table"].size() < 10_000 < SNAPSHOT_BYTES_MIN and number > 60:
            break
        number += 1
    record = 12 + 3 + 1_000
    for alive in (0, 1, record - 1, record, record + 1, 2 * record - 1):
        disk = before.copy()
        store, _ = opened(disk)
        # The put itself is one record, the snapshot after it another.
        disk.kill_after_bytes = alive
        with pytest.raises(Killed):
            store.table("offsets").put("key", b"%01000d" % number)
        store, _ = opened(disk.copy())
        last = number if alive >= record else number - 1
        assert store.table("offsets").get("key") == b"%01000d" % last
        store.table("offsets").put("key", b"new")
        store, _ = opened(disk.copy())


def test_a_full_disk_changes_nothing() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    table = store.table("offsets")
    table.put("key", b"1")
    disk.room_bytes = 5
    with pytest.raises(DiskFullError):
        table.put("key", b"2")
    assert table.get("key") == b"1"
    disk.room_bytes = None
    table.put("other", b"3")
    store, recovery = opened(disk.copy())
    assert dict(store.table("offsets").items()) == {"key": b"1", "other": b"3"}
    assert recovery.bytes_cut == 0


def test_no_room_for_a_snapshot_is_no_failure() -> None:
    disk = MemoryDisk()
    store, _ = opened(disk)
    table = store.table("offsets")
    for number in range(63):
        table.put("key", b"%01000d" % number)
    disk.room_bytes = 2_500
    for number in range(63, 65):
        table.put("key", b"%01000d" % number)
    assert table.get("key") == b"%01000d" % 64
    assert disk.files["tables/offsets.table"].size() > SNAPSHOT_BYTES_MIN
    disk.room_bytes = None
    for number in range(65, 300):
        table.put("key", b"%01000d" % number)
    assert disk.files["tables/offsets.table"].size() < 150_000
    store, _ = opened(disk.copy())
    assert store.table("offsets").get("key") == b"%01000d" % 299
