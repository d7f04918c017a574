"""Columns hold the values that messages decoded one by one have, and damage is told from records."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark.rows import rows_of

from steelyard.errors import ProtocolError
from steelyard.spark.reading import columns
from steelyard.wire.remoting.flags import SysFlag, compress
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record

IPV4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
IPV6 = bytes(range(16)) + b"\x00\x00\x2a\x9f"


def record(
    *,
    topic: str = "TopicA",
    body: bytes = b"hello",
    properties: bytes = b"TAGS\x01TagA\x02",
    sys_flag: int = 0,
    queue_offset: int = 2,
    born_host: bytes = IPV4,
    store_host: bytes = IPV4,
    numbers: tuple[int, int, int, int] = (1, 0, 300, 3),
    times: tuple[int, int] = (1_700_000_000_000, 1_700_000_000_001),
) -> bytes:
    queue_id, flag, physical_offset, reconsume_times = numbers
    return encode_record(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=times[0],
        born_host=born_host,
        store_timestamp=times[1],
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        body=compress(body, sys_flag),
        properties=properties,
    )


def microseconds(at: int) -> int:
    return min(max(at, -columns.MILLISECONDS_MAX), columns.MILLISECONDS_MAX) * 1000


def row_of(view: MessageView) -> dict[str, object]:
    """What Spark is to see of a message."""
    return {
        "topic": view.topic,
        "brokerName": view.broker_name,
        "queueId": view.queue_id,
        "queueOffset": view.queue_offset,
        "bornTimestamp": microseconds(view.born_timestamp),
        "storeTimestamp": microseconds(view.store_timestamp),
        "keys": view.keys or None,
        "tags": view.tags or None,
        "body": view.body,
        "properties": list(view.properties.items()),
        "flag": view.flag,
        "reconsumeTimes": view.reconsume_times,
        "msgId": view.message_id,
    }


def test_columns_of_the_golden_record() -> None:
    # rocketmq.md c.1, made by RocketMQ's MessageDecoder.
    data = bytes.fromhex(
        "00000070DAA320A73610A6860000000100000000000000000000000200000000000001"
        "2C000000000000018BCFE568007F000001000013880000018BCFE568017F000001"
        "00002A9F0000000000000000000000000000000568656C6C6F06546F7069634100"
        "0A5441475301546167410 2".replace(" ", "")
    )
    assert rows_of(columns.decode(data, "broker-a")) == [
        {
            "topic": "TopicA",
            "brokerName": "broker-a",
            "queueId": 1,
            "queueOffset": 2,
            "bornTimestamp": 1_700_000_000_000_000,
            "storeTimestamp": 1_700_000_000_001_000,
            "keys": None,
            "tags": "TagA",
            "body": b"hello",
            "properties": [("TAGS", "TagA")],
            "flag": 0,
            "reconsumeTimes": 0,
            "msgId": "7F00000100002A9F000000000000012C",
        }
    ]


def test_nothing_is_a_batch_without_rows() -> None:
    assert columns.decode(b"", "b").num_rows == 0
    assert columns.decode(b"", "b").schema == columns.SCHEMA


PROPERTIES = {
    "none": b"",
    "last separator left out, as 4.x does": b"TAGS\x01a\x02KEYS\x01k",
    "no value": b"TAGS\x01\x02KEYS\x01k\x02",
    "no name": b"\x01a\x02KEYS\x01k\x02",
    "no separator": b"TAGS\x02KEYS\x01k\x02",
    "separator within a value": b"a\x01b\x01c\x02",
    "equal names": b"TAGS\x01a\x02x\x01y\x02TAGS\x01b\x02",
    "equal names, the last without a value": b"TAGS\x01a\x02TAGS\x01\x02",
    "no UTF-8": b"TAGS\x01\xff\xfe\x02KEYS\x01k\xc3\x02",
    "many bytes a character": "KEYS\x01naïve 鍵\x02".encode(),
    "only separators": b"\x02\x02\x01\x02\x01\x01\x02",
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_are_split_as_for_one_message(name: str) -> None:
    data = record() + record(properties=PROPERTIES[name]) + record(properties=b"KEYS\x01z\x02")
    expected = [row_of(view) for view in decode_records(data, "b")]
    assert rows_of(columns.decode(data, "b")) == expected


def test_a_name_end_belongs_to_the_message_that_has_it() -> None:
    """As many as there are segments, but none in the first and two in the second."""
    data = record(properties=b"") + record(properties=b"\x01\x01\x00")
    assert rows_of(columns.decode(data, "b"))[1]["properties"] == []


@pytest.mark.parametrize("kind", [0, SysFlag.LZ4, SysFlag.ZSTD, SysFlag.ZLIB])
def test_compressed_bodies_come_plain(kind: int) -> None:
    data = record() + record(body=b"x" * 5000, sys_flag=SysFlag.COMPRESSED | kind)
    bodies = columns.decode(data, "b").column("body").to_pylist()
    assert bodies == [b"hello", b"x" * 5000]


def test_a_body_may_look_like_records() -> None:
    data = record(body=record() * 2) + record(body=b"....\xda\xa3\x20\xa7") + record()
    expected = [row_of(view) for view in decode_records(data, "b")]
    assert rows_of(columns.decode(data, "b")) == expected


def test_times_beyond_microseconds_are_cut_off() -> None:
    batch = columns.decode(record(times=(2**63 - 1, -(2**63))), "b")
    limit = columns.MILLISECONDS_MAX * 1000
    assert batch.column("bornTimestamp").cast(pa.int64()).to_pylist() == [limit]
    assert batch.column("storeTimestamp").cast(pa.int64()).to_pylist() == [-limit]


texts = st.text(st.characters(codec="utf-8"), max_size=6)
property_bytes = st.one_of(
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\x01", b"\x02", b"\xff"])).map(
        b"".join
    ),
    st.dictionaries(texts, texts, max_size=4).map(
        lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found.items()).encode()
    ),
)
hosts = st.sampled_from([IPV4, IPV6])
int32 = st.integers(-(2**31), 2**31 - 1)
times = st.integers(0, 2**50)
records = st.builds(
    record,
    topic=st.sampled_from(["T", "TopicA", "t" * 128, "é" * 100, "%RETRY%group"]),
    body=st.binary(max_size=50),
    properties=property_bytes,
    sys_flag=st.sampled_from([0, SysFlag.COMPRESSED, SysFlag.MULTI_TAGS]),
    queue_offset=st.integers(0, 2**63 - 1),
    born_host=hosts,
    store_host=hosts,
    numbers=st.tuples(int32, int32, st.integers(0, 2**63 - 1), int32),
    times=st.tuples(times, times),
)


@given(st.lists(records, max_size=6).map(b"".join))
@settings(max_examples=examples(150))
def test_columns_equal_messages_decoded_one_by_one(data: bytes) -> None:
    expected = [row_of(view) for view in decode_records(data, "broker-a")]
    assert rows_of(columns.decode(data, "broker-a")) == expected


@pytest.mark.parametrize("cut", range(1, 112))
def test_a_record_cut_short_is_refused(cut: int) -> None:
    data = record()
    assert len(data) == 112
    with pytest.raises(ProtocolError):
        columns.decode(data + data[:cut], "b")


DAMAGE = {
    "size too small": (0, b"\x00\x00\x00\x00"),
    "size of 2 GB": (0, b"\x7f\xff\xff\xff"),
    "unknown magic": (4, b"\xca\xfe\xba\xbe"),
    "body longer than the record": (84, b"\x00\x00\xff\xff"),
    "body of negative size": (84, b"\xff\xff\xff\xfe"),
    "topic longer than the record": (93, b"\xff"),
    "topic shorter, so that the rest does not add up": (93, b"\x05"),
    "properties shorter than the rest": (100, b"\x00\x09"),
    "properties longer than the rest": (100, b"\x00\x0b"),
    "IPv6 flag without the bytes": (36, b"\x00\x00\x00\x30"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused(name: str) -> None:
    position, wrong = DAMAGE[name]
    data = bytearray(record() * 2)
    data[position : position + len(wrong)] = wrong
    with pytest.raises(ProtocolError):
        columns.decode(bytes(data), "b")


def attempt(decode: Callable[[], list[dict[str, object]]]) -> list[dict[str, object]] | None:
    try:
        return decode()
    except ProtocolError:
        return None


@given(st.binary(max_size=40), st.integers(0, 223))
@settings(max_examples=examples(300))
def test_damaged_records_are_refused_by_both_decoders_or_by_none(noise: bytes, at: int) -> None:
    data = bytearray(record() * 2)
    data[at : at + len(noise)] = noise
    expected = attempt(lambda: [row_of(view) for view in decode_records(bytes(data), "b")])
    assert attempt(lambda: rows_of(columns.decode(bytes(data), "b"))) == expected
