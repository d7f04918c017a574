"""Offsets by the timestamps of records, in any order, over blocks and segments."""

from __future__ import annotations

from random import Random

import pytest
from tests.store.conftest import NOW, build, build_kafka, opened

from steelyard.config import StoreConfig
from steelyard.store import times
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk, MemoryFile


def new_log(segment_bytes: int = 1 << 20) -> Log:
    store, _ = opened(MemoryDisk(), StoreConfig(segment_bytes=segment_bytes, retention_ms=0))
    return store.create_log("orders", 0)


def add(log: Log, timestamp: int, count: int = 1) -> None:
    log.append_batch(build_kafka(log, [b"x"] * count, timestamp), count, NOW)


def test_an_empty_log_has_no_timestamps() -> None:
    log = new_log()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None
    add(log, NOW)
    log.delete_before(1)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp() is None


def test_the_first_batch_that_fits_out_of_order() -> None:
    log = new_log()
    for stamp, count in ((50, 2), (10, 1), (90, 3), (60, 1), (90, 1), (-1, 1)):
        add(log, stamp, count)
    assert log.offset_for_timestamp(-5) == (0, 50)
    assert log.offset_for_timestamp(50) == (0, 50)
    assert log.offset_for_timestamp(51) == (3, 90)
    assert log.offset_for_timestamp(60, start=6) == (6, 60)
    assert log.offset_for_timestamp(61, start=6) == (7, 90)
    assert log.offset_for_timestamp(91) is None
    assert log.max_timestamp() == (3, 90)


def test_a_start_inside_a_batch() -> None:
    log = new_log()
    for stamp, count in ((90, 4), (10, 2), (50, 1)):
        add(log, stamp, count)
    log.delete_before(2)
    assert log.offset_for_timestamp(20) == (2, 90)
    assert log.offset_for_timestamp(20, start=4) == (6, 50)
    assert log.max_timestamp() == (2, 90)
    log.delete_before(5)
    assert log.offset_for_timestamp(5) == (5, 10)
    assert log.max_timestamp() == (6, 50)


@pytest.mark.parametrize("segment_bytes", [400, 3_000, 1 << 20])
@pytest.mark.parametrize("block_bytes", [100, 1_000, 1 << 20])
def test_against_a_plain_search_while_the_log_grows_and_shrinks(
    monkeypatch: pytest.MonkeyPatch, segment_bytes: int, block_bytes: int
) -> None:
    monkeypatch.setattr(times, "BLOCK_BYTES", block_bytes)
    rng = Random(segment_bytes + block_bytes)
    log = new_log(segment_bytes)
    stamps: list[int] = []
    clock = NOW
    for step in range(400):
        if rng.random() < 0.7:
            stamp, count = NOW + rng.randrange(1_000), rng.randrange(1, 5)
            add(log, stamp, count)
            stamps += [stamp] * count
        else:
            clock += 1
            log.append(build(log, now=clock), 0, clock)
            stamps.append(clock)
        if step % 40 == 39:
            log.delete_before(log.min_offset + rng.randrange(60))
        for _ in range(3):
            wanted = NOW + rng.randrange(1_010)
            start = rng.randrange(log.max_offset + 1)
            live = range(max(start, log.min_offset), log.max_offset)
            fits = next((offset for offset in live if stamps[offset] >= wanted), None)
            assert log.offset_for_timestamp(wanted, start) == (
                None if fits is None else (fits, stamps[fits])
            )
        live = range(log.min_offset, log.max_offset)
        largest = max(live, key=lambda offset: (stamps[offset], -offset), default=None)
        assert log.max_timestamp() == (None if largest is None else (largest, stamps[largest]))


def test_a_second_question_reads_one_block() -> None:
    log = new_log(1 << 24)
    for number in range(20_000):
        add(log, NOW + number)
    assert log.offset_for_timestamp(NOW + 19_999) == (19_999, NOW + 19_999)
    sizes: list[int] = []
    original = MemoryFile.read

    def counted(self: MemoryFile, position: int, size: int) -> bytes:
        sizes.append(size)
        return original(self, position, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFile, "read", counted)
        assert log.offset_for_timestamp(NOW + 10_000) == (10_000, NOW + 10_000)
    assert sum(sizes) < 4 * times.BLOCK_BYTES


def test_what_was_given_up_is_passed_over_in_steps() -> None:
    """A search that goes on in steps ends, also where it meets a hole, or the segment ends in one."""
    for hole in (0, 2, 4):
        disk = MemoryDisk()
        store, _ = opened(disk, StoreConfig(retention_ms=0))
        log = store.create_log("orders", 0)
        for number in range(5):
            log.append(build(log, b"x", now=NOW + number), 0, NOW + number)
        log.give_up(hole)
        found = times.Times(log._segments.all[0])
        for _ in range(10):
            found.extend(1)
        assert found.is_complete
        expected = [NOW + number for number in range(5) if number != hole]
        assert found.first_at(0, 0) == (int(hole == 0), expected[0])
        assert found.largest(0) == (expected[-1] - NOW, expected[-1])
