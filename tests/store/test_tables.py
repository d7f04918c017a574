"""Tables: values, deletions, torn tails, snapshots, a full disk."""

from __future__ import annotations

import errno

import pytest
from tests.store.conftest import opened

from steelyard.errors import DamageError, DiskFullError
from steelyard.store.disk import Disk
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.store.recovery import TableRecovery
from steelyard.store.table_records import HEAD_BYTES, Gap, decode
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
        at = kept if cut > kept else 0
        assert recovery.tables == (TableRecovery("offsets", 1, cut - kept, at),)
        assert len(recovery.warnings()) == (cut > kept)
        assert recovery.bytes_cut == cut - kept
        store.table("offsets").put("third", b"3")
        store, recovery = opened(disk)
        assert dict(store.table("offsets").items()) == {"first": b"1", "third": b"3"}


PATH = "tables/offsets.table"


class NoFolderSync(MemoryDisk):
    """While `fails`, no folder can be synced; `synced` are those that were since."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self.error = error
        self.fails = False
        self.synced: list[str] = []

    def sync_folder(self, path: str) -> None:
        if self.fails:
            raise OSError(self.error, "no")
        super().sync_folder(path)
        self.synced.append(path)


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_a_snapshot_whose_name_could_not_be_synced_counts(error: int) -> None:
    """It has replaced the log, which goes on after it; its name is synced with what comes next."""
    disk = NoFolderSync(error)
    store, _ = opened(disk)
    table = store.table("offsets")
    table.put("key", b"0" * 1000)
    store.flush()
    disk.fails = True
    values = [b"%d" % number * 1000 for number in range(SNAPSHOT_BYTES_MIN // 1000)]
    for value in values:
        table.put("key", value)
    assert disk.files[PATH].size() < SNAPSHOT_BYTES_MIN
    disk.fails = False
    disk.synced.clear()
    store.flush()
    assert "tables" in disk.synced
    store, _ = opened(disk)
    assert store.table("offsets").get("key") == values[-1]


def written(*pairs: tuple[str, bytes | None]) -> tuple[MemoryDisk, list[int]]:
    """A store's disk after a kill, and where each record of its table ends."""
    disk = MemoryDisk()
    store, _ = opened(disk)
    ends = [0]
    for pair in pairs:
        store.table("offsets").put_many([pair])
        ends.append(disk.files[PATH].size())
    return disk, ends


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_is_taken_for_a_torn_write(bit: int) -> None:
    """Be it in the first record, in the middle or in the last one, whose size may be what is flipped."""
    pairs = (("first", b"1"), ("second", b"22"), ("first", None), ("third", b"3" * 300), ("x", b""))
    whole, ends = written(*pairs)
    for place in range(ends[-1]):
        disk = whole.copy()
        disk.files[PATH].data[place] ^= 1 << bit
        before = bytes(disk.files[PATH].data)
        with pytest.raises(
            DamageError, match=r"tables/offsets\.table is damaged: bytes \d+ to"
        ) as error:
            opened(disk)
        assert error.value.paths == (PATH,)
        assert bytes(disk.files[PATH].data) == before, "the evidence was changed"


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_before_a_torn_write_is_damage(bit: int) -> None:
    """Also where it makes a size reach into the write that was cut off."""
    whole, ends = written(("first", b"1"), ("second", b"22"), ("third", b"3" * 300))
    for cut in (ends[2] + 3, ends[2] + 40, ends[3] - 1):
        for place in range(ends[1], ends[2]):
            disk = whole.copy()
            disk.files[PATH].truncate(cut)
            disk.files[PATH].data[place] ^= 1 << bit
            with pytest.raises(DamageError):
                opened(disk)


def keys_of(data: bytes) -> list[str]:
    """Of what is not a record."""
    return [item.key for item in decode(data) if isinstance(item, Gap)]


def test_the_key_of_a_damaged_record_is_told_where_it_is_certain() -> None:
    whole, ends = written(("first", b"1"), ("second", b"22"), ("third", b"3"), ("fourth", None))
    data = bytes(whole.files[PATH].data)

    def flipped(*places: int) -> bytes:
        return bytes(byte ^ (number in places) for number, byte in enumerate(data))

    for start, key in zip(ends[:4], ("first", "second", "third", "fourth"), strict=True):
        for place in range(start, start + HEAD_BYTES):
            assert keys_of(flipped(place)) == [key], place
    assert keys_of(flipped(ends[2] - 1)) == ["second"]
    # Of two records side by side no key alone is told: a repair would say that only one is lost.
    assert keys_of(flipped(ends[1] + 20, ends[2] + 18)) == [""]


def test_a_last_record_that_deletes_is_damaged_or_torn() -> None:
    whole, ends = written(("first", b"1"), ("first", None))
    for place in range(ends[1], ends[2]):
        disk = whole.copy()
        disk.files[PATH].data[place] ^= 1
        with pytest.raises(DamageError):
            opened(disk)
    for cut in range(ends[1] + 1, ends[2]):
        disk = whole.copy()
        disk.files[PATH].truncate(cut)
        store, recovery = opened(disk)
        assert (store.table("offsets").get("first"), recovery.bytes_cut) == (b"1", cut - ends[1])


def test_bytes_lost_in_the_middle_are_damage() -> None:
    whole, ends = written(("first", b"1"), ("second", b"22"), ("third", b"3"))
    for place in range(ends[0], ends[2]):
        disk = whole.copy()
        del disk.files[PATH].data[place : place + 1]
        with pytest.raises(DamageError):
            opened(disk)


def test_pages_that_a_power_cut_left_unwritten_are_a_torn_write() -> None:
    whole, ends = written(("first", b"1"), ("second", b"2" * 9_000))
    for zeros_from in (ends[1], 4096, 8192):
        disk = whole.copy()
        data = disk.files[PATH].data
        data[zeros_from:] = bytes(len(data) - zeros_from)
        store, recovery = opened(disk)
        assert dict(store.table("offsets").items()) == {"first": b"1"}
        assert recovery.bytes_cut == ends[2] - ends[1]
    few = whole.copy()
    few.files[PATH].data[-20:] = bytes(20)
    with pytest.raises(DamageError):
        opened(few)


def test_every_damaged_file_is_named() -> None:
    disk, _ = written(("first", b"1"))
    store, _ = opened(disk)
    store.table("groups").put("g", b"1")
    for name in ("offsets", "groups"):
        disk.files[f"tables/{name}.table"].data[0] ^= 1
    with pytest.raises(DamageError, match=r"tables/groups\.table .*\(and 1 more\)") as error:
        opened(disk)
    assert error.value.paths == ("tables/groups.table", PATH)


def test_after_a_clean_stop_nothing_counts_as_torn() -> None:
    disk, ends = written(("first", b"1"), ("second", b"22"))
    store, _ = opened(disk)
    store.close()
    for cut in range(ends[2]):
        shorter = disk.copy()
        shorter.files[PATH].truncate(cut)
        with pytest.raises(DamageError, match=r"is damaged|is not as the last clean stop left it"):
            opened(shorter)
    gone = disk.copy()
    gone.remove(PATH)
    with pytest.raises(DamageError, match=r"tables/offsets\.table is missing"):
        opened(gone)
    store, recovery = opened(disk)
    assert recovery.tables == (TableRecovery("offsets", 2),)
    # It was the last clean stop's word, and goes with the first start after it.
    store.table("offsets").put("third", b"3")
    disk.files[PATH].truncate(disk.files[PATH].size() - 1)
    store, recovery = opened(disk)
    assert (len(store.table("offsets")), recovery.bytes_cut) == (2, 17)


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
