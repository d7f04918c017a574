from __future__ import annotations

import zlib

import pytest

from steelyard.consume.inner_batches import unwrapped
from steelyard.wire.remoting.flags import SysFlag, compress
from steelyard.wire.remoting.message import (
    BatchEntry,
    MessageView,
    decode_records,
    encode_batch,
    encode_record,
)

INNER = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP


def message(offset: int, body: bytes, sys_flag: int = 0, properties: bytes = b"") -> MessageView:
    data = encode_record(
        topic="T",
        queue_id=3,
        flag=0,
        queue_offset=offset,
        physical_offset=700,
        sys_flag=sys_flag,
        born_timestamp=5,
        born_host=b"\1" * 8,
        store_timestamp=6,
        store_host=b"\2" * 8,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )
    return decode_records(data, "b")[0]


def batch(offset: int, count: int, sys_flag: int = INNER) -> MessageView:
    entries = [
        BatchEntry(
            place, b"body %d" % place, b"TAGS\x01t%d\x02UNIQ_KEY\x01id%d\x02" % (place, place)
        )
        for place in range(count)
    ]
    body = compress(encode_batch(entries), sys_flag)
    return message(offset, body, sys_flag, b"INNER_NUM\x01%d\x02" % count)


@pytest.mark.parametrize("packed", [0, SysFlag.COMPRESSED, SysFlag.COMPRESSED | SysFlag.LZ4])
def test_the_messages_of_a_batch_are_those_that_were_sent(packed: int) -> None:
    wrapped = batch(6, 3, INNER | packed)
    _ = wrapped.body, wrapped.properties  # decoded before
    found = unwrapped([message(5, b"alone"), wrapped, message(9, b"last")], 0)
    assert [each.queue_offset for each in found] == [5, 6, 7, 8, 9]
    assert [each.body for each in found] == [b"alone", b"body 0", b"body 1", b"body 2", b"last"]
    assert [each.tags for each in found] == ["", "t0", "t1", "t2", ""]
    second = found[2]
    assert second.message_id == "id1"
    assert second.properties == {"TAGS": "t1", "UNIQ_KEY": "id1"}
    assert (second.flag, second.sys_flag) == (1, 0)
    assert second.body_crc == zlib.crc32(b"body 1") & 0x7FFFFFFF
    assert (second.queue, second.physical_offset) == (wrapped.queue, 700)
    assert (second.born_timestamp, second.store_timestamp) == (5, 6)


def test_what_lies_before_the_pull_is_left_out() -> None:
    assert [each.queue_offset for each in unwrapped([batch(6, 4)], 8)] == [8, 9]


@pytest.mark.parametrize("sys_flag", [SysFlag.INNER_BATCH, SysFlag.NEED_UNWRAP])
def test_both_marks_make_a_batch(sys_flag: int) -> None:
    messages = [batch(6, 2, sys_flag)]
    assert unwrapped(messages, 0) == messages


@pytest.mark.parametrize("body", [b"no batch", encode_batch([BatchEntry(0, b"x", b"")])[:-1]])
def test_a_damaged_batch_remains_one_message(body: bytes) -> None:
    damaged = message(6, body, INNER)
    assert unwrapped([damaged, message(8, b"next")], 0) == [damaged, message(8, b"next")]
