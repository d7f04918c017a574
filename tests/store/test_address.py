"""Logs longer than the positions in addresses: they go on, and everything in them is found."""

from __future__ import annotations

from itertools import accumulate

import pytest
from tests.store.conftest import NOW, build, build_kafka, opened

from steelyard.store.address import POSITION_BITS, address_of, distance
from steelyard.store.check import CheckFinding, check
from steelyard.store.cleaning import read_entries
from steelyard.store.files import Files
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store

TURN = 1 << POSITION_BITS


def long_log(disk: MemoryDisk, begin: int = TURN - 1_000) -> tuple[Store, Log]:
    """A log whose first segment begins at this position, as if everything before had expired."""
    store, _ = opened(disk)
    folder = store.create_log("orders", 0).folder
    disk.make_folder(folder)
    disk.open(f"{folder}/{begin:020}-{500:020}.log")
    return reopened(disk)


def reopened(disk: MemoryDisk) -> tuple[Store, Log]:
    store, _ = opened(disk)
    log = store.log("orders", 0)
    assert log is not None
    return store, log


def fill(log: Log, count: int = 40) -> list[bytes]:
    written = []
    for number in range(count):
        entry = build(log, b"%d" % number)
        log.append(entry, 0, NOW)
        log.check()
        written.append(entry)
    return written


def assert_holds(store: Store, log: Log, written: list[bytes]) -> None:
    assert log.max_offset == 500 + len(written)
    for offset, entry in enumerate(written, 500):
        assert log.entry_at(offset) == entry
        assert store.at_address(log.address_at(offset)) == entry
        assert log.address_at(offset) >> POSITION_BITS == log.log_id
    assert store.at_address(log.next_address) is None
    store.check()


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_a_log_goes_on_beyond_the_positions_of_addresses(turns: int) -> None:
    disk = MemoryDisk()
    store, log = long_log(disk, turns * TURN - 1_000)
    before = log.next_address
    written = fill(log)
    assert log.end == (turns * TURN - 1_000 + sum(map(len, written)), 540)
    assert log.next_address < before
    assert distance(before, log.next_address) == sum(map(len, written))
    assert_holds(store, log, written)


def test_messages_of_one_write_lie_on_both_sides() -> None:
    disk = MemoryDisk()
    store, log = long_log(disk)
    sizes = [len(build(log, b"%d" % number)) for number in range(10, 40)]
    begins = accumulate(sizes, initial=log.end[0])
    batch = []
    for number, position in zip(range(30), begins, strict=False):
        skip_bytes = address_of(log.log_id, position) - log.next_address
        batch.append((build(log, b"%d" % (number + 10), skip=number, skip_bytes=skip_bytes), 0))
    log.append_many(batch, NOW)
    assert_holds(store, log, [entry for entry, _ in batch])
    assert_holds(*reopened(disk.copy()), [entry for entry, _ in batch])


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_all_entries(clean: bool, indexed: bool) -> None:
    disk = MemoryDisk()
    store, log = long_log(disk)
    written = fill(log)
    log.append_batch(build_kafka(log, [b"one", b"two"]), 2, NOW)
    end = log.end
    if clean:
        store.close()
        findings = [item for item in check(Files(disk.copy())) if isinstance(item, CheckFinding)]
        assert not findings
    disk = disk.copy()
    if not indexed:
        for path in [path for path in disk.files if path.endswith(".rows")]:
            disk.remove(path)
    store, log = reopened(disk)
    assert log.end == end
    assert log.read_run(540, 1_000).next_offset == 542
    written += fill(log, 0)
    assert [log.entry_at(offset) for offset in range(500, 540)] == written
    assert [store.at_address(log.address_at(offset)) for offset in range(500, 540)] == written


def test_what_follows_damage_is_found_without_an_index() -> None:
    disk = MemoryDisk()
    _, log = long_log(disk)
    written = fill(log)
    folder = log.folder
    second = sorted(name for name in disk.list(folder) if name.endswith(".log"))[0]
    disk.files[f"{folder}/{second}"].data[len(written[0]) * 8 + 95] ^= 1
    for path in [path for path in disk.files if path.endswith(".rows")]:
        disk.remove(path)
    disk = disk.copy()
    _, log = reopened(disk)
    assert log.max_offset == 540
    assert [log.entry_at(offset) for offset in range(509, 540)] == written[9:]


@pytest.mark.parametrize("indexed", [True, False])
def test_compacted_entries_keep_their_addresses(indexed: bool) -> None:
    disk = MemoryDisk()
    store, log = long_log(disk)
    written = fill(log)
    addresses = [log.address_at(offset) for offset in range(500, 540)]
    kept = [offset for offset in range(500, log.closed()[-1].end[1]) if offset % 3 == 0]
    cleaning = log.clean(log.closed())
    for segment in log.closed():
        offset = segment.base_offset
        while offset < segment.end[1]:
            found, offset = read_entries(segment, offset, 500)
            for run, data in found:
                if run.first in kept:
                    cleaning.add(run, data)
    cleaning.write()
    store.flush()
    cleaning.swap()
    if not indexed:
        for path in [path for path in disk.files if path.endswith(".runs")]:
            disk.remove(path)
        store, log = reopened(disk.copy())
    for offset in kept:
        assert store.at_address(addresses[offset - 500]) == written[offset - 500]
