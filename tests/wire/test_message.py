from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.errors import MessageError, ProtocolError
from steelyard.types import MessageQueue
from steelyard.wire.remoting.flags import SysFlag, compress
from steelyard.wire.remoting.message import (
    BatchEntry,
    MessageView,
    batch_entries,
    decode_records,
    encode_batch,
    encode_record,
    record_properties,
    record_size,
    record_writer,
)
from steelyard.wire.remoting.properties import decode_properties

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.one_of([st.binary(min_size=size, max_size=size) for size in (8, 20)])
RECORDS = st.fixed_dictionaries(
    {
        "topic": st.text(max_size=200),
        "queue_id": INT32,
        "flag": INT32,
        "queue_offset": INT64,
        "physical_offset": INT64,
        "sys_flag": INT32.map(lambda flag: flag & ~SysFlag.COMPRESSED),
        "born_timestamp": INT64,
        "born_host": HOSTS,
        "store_timestamp": INT64,
        "store_host": HOSTS,
        "reconsume_times": INT32,
        "prepared_transaction_offset": INT64,
        "body": st.binary(max_size=50),
        "properties": st.binary(max_size=50),
    }
)

GOLDEN: dict[str, Any] = {
    "topic": "TopicA",
    "queue_id": 1,
    "flag": 0,
    "queue_offset": 2,
    "physical_offset": 300,
    "sys_flag": 0,
    "born_timestamp": 1700000000000,
    "born_host": bytes.fromhex("7F00000100001388"),
    "store_timestamp": 1700000000001,
    "store_host": bytes.fromhex("7F00000100002A9F"),
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": b"hello",
    "properties": b"TAGS\x01TagA\x02",
}


def record(**changes: Any) -> bytes:
    return encode_record(**(GOLDEN | changes))


# -- golden ----------------------------------------------------------------------------------------


def test_golden_record_both_ways(golden: dict[str, str]) -> None:
    data = bytes.fromhex(golden["message binary"])
    assert record() == data
    assert record_size(data) == len(data)
    [view] = decode_records(data, "broker-a")
    assert view == MessageView(
        broker_name="broker-a",
        topic="TopicA",
        queue_id=1,
        flag=0,
        queue_offset=2,
        physical_offset=300,
        sys_flag=0,
        born_timestamp=1700000000000,
        born_host_bytes=GOLDEN["born_host"],
        store_timestamp=1700000000001,
        store_host_bytes=GOLDEN["store_host"],
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0x3610A686,
        stored_body=b"hello",
        property_bytes=b"TAGS\x01TagA\x02",
    )
    view.verify()
    assert view.body == b"hello"
    assert view.tags == "TagA"
    assert view.keys == ""
    assert view.properties == {"TAGS": "TagA"}
    assert view.property_of("TAGS") == "TagA"
    assert view.queue == MessageQueue("TopicA", "broker-a", 1)
    assert view.message_id == view.offset_message_id == "7F00000100002A9F000000000000012C"
    assert (view.born_host, view.store_host) == ("127.0.0.1:5000", "127.0.0.1:10911")


def test_golden_batch_both_ways(golden: dict[str, str]) -> None:
    data = bytes.fromhex(golden["batch encode (1 msg)"])
    ((flag, body, properties),) = batch_entries(data)
    assert (flag, body) == (0, b"hello")
    assert decode_properties(properties)["UNIQ_KEY"] == "7F0000010001000000000000000000AA"
    assert encode_batch([BatchEntry(flag, body, properties)]) == data


