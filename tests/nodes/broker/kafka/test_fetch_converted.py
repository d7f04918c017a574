"""Batches made of RocketMQ messages: made once for all, kept within a limit, never made to be thrown away."""

from __future__ import annotations

import pytest

from steelyard.config import StoreConfig
from steelyard.nodes.broker.conversion.to_kafka import RECORD_EFFORT
from steelyard.nodes.broker.kafka.data import fetch_converted as module
from steelyard.nodes.broker.kafka.data.fetch_converted import Converted
from steelyard.nodes.broker.turns import AT_ONCE, SLICE
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store
from steelyard.types import Effort
from steelyard.wire.kafka.records import read_records
from steelyard.wire.remoting.ids import host_bytes
from steelyard.wire.remoting.message import encode_record

NOW = 1_700_000_000_000
HOST = host_bytes("10.1.2.3:10911")
LIMIT = 1 << 20


def log_of(count: int) -> Log:
    opened = Store(MemoryDisk(), StoreConfig())
    opened.open(NOW)
    log = opened.create_log("Orders", 0)
    for number in range(count):
        put(log, b"%d" % number)
    return log


def put(log: Log, body: bytes) -> None:
    entry = encode_record(
        topic=log.topic,
        queue_id=log.queue_id,
        flag=0,
        queue_offset=log.max_offset,
        physical_offset=log.next_address,
        sys_flag=0,
        born_timestamp=NOW,
        born_host=HOST,
        store_timestamp=NOW,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=b"",
    )
    log.append(entry, 0, NOW)


def read(converted: Converted, log: Log, offset: int, effort: Effort) -> tuple[bytes, int] | None:
    extent = log.find_run(offset, LIMIT, log.max_offset)
    found = converted.read(log, extent, LIMIT, effort)
    converted.check()
    return found


def test_the_second_reader_gets_the_same_batch_without_effort() -> None:
    log, converted = log_of(5), Converted()
    first = read(converted, log, 1, Effort(AT_ONCE))
    effort = Effort(AT_ONCE)
    assert read(converted, log, 1, effort) is first
    assert effort.left == AT_ONCE
    put(log, b"new")
    again = read(converted, log, 1, effort)
    assert again is not None
    assert first is not None
    assert (first[1], again[1]) == (5, 6)
    assert [record.value for record in read_records(again[0])][3:] == [b"4", b"new"]
    assert effort.left < AT_ONCE


def test_batches_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    log, converted = log_of(9), Converted()
    first = read(converted, log, 0, Effort(AT_ONCE))
    assert first is not None
    monkeypatch.setattr(module, "KEPT_BYTES_MAX", 2 * len(first[0]))
    second = read(converted, log, 1, Effort(AT_ONCE))
    assert read(converted, log, 0, Effort(0)) is first
    assert read(converted, log, 2, Effort(AT_ONCE)) is not None
    assert read(converted, log, 0, Effort(0)) is first
    assert read(converted, log, 1, Effort(AT_ONCE)) is not second


def test_a_long_run_waits_for_a_turn_and_takes_as_much_as_that_allows() -> None:
    count = 2 * SLICE // RECORD_EFFORT
    log, converted = log_of(count), Converted()
    effort = Effort(AT_ONCE)
    assert read(converted, log, 0, effort) is None
    assert effort.left == 0
    effort = Effort(SLICE)
    found = read(converted, log, 0, effort)
    assert found is not None
    assert effort.left <= 0
    assert SLICE // RECORD_EFFORT // 2 <= found[1] <= SLICE // RECORD_EFFORT + 1
    # what others left of a turn is used, if it is worth it
    found = read(converted, log, 1, Effort(2 * AT_ONCE))
    assert found is not None
    assert found[1] - 1 <= 2 * AT_ONCE // RECORD_EFFORT + 1
    # a run of which no part is left over needs no turn of its own
    assert read(converted, log, count - 10, Effort(AT_ONCE)) is not None
