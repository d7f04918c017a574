"""What the feeder sends to Kafka's brokers, read by what others wrote."""

from __future__ import annotations

import struct

from aiokafka.record.memory_records import MemoryRecords
from bench.produce import base_offset, produce_frame, record_batch


def test_another_client_reads_the_batch() -> None:
    now_ms = 1_700_000_000_123
    batch = MemoryRecords(record_batch(70, 300, now_ms)).next_batch()
    assert batch.validate_crc()
    records = list(batch)
    assert [record.offset for record in records] == list(range(70))
    assert {(record.key, len(record.value), record.timestamp) for record in records} == {
        (None, 300, now_ms)
    }


def test_a_frame_says_its_size_and_partition() -> None:
    frame = produce_frame("Topic", 5, 1, 10, 0)
    assert struct.unpack_from(">ihh", frame) == (len(frame) - 4, 0, 3)
    batch = record_batch(1, 10, 0)
    head = b"\0\5Topic" + struct.pack(">iii", 1, 5, len(batch))
    assert frame.endswith(head + batch)


def test_a_reply_has_the_offset_or_an_error() -> None:
    def reply(code: int) -> bytes:
        topic = struct.pack(">ih5si", 1, 5, b"Topic", 1)
        return struct.pack(">ii", 0, 1) + topic + struct.pack(">ihqqi", 5, code, 77, -1, 0)

    assert base_offset(reply(0), "Topic") == 77
    assert base_offset(reply(6), "Topic") is None
