"""The simulated disk: what outlives a process, what outlives a machine."""

import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import DiskFullError, StorageError
from steelyard.sim.disk import SimDisk
from steelyard.store.memory import Killed


def test_a_completed_write_outlives_the_process() -> None:
    disk = SimDisk(Random(1))
    disk.remount().open("a/b").write(0, b"hello")
    assert disk.remount().open("a/b").read(0, 99) == b"hello"


@given(st.integers(0, 1000))
def test_a_kill_inside_a_write_leaves_a_prefix_and_a_dead_handle(seed: int) -> None:
    disk = SimDisk(Random(seed))
    file = disk.remount().open("log")
    file.write(0, b"first")
    disk.cut_write(2)
    file.write(5, b"second")
    with pytest.raises(Killed):
        file.write(11, b"third")
    with pytest.raises(Killed):
        file.read(0, 1)
    data = disk.remount().open("log").read(0, 99)
    assert data.startswith(b"firstsecond")
    assert b"third".startswith(data[11:])


@given(st.integers(0, 1000))
def test_power_loss_keeps_what_was_synced_and_a_prefix_of_the_rest(seed: int) -> None:
    disk = SimDisk(Random(seed))
    mount = disk.remount()
    file = mount.open("log")
    file.write(0, b"synced")
    file.sync()
    mount.sync_folder("")
    file.write(6, b"not yet")
    disk.lose_power()
    data = disk.remount().open("log").read(0, 99)
    assert data.startswith(b"synced")
    assert b"synced" + b"not yet"[: len(data) - 6] == data


def test_power_loss_may_take_names_that_were_not_synced() -> None:
    seen = set()
    for seed in range(40):
        disk = SimDisk(Random(seed))
        mount = disk.remount()
        old, new = mount.open("table"), mount.open("table.new")
        old.write(0, b"old")
        old.sync()
        mount.sync_folder("")
        new.write(0, b"new")
        new.sync()
        mount.rename("table.new", "table")
        disk.lose_power()
        mount = disk.remount()
        seen.add((tuple(mount.list("")), mount.open("table").read(0, 99)))
    assert seen == {(("table", "table.new"), b"old"), (("table",), b"new")}


def test_a_full_disk_refuses_and_takes_again_when_there_is_room() -> None:
    disk = SimDisk(Random(3))
    file = disk.remount().open("log")
    disk.room = 4
    file.write(0, b"1234")
    with pytest.raises(DiskFullError):
        file.write(4, b"5")
    assert file.size() == 4
    disk.room = None
    file.write(4, b"5")
    assert file.read(0, 9) == b"12345"


def test_folders_are_the_prefixes_of_paths() -> None:
    mount = SimDisk(Random(4)).remount()
    mount.make_folder("logs/t")
    mount.open("logs/t/0")
    mount.open("logs/t/1")
    mount.open("format")
    assert mount.list("") == ["format", "logs"]
    assert mount.list("logs/t") == ["0", "1"]
    assert mount.list("none") == []
    assert mount.exists("logs")
    with pytest.raises(StorageError):
        mount.remove("logs/t")
    mount.remove("logs/t/0")
    mount.remove("logs/t/1")
    assert not mount.exists("logs")


def test_truncate_cuts_and_fills_with_zeros() -> None:
    file = SimDisk(Random(5)).remount().open("log")
    file.write(0, b"12345")
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 9) == b"12\0\0"
    file.close()


def test_without_descriptors_nothing_is_opened_and_what_is_open_goes_on() -> None:
    disk = SimDisk(Random(1))
    mount = disk.remount()
    file = mount.open("a/b")
    disk.exhausted = True
    for call in (mount.open, mount.open_existing, mount.list, mount.sync_folder):
        with pytest.raises(OSError, match="Too many open files") as raised:
            call("a")
        assert raised.value.errno == errno.EMFILE
    file.write(0, b"hello")
    file.sync()
    mount.rename("a/b", "a/c")
    with disk.looked_at():
        assert mount.open("a/c").size() == 5  # a checker's look needs no descriptor of the process
    assert disk.exhausted
    disk.exhausted = False
    assert mount.list("a") == ["c"]


def test_a_write_that_a_look_makes_does_not_kill_the_process() -> None:
    """A broker is to be killed inside a write; a checker reads a damaged index row meanwhile, which is mended."""
    disk = SimDisk(Random(1))
    file = disk.remount().open("a")
    disk.cut_write(1)
    with disk.looked_at():
        file.write(0, b"mended")
    assert file.read(0, 9) == b"mended"
    with pytest.raises(Killed):
        file.write(0, b"written")


def test_a_bit_that_flips_is_flipped_on_the_platter_too() -> None:
    disk = SimDisk(Random(1))
    assert not disk.flip_bit(".rows")
    mount = disk.remount()
    for name in ("a.rows", "a.log"):
        file = mount.open(name)
        file.write(0, bytes(8))
        file.sync()
    mount.sync_folder("")
    assert disk.flip_bit(".rows")
    for _ in range(2):
        mount = disk.remount()
        flipped = int.from_bytes(mount.open("a.rows").read(0, 8))
        assert flipped.bit_count() == 1
        assert not any(mount.open("a.log").read(0, 8))
        disk.lose_power()
