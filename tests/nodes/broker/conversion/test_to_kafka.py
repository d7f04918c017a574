"""RocketMQ messages as Kafka batches: what becomes of what, limits, and the law that compares it with a slow encoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.conversion import to_kafka as module
from steelyard.nodes.broker.conversion.to_kafka import LAYOUTS_MAX, Layouts, to_batch
from steelyard.types import Effort
from steelyard.wire.kafka.records import Record, read_records
from steelyard.wire.remoting.flags import SysFlag, compress
from steelyard.wire.remoting.ids import host_bytes
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record

EVERYTHING = 1 << 40
BORN = 1_700_000_000_000
V4, V6 = host_bytes("10.1.2.3:10911"), host_bytes("[2001:db8::1]:10911")
LZ4 = int(SysFlag.COMPRESSED | SysFlag.LZ4)


class Given(NamedTuple):
    body: bytes = b""
    properties: bytes = b""
    sys_flag: int = 0
    born: int = BORN
    born_host: bytes = V4
    store_host: bytes = V4


def run_of(messages: Sequence[Given], first: int = 0, topic: str = "Orders") -> bytes:
    return b"".join(
        encode_record(
            topic=topic,
            queue_id=1,
            flag=7,
            queue_offset=first + number,
            physical_offset=300 * number,
            sys_flag=message.sys_flag,
            born_timestamp=message.born,
            born_host=message.born_host,
            store_timestamp=BORN + 1,
            store_host=message.store_host,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=compress(message.body, message.sys_flag),
            properties=message.properties,
        )
        for number, message in enumerate(messages)
    )


def converted(data: bytes, bytes_max: int = EVERYTHING) -> tuple[bytes, int]:
    return to_batch(data, bytes_max, Effort(EVERYTHING), Layouts())


# -- the slow encoder ------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """Zigzag, then seven bits a byte, the lowest first."""
    rest = 2 * value if value >= 0 else -2 * value - 1
    digits = []
    while rest >= 128:
        digits.append(rest % 128 + 128)
        rest //= 128
    return bytes([*digits, rest])


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def reference(views: Sequence[MessageView]) -> bytes:
    """The batch by the book: from decoded messages, each part for itself (KIP-98, DefaultRecord.java)."""
    base, born = views[0].queue_offset, views[0].born_timestamp
    records = b""
    for view in views:
        try:
            body = view.body
        except ProtocolError:
            body = view.stored_body
        properties = dict(view.properties)
        keys = properties.pop("KEYS", None)
        record = bytes(1) + varint(view.born_timestamp - born) + varint(view.queue_offset - base)
        record += field(None if keys is None else keys.encode()) + field(body)
        record += varint(len(properties))
        for name, value in properties.items():
            record += field(name.encode()) + field(value.encode())
        records += varint(len(record)) + record
    latest = max(view.born_timestamp for view in views)
    last = len(views) - 1
    checked = struct.pack(">hiqqqhii", 0, last, born, latest, -1, -1, -1, len(views)) + records
    return struct.pack(">qiibI", base, 9 + len(checked), 0, 2, crc32c(checked)) + checked


names = st.sampled_from(
    [b"UNIQ_KEY", b"KEYS", b"TAGS", b"a", b"", "ü".encode(), b"\xff", b"n" * 80]
)
values = st.one_of(
    st.sampled_from([b"v", b"", b"\xff\xfe", b"x\x01y", "größe".encode(), b"long" * 30]),
    st.binary(max_size=70),
)
pairs = st.tuples(names, values).map(b"\x01".join)
loose = st.lists(st.one_of(pairs, pairs, pairs, st.binary(max_size=9)), max_size=6).map(
    b"\x02".join
)
layouts = st.permutations([b"UNIQ_KEY", b"KEYS", b"TAGS", b"a.b"]).flatmap(
    lambda order: st.lists(st.integers(0, 99), min_size=4, max_size=4).map(
        lambda numbers: b"".join(
            b"%s\x01%d\x02" % pair for pair in zip(order, numbers, strict=True)
        )
    )
)
properties = st.one_of(layouts, loose, st.builds(bytes.__add__, loose, st.just(b"\x02")))
messages = st.builds(
    Given,
    body=st.one_of(st.binary(max_size=40), st.sampled_from([bytes(200), bytes(9_000)])),
    properties=properties,
    sys_flag=st.sampled_from([0, 0, 0, LZ4, int(SysFlag.COMPRESSED | SysFlag.ZSTD), 4]),
    born=st.one_of(st.integers(BORN - 99, BORN + 99), st.integers(-(2**63), 2**63 - 1)),
    born_host=st.sampled_from([V4, V4, V6]),
    store_host=st.sampled_from([V4, V4, V6]),
)
runs = st.one_of(
    st.lists(messages, min_size=1, max_size=8),
    # as a producer sends them: the same names again and again
    st.tuples(messages, st.integers(2, 9)).map(lambda given: [given[0]] * given[1]),
)


@given(
    st.lists(runs, min_size=1, max_size=3),
    st.integers(0, 2**40),
    st.sampled_from(["Orders", "t" * 127, "t" * 128, "größe" * 30]),
)
def test_a_batch_is_what_the_slow_encoder_makes(
    given_runs: list[list[Given]], first: int, topic: str
) -> None:
    data = run_of([message for run in given_runs for message in run], first, topic)
    views = decode_records(data)
    assert converted(data) == (reference(views), first + len(views))


@given(st.integers(1, 300), st.integers(0, 3_000), st.integers(0, 2_000))
def test_limits_take_whole_messages_from_the_front(count: int, room: int, effort: int) -> None:
    data = run_of([Given(bytes(number % 50), b"TAGS\x01t\x02") for number in range(count)])
    batch, next_offset = to_batch(data, room, Effort(effort), Layouts())
    assert 1 <= next_offset <= count
    assert batch == reference(decode_records(data)[:next_offset])


# -- what becomes of what --------------------------------------------------------------------------


def test_a_message_for_kafka() -> None:
    data = run_of(
        [
            Given(b"plain", b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x01U1\x02a\x011\x02"),
            Given(b"long" * 100, sys_flag=LZ4),
            Given(b"damaged"),
        ]
    )
    at = data.rindex(b"damaged") - 88
    data = data[: at + 36] + LZ4.to_bytes(4, "big") + data[at + 40 :]
    batch, next_offset = converted(data)
    assert next_offset == 3
    headers = (("TAGS", b"TagA"), ("UNIQ_KEY", b"U1"), ("a", b"1"))
    assert read_records(batch) == (
        Record(0, BORN, b"k1 k2", b"plain", headers),
        Record(1, BORN, None, b"long" * 100),
        Record(2, BORN, None, b"damaged"),
    )


def test_a_batch_for_kafka_has_a_limit_and_one_message_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = run_of([Given(bytes(100))] * 4, first=1)
    size = len(data) // 4
    assert converted(data, 2 * size)[1] == 3
    assert converted(data, 2 * size - 1)[1] == 2
    assert converted(data, 1)[1] == 2
    assert to_batch(data, EVERYTHING, Effort(0), Layouts())[1] == 2
    batch, next_offset = converted(data)
    assert (next_offset, [item.offset for item in read_records(batch)]) == (5, [1, 2, 3, 4])
    monkeypatch.setattr(module, "CONVERTED_BYTES_MAX", 3 * size)
    assert converted(data)[1] == 4


def test_bodies_that_grow_when_they_are_decompressed_count_as_they_are_then() -> None:
    data = run_of([Given(bytes(1_000), sys_flag=int(SysFlag.COMPRESSED | SysFlag.ZSTD))] * 5)
    assert len(data) < 1_000
    assert converted(data, 2_999)[1] == 2
    assert converted(data, 10)[1] == 1


@pytest.mark.parametrize("position", [4, 39, 84, 92])
def test_what_is_no_record_is_refused(position: int) -> None:
    data = bytearray(run_of([Given(b"body")] * 3))
    size = len(data) // 3
    data[2 * size + position] ^= 0x31
    with pytest.raises(ProtocolError):
        converted(bytes(data))
    with pytest.raises(ProtocolError):
        converted(run_of([Given(b"body")])[:-1])


# -- layouts ---------------------------------------------------------------------------------------


def test_layouts_are_kept_within_a_limit_and_compiling_one_is_work() -> None:
    layouts = Layouts()
    for number in range(2 * LAYOUTS_MAX):
        data = run_of([Given(properties=b"n%d\x01v\x02" % number)] * 2)
        to_batch(data, EVERYTHING, Effort(EVERYTHING), layouts)
        assert 0 < len(layouts) <= LAYOUTS_MAX
    spent = []
    for _ in range(2):
        effort = Effort(EVERYTHING)
        data = run_of([Given(properties=b"fresh\x01v\x02")] * 2)
        to_batch(data, EVERYTHING, effort, layouts)
        spent.append(EVERYTHING - effort.left)
    assert spent[0] > 300 > spent[1] > 0


def test_a_message_with_very_many_properties_has_no_layout() -> None:
    layouts = Layouts()
    many = b"".join(b"n%d\x01v\x02" % number for number in range(1_000))
    data = run_of([Given(properties=many)] * 3)
    batch, _ = to_batch(data, EVERYTHING, Effort(EVERYTHING), layouts)
    assert batch == reference(decode_records(data))
    assert len(layouts) == 0