def test_captured_records(captures: list[Any]) -> None:
    """Pull replies, views by id and transaction checks of a real broker."""
    count = 0
    for frame in captures:
        if frame.kind != "REQ" and frame.body and not frame.body.startswith("{"):
            data = frame.body_bytes
            views = decode_records(data, "TestBrokerName_0")
            assert sum(record_size(data, position) for position in positions(data)) == len(data)
            for view in views:
                view.verify()
                assert view.properties["UNIQ_KEY"] == view.message_id
                assert view.topic
            again = [
                encode_record(
                    topic=view.topic,
                    queue_id=view.queue_id,
                    flag=view.flag,
                    queue_offset=view.queue_offset,
                    physical_offset=view.physical_offset,
                    sys_flag=view.sys_flag,
                    born_timestamp=view.born_timestamp,
                    born_host=view.born_host_bytes,
                    store_timestamp=view.store_timestamp,
                    store_host=view.store_host_bytes,
                    reconsume_times=view.reconsume_times,
                    prepared_transaction_offset=view.prepared_transaction_offset,
                    body=view.stored_body,
                    properties=view.property_bytes,
                )
                for view in views
            ]
            assert b"".join(again) == data
            count += len(views)
    assert count >= 20


def positions(data: bytes) -> list[int]:
    starts = [0]
    while (position := starts[-1] + record_size(data, starts[-1])) < len(data):
        starts.append(position)
    return starts


# -- laws ------------------------------------------------------------------------------------------


@given(st.lists(RECORDS, max_size=4))
def test_round_trip(records: list[dict[str, Any]]) -> None:
    data = b"".join(encode_record(**fields) for fields in records)
    views = decode_records(data, "b")
    assert len(views) == len(records)
    for view, fields in zip(views, records, strict=True):
        view.verify()
        host_flags = 0x10 * (len(fields["born_host"]) == 20) | 0x20 * (
            len(fields["store_host"]) == 20
        )
        assert view == MessageView(
            broker_name="b",
            sys_flag=fields["sys_flag"] & ~0x30 | host_flags,
            born_host_bytes=fields["born_host"],
            store_host_bytes=fields["store_host"],
            body_crc=zlib.crc32(fields["body"]) & 0x7FFFFFFF,
            stored_body=fields["body"],
            property_bytes=fields["properties"],
            **{name: fields[name] for name in MessageView.__struct_fields__ if name in fields and name != "sys_flag"},
        )  # fmt: skip


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_properties_are_found_without_the_rest(records: list[dict[str, Any]]) -> None:
    data = b"".join(encode_record(**fields) for fields in records)
    position = 0
    for view in decode_records(data):
        properties, position = record_properties(data, position)
        assert properties == view.property_bytes
    assert position == len(data)
    for size in range(0, record_properties(data)[1], 7):
        with pytest.raises(ProtocolError):
            record_properties(data[:size])


@given(st.lists(st.builds(BatchEntry, INT32, st.binary(max_size=50), st.binary(max_size=50))))
def test_batch_round_trip(entries: list[BatchEntry]) -> None:
    assert list(batch_entries(encode_batch(entries))) == entries


def test_cut_at_every_length() -> None:
    data = record(born_host=bytes(20), store_host=bytes(20))
    entries = encode_batch([BatchEntry(0, b"body", b"a\x01b\x02")])
    for size in range(1, len(data)):
        with pytest.raises(ProtocolError):
            decode_records(record() + data[:size])
        with pytest.raises(ProtocolError):
            record_size(data[:size])
    for size in range(1, len(entries)):
        with pytest.raises(ProtocolError):
            list(batch_entries(entries + entries[:size]))


@given(st.data())
@settings(max_examples=examples(200))
def test_a_changed_byte_is_an_error_or_another_message(data: st.DataObject) -> None:
    changed = bytearray(record() + record())
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] = data.draw(st.integers(0, 255))
    try:
        views = decode_records(bytes(changed))
    except ProtocolError:
        return
    assert len(views) == 2
    for view in views:
        assert isinstance(view.properties, dict)


# -- rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "magic"), [(127, 0xDAA320A7), (128, 0xDAA320AB), (255, 0xDAA320AB)]
)
def test_long_topics_have_the_second_magic(size: int, magic: int) -> None:
    data = record(topic="t" * size)
    assert int.from_bytes(data[4:8], "big") == magic
    assert decode_records(data)[0].topic == "t" * size


@pytest.mark.parametrize("sys_flag", [1, 0x101, 0x201, 0x301])
def test_bodies_are_decompressed_when_asked_for(sys_flag: int) -> None:
    [view] = decode_records(record(body=compress(b"x" * 1000, sys_flag), sys_flag=sys_flag))
    assert len(view.stored_body) < 100
    view.verify()
    assert view.body == b"x" * 1000
    assert view.body is view.body


def test_a_damaged_compressed_body_harms_only_who_asks() -> None:
    first, second = decode_records(record(sys_flag=1) + record())
    assert second.body == b"hello"
    with pytest.raises(ProtocolError, match="zlib"):
        first.body  # noqa: B018


def test_a_wrong_crc_is_found_on_request() -> None:
    data = bytearray(record())
    data[8] ^= 1
    [view] = decode_records(bytes(data))
    with pytest.raises(
        ProtocolError, match="7F00000100002A9F000000000000012C does not match its CRC"
    ):
        view.verify()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topic": "t" * 32768}, "topic of 32768 bytes"),
        ({"properties": bytes(32768)}, "properties of 32768 bytes"),
        ({"flag": 2**31}, "out of range"),
        ({"queue_offset": -(2**63) - 1}, "out of range"),
    ],
)
def test_what_fits_no_record_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MessageError, match=words):
        record(**changes)


def test_batch_properties_are_limited() -> None:
    with pytest.raises(MessageError, match="32768 bytes"):
        encode_batch([BatchEntry(0, b"", bytes(32768))])


@pytest.mark.parametrize("size", [-1, 0, 4, 21, 2**31 - 1])
def test_a_batch_with_a_wrong_size_is_refused(size: int) -> None:
    data = encode_batch([BatchEntry(0, b"x", b"")])
    with pytest.raises(ProtocolError):
        list(batch_entries(size.to_bytes(4, "big", signed=True) + data[4:]))


def test_filler_at_the_end_of_a_file_is_no_record() -> None:
    data = (100).to_bytes(4, "big") + bytes.fromhex("CBD43194") + bytes(92)
    for read in (record_size, decode_records):
        with pytest.raises(ProtocolError, match="magic 0xcbd43194"):
            read(data)


def test_views_compare_by_what_is_stored() -> None:
    data = record(sys_flag=1, body=zlib.compress(b"x"))
    [one], [two] = decode_records(data), decode_records(data)
    assert one.body == b"x"
    assert one.properties
    assert one == two
    assert hash(one) == hash(two)
    assert one != decode_records(data, "other")[0]
    assert one != msgspec.structs.replace(two, queue_offset=3)


@given(
    st.text(max_size=60),
    INT32,
    HOSTS,
    HOSTS,
    st.tuples(INT32, INT32),
    st.tuples(INT32, *[st.integers(0, 2**63 - 1)] * 4),
    st.binary(max_size=50),
    st.binary(max_size=50),
)
def test_the_quick_writer_of_a_queue_writes_the_same(
    topic: str,
    queue_id: int,
    born_host: bytes,
    store_host: bytes,
    common: tuple[int, int],
    numbers: tuple[int, int, int, int, int],
    body: bytes,
    properties: bytes,
) -> None:
    flag, queue_offset, physical_offset, born, stored = numbers
    write = record_writer(topic, queue_id, born_host, store_host, *common)
    assert write(*numbers, body, properties) == encode_record(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=common[0],
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=stored,
        store_host=store_host,
        reconsume_times=common[1],
        prepared_transaction_offset=0,
        body=body,
        properties=properties,
    )


def test_the_quick_writer_refuses_what_has_no_place() -> None:
    write = record_writer("T", 0, bytes(8), bytes(8))
    with pytest.raises(MessageError, match="properties of 32768 bytes; the limit is 32767"):
        write(0, 0, 0, 0, 0, b"", bytes(32768))
    with pytest.raises(MessageError, match="a number of the message is out of range"):
        write(0, 0, 0, 1 << 63, 0, b"", b"")
