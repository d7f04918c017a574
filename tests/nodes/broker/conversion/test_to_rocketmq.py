"""Kafka's records read by RocketMQ consumers: what becomes of what, filters, limits, transactions, addresses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import START, TOPIC

from steelyard.config import StoreConfig
from steelyard.conversion import messages
from steelyard.conversion.messages import RESERVED, unique_prefix
from steelyard.groups.remoting.subscriptions import ALL, SQL92, Filter, parse
from steelyard.ledger.events import Backlog, Delivered
from steelyard.nodes.broker.conversion import to_rocketmq as module
from steelyard.nodes.broker.conversion.to_kafka import Layouts, to_batch
from steelyard.nodes.broker.conversion.to_rocketmq import Conversion
from steelyard.nodes.broker.filters import SCAN_MESSAGES_MAX
from steelyard.store.entry import BATCHES, RECORDS
from steelyard.store.log import Log
from steelyard.store.memory import MemoryDisk
from steelyard.store.reads import Slice
from steelyard.store.store import Store
from steelyard.types import Effort
from steelyard.wire import stored_batches
from steelyard.wire.kafka import unpacking
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.packing import pack_batch, pack_record
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    BatchHeader,
    Marker,
    Record,
    read_records,
    read_times,
    with_offset,
    write_batch,
    write_marker,
)
from steelyard.wire.kafka.unpacking import Unpacking
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import tag_code
from steelyard.wire.remoting.ids import host_bytes
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record
from steelyard.wire.remoting.properties import encode_properties

HOST = host_bytes("10.1.2.3:10911")
PULL = RequestCode.PULL_MESSAGE
EVERYTHING = 1 << 40


def unique_key(host: bytes, log_id: int, offset: int) -> str:
    return f"{unique_prefix(host, log_id)}{offset:014X}"


def new_log(store: StoreConfig | None = None) -> Log:
    opened = Store(MemoryDisk(), store or StoreConfig())
    opened.open(START)
    return opened.create_log(TOPIC, 2)


def put(
    log: Log, body: bytes = b"", properties: dict[str, str] | None = None, flag: int = 0
) -> None:
    text = encode_properties(properties or {})
    entry = encode_record(
        topic=log.topic,
        queue_id=log.queue_id,
        flag=0,
        queue_offset=log.max_offset,
        physical_offset=log.next_address,
        sys_flag=flag,
        born_timestamp=START - 5,
        born_host=HOST,
        store_timestamp=START,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=text.encode(),
    )
    tag = (properties or {}).get(props.TAGS, "")
    log.append(entry, tag_code(tag) if tag else 0, START)


def produce(
    log: Log,
    *records: Record,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    attributes: int = 0,
    now: int = START,
) -> int:
    """Append records as one batch; their offsets are given here."""
    first = log.max_offset
    placed = [
        Record(first + number, item.timestamp, item.key, item.value, item.headers)
        for number, item in enumerate(records)
    ]
    batch = write_batch(
        placed, compression=compression, producer_id=producer_id, attributes=attributes
    )
    return log.append_batch(batch, len(placed), now)


def record(value: bytes | None, tag: str = "", key: bytes | None = None) -> Record:
    headers = ((props.TAGS, tag.encode()),) if tag else ()
    return Record(0, START - 9, key, value, headers)


def read(
    conversion: Conversion,
    log: Log,
    offset: int,
    count_max: int,
    bytes_max: int,
    wanted: Filter,
    end: int,
) -> Slice:
    """What a read finds that has all the time it needs."""
    found = conversion.read(log, offset, count_max, bytes_max, wanted, end, Effort(EVERYTHING))
    assert found is not None
    return found


def all_of(
    log: Log, wanted: Filter = ALL, conversion: Conversion | None = None
) -> list[MessageView]:
    """What a RocketMQ consumer gets from a log that holds batches only."""
    conversion = conversion or Conversion(HOST)
    found: list[MessageView] = []
    offset = log.min_offset
    while offset < conversion.readable_end(log, log.max_offset):
        part = read(conversion, log, offset, 7, EVERYTHING, wanted, log.max_offset)
        assert part.next_offset > offset
        views = decode_records(part.data)
        assert len(views) == part.count
        assert part.first_offset == (views[0].queue_offset if views else part.next_offset)
        offset, found = part.next_offset, found + views
        conversion.check()
    return found


# -- what becomes of what --------------------------------------------------------------------------


def test_a_record_for_rocketmq() -> None:
    log = new_log()
    put(log)
    headers = (("TAGS", b"TagA"), ("a", b"1"), ("a", b"2"), ("UNIQ_KEY", b"U9"), ("none", None))
    address = log.next_address
    produce(log, record(None), Record(0, START - 3, b"the key", b"body", headers), now=START + 4)
    first, second = decode_records(
        read(Conversion(HOST), log, 1, 32, EVERYTHING, ALL, EVERYTHING).data, "broker-a"
    )
    assert (first.body, first.keys, first.tags, first.queue_offset) == (b"", "", "", 1)
    assert second.body == b"body"
    assert dict(second.properties) == {
        "UNIQ_KEY": unique_key(HOST, log.log_id, 2),
        "TAGS": "TagA",
        "KEYS": "the key",
        "a": "2",
    }
    assert (second.topic, second.queue_id, second.queue_offset) == (TOPIC, 2, 2)
    assert first.physical_offset == second.physical_offset == address
    assert (second.born_timestamp, second.store_timestamp) == (START - 3, START + 4)
    assert (second.flag, second.sys_flag, second.reconsume_times) == (0, 0, 0)
    assert second.born_host == second.store_host == "10.1.2.3:10911"
    second.verify()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", b"\xff"),
        ("n", b"a\x01b"),
        ("n", b"a\x02b"),
        ("a\x01b", b"v"),
        ("a\x02b", b"v"),
        ("", b"v"),
        ("n", b""),
        *((name, b"v") for name in sorted(RESERVED)),
    ],
)
def test_what_is_no_text_or_reserved_is_left_out(name: str, value: bytes) -> None:
    log = new_log()
    produce(log, Record(0, START, value, b"body", ((name, value), ("other", b"kept"))))
    (view,) = all_of(log)
    kept = dict(view.properties)
    assert kept.pop("UNIQ_KEY") == unique_key(HOST, log.log_id, 0)
    assert kept.pop("KEYS", "") == ("v" if value == b"v" else "")
    assert kept == {"other": "kept"}


def test_a_record_without_a_timestamp_was_born_when_it_was_stored() -> None:
    log = new_log()
    produce(log, Record(0, -1, None, b""), now=START + 7)
    assert all_of(log)[0].born_timestamp == START + 7


def test_as_many_headers_as_fit() -> None:
    log = new_log()
    big = b"x" * 20_000
    produce(log, Record(0, START, None, b"", (("a", big), ("b", big), ("c", b"small"))))
    produce(log, Record(0, START, b"k", b"", (("TAGS", b"t" * 40_000), ("c", b"small"))))
    first, second = all_of(log)
    assert set(first.properties) == {"UNIQ_KEY", "a", "c"}
    assert set(second.properties) == {"UNIQ_KEY", "KEYS", "c"}
    assert not all_of(log, Filter(frozenset((tag_code("t" * 40_000),))))


@pytest.mark.parametrize("address", ["10.1.2.3:10911", "[2001:db8::1]:10911"])
def test_unique_keys_have_the_length_of_producers_and_differ(address: str) -> None:
    host = host_bytes(address)
    places = [(1, 0), (1, 1), (2, 0), (1 << 22, 1 << 50), (1, 1 << 40)]
    keys = {unique_key(host, *place) for place in places}
    assert len(keys) == len(places)
    assert {len(key) for key in keys} == {32 if len(host) == 8 else 56}
    assert unique_key(host_bytes("10.1.2.3:10912"), 1, 0) not in keys


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
names = texts.filter(lambda name: name not in RESERVED and name != props.TAGS)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=50),
            st.none() | texts,
            st.none() | texts,
            st.dictionaries(names, texts, max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(list(Compression)),
)
def test_there_and_back(
    messages: list[tuple[bytes, str | None, str | None, dict[str, str]]], compression: Compression
) -> None:
    """Body, tag, keys and properties of a message survive the way to Kafka and back."""
    log, copy = new_log(), new_log()
    for body, keys, tag, own in messages:
        named = {"KEYS": keys, "TAGS": tag}
        put(log, body, {name: text for name, text in named.items() if text} | own)
    data = log.read_run(0, EVERYTHING).data
    batch, _ = to_batch(data, EVERYTHING, Effort(EVERYTHING), Layouts())
    records = read_records(batch)
    copy.append_batch(write_batch(records, compression=compression), len(records), START)
    views = all_of(copy)
    assert [
        (view.body, view.keys or None, view.tags or None, dict(view.properties)) for view in views
    ] == [
        (
            body,
            keys,
            tag,
            own
            | {"UNIQ_KEY": unique_key(HOST, copy.log_id, number)}
            | ({"KEYS": keys} if keys else {})
            | ({"TAGS": tag} if tag else {}),
        )
        for number, (body, keys, tag, own) in enumerate(messages)
    ]
    assert {view.born_timestamp for view in views} == {START - 5}


keys = st.none() | st.binary(max_size=9) | texts.map(str.encode) | st.just(b"k" * 40_000)
simple = st.builds(
    Record,
    st.just(0),
    st.one_of(st.integers(START - 99, START + 99), st.integers(-1, 2**62)),
    keys,
    st.none() | st.binary(max_size=90) | st.just(bytes(9_000)),
    st.just(()) | st.just((("TAGS", b"t"),)),
)


@given(st.lists(st.lists(simple, min_size=1, max_size=9), min_size=1, max_size=3), st.booleans())
def test_simple_records_become_what_others_would(
    batches: list[list[Record]], appended: bool
) -> None:
    log = new_log()
    for records in batches:
        first = log.max_offset
        batch = write_batch(
            [
                Record(first + n, item.timestamp, item.key, item.value, item.headers)
                for n, item in enumerate(records)
            ]
        )
        log.append_batch(
            with_offset(batch, first, append_time=START + 3 if appended else None),
            len(records),
            START,
        )
    quick = read(Conversion(HOST), log, 0, 100, EVERYTHING, ALL, EVERYTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "read_simple", lambda *_: None)
        slow = read(Conversion(HOST), log, 0, 100, EVERYTHING, ALL, EVERYTHING)
    assert quick == slow
    expected = [item for records in batches for item in records]
    views = decode_records(quick.data)
    assert [view.body for view in views] == [item.value or b"" for item in expected]
    assert [view.tags for view in views] == ["t" if item.headers else "" for item in expected]
    for view in views:
        view.verify()


# -- reading ---------------------------------------------------------------------------------------


def test_filters_by_tag_and_by_condition() -> None:
    log = new_log()
    for first in range(0, 20, 5):
        produce(
            log,
            *(
                Record(
                    0,
                    START,
                    None,
                    b"%d" % number,
                    (("TAGS", b"red" if number % 2 else b"blue"), ("n", b"%d" % number)),
                )
                for number in range(first, first + 5)
            ),
        )
    red = Filter(frozenset((tag_code("red"),)))
    assert [int(view.body) for view in all_of(log, red)] == list(range(1, 20, 2))
    condition = parse("n BETWEEN 7 AND 11 AND TAGS = 'red'", SQL92)
    assert [int(view.body) for view in all_of(log, condition)] == [7, 9, 11]


def test_limits_of_a_read() -> None:
    log = new_log()
    produce(log, *(record(b"%d" % number) for number in range(6)))
    produce(log, *(record(b"%d" % number) for number in range(6, 9)))
    put(log)
    conversion = Conversion(HOST)
    whole = read(conversion, log, 0, 100, EVERYTHING, ALL, EVERYTHING)
    assert (whole.count, whole.first_offset, whole.next_offset) == (9, 0, 9)
    size = len(whole.data) // 9
    assert read(conversion, log, 2, 3, EVERYTHING, ALL, EVERYTHING).next_offset == 5
    assert read(conversion, log, 4, 100, 3 * size, ALL, EVERYTHING).next_offset == 7
    assert read(conversion, log, 4, 100, 1, ALL, EVERYTHING).next_offset == 5
    assert read(conversion, log, 0, 100, EVERYTHING, ALL, 6).next_offset == 6
    for end in (4, 7):  # inside a batch, as queries ask
        part = read(conversion, log, 1, 100, EVERYTHING, ALL, end)
        assert (part.count, part.next_offset) == (end - 1, end)
    at_record = read(conversion, log, 9, 100, EVERYTHING, ALL, EVERYTHING)
    assert (at_record.count, at_record.next_offset) == (0, 9)


def test_a_read_looks_at_a_bounded_number_of_messages() -> None:
    log = new_log()
    for _ in range(3):
        produce(log, *(record(b"", "blue") for _ in range(400)))
    found = read(Conversion(HOST), log, 0, 32, EVERYTHING, Filter(frozenset((1,))), EVERYTHING)
    assert (found.count, found.next_offset) == (0, SCAN_MESSAGES_MAX)


def test_offsets_and_counts_in_records_are_not_believed() -> None:
    """A producer wrote nonsense offsets into the records; the broker goes by the place in the batch."""
    log = new_log()
    odd = bytearray(
        write_batch([Record(5, START, None, b"a"), Record(6, START, None, b"b")], base_offset=0)
    )
    odd[23:27] = b"\0\0\0\1"
    log.append_batch(with_offset(bytes(odd), 0, append_time=START), 2, START)
    assert [(view.queue_offset, view.body) for view in all_of(log)] == [(0, b"a"), (1, b"b")]


def test_a_batch_that_cannot_be_unpacked_is_passed_over() -> None:
    log = new_log()
    good = write_batch([record(b"x")], compression=Compression.ZSTD)
    damaged = bytearray(good)
    damaged[61:] = bytes(len(good) - 61)
    log.append_batch(with_offset(bytes(damaged), 0, append_time=START), 1, START)
    produce(log, record(b"after"))
    assert [view.body for view in all_of(log)] == [b"after"]


def test_the_cost_of_a_read_does_not_grow_with_a_batch_that_lost_records_to_compaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log()
    count = 5_000
    left = [pack_record(0, 3 * number, b"k", b"%d" % number, ()) for number in range(count)]
    last_delta = 3 * count - 1
    batch = pack_batch(
        b"".join(left),
        base_offset=0,
        count=count,
        last_offset_delta=last_delta,
        base_timestamp=START,
        max_timestamp=START,
    )
    log.append_batch(batch, last_delta + 1, START)
    conversion = Conversion(HOST)
    read(conversion, log, 0, 1, EVERYTHING, ALL, log.max_offset)
    looked_at = 0

    def counted(data: bytes, position: int, header: BatchHeader) -> tuple[int, int]:
        nonlocal looked_at
        looked_at += 1
        return read_times(data, position, header)

    monkeypatch.setattr(unpacking, "read_times", counted)
    for offset, first in ((0, 0), (1, 3), (7_499, 7_500), (14_900, 14_901)):
        found = read(conversion, log, offset, 32, EVERYTHING, ALL, log.max_offset)
        views = decode_records(found.data)
        assert [view.queue_offset for view in views] == list(range(first, first + 96, 3))
        assert [view.body for view in views] == [b"%d" % (first // 3 + n) for n in range(32)]
    assert looked_at < 4 * 100


def test_unpacked_batches_are_kept_for_the_next_read_within_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log()
    for _ in range(4):
        produce(log, *(record(bytes(100)) for _ in range(20)))
    unpacked: list[int] = []

    def counted(batch: bytes, header: BatchHeader) -> Unpacking:
        unpacked.append(header.base_offset)
        return Unpacking(batch, header)

    monkeypatch.setattr(module, "Unpacking", counted)
    conversion = Conversion(HOST)
    all_of(log, conversion=conversion)
    assert len(unpacked) == 4
    monkeypatch.setattr(module, "UNPACKED_BYTES_MAX", 4 * 4_000)
    conversion = Conversion(HOST)
    all_of(log, conversion=conversion)
    assert len(unpacked) == 8
    all_of(log, conversion=conversion)
    assert len(unpacked) == 12


def test_reading_begins_inside_a_batch_whose_front_was_deleted() -> None:
    log = new_log()
    produce(log, *(record(b"%d" % number) for number in range(6)))
    log.delete_before(4)
    assert [view.body for view in all_of(log)] == [b"4", b"5"]


# -- transactions ----------------------------------------------------------------------------------


class Seen:
    """What the producers' state would say."""

    def __init__(self, stable: int, hidden: Sequence[tuple[int, int, int]]) -> None:
        self.stable = stable
        self.hidden = hidden

    def last_stable(self, log: Log) -> int:
        return self.stable

    def aborted(self, log: Log, first: int, next_offset: int) -> Sequence[tuple[int, int, int]]:
        return [item for item in self.hidden if item[1] < next_offset and item[2] >= first]


def test_aborted_control_and_open_records_are_not_delivered() -> None:
    log = new_log()
    produce(log, record(b"plain"))
    produce(log, record(b"aborted"), producer_id=1, attributes=TRANSACTIONAL)
    produce(log, record(b"committed"), producer_id=2, attributes=TRANSACTIONAL)
    produce(log, record(b"idempotent"), producer_id=1)
    for kind, producer_id in ((ABORT, 1), (COMMIT, 2)):
        marker = write_marker(
            Marker(kind),
            base_offset=log.max_offset,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=START,
        )
        log.append_batch(marker, 1, START)
    produce(log, record(b"after the abort"), producer_id=1, attributes=TRANSACTIONAL)
    produce(log, record(b"open"), producer_id=3, attributes=TRANSACTIONAL)
    produce(log, record(b"behind it"))
    conversion = Conversion(HOST, Seen(7, [(1, 1, 4)]))
    assert [view.body for view in all_of(log, conversion=conversion)] == [
        b"plain",
        b"committed",
        b"idempotent",
        b"after the abort",
    ]
    beyond = read(conversion, log, 7, 32, EVERYTHING, ALL, log.max_offset)
    assert (beyond.count, beyond.next_offset) == (0, 7)


def test_a_transaction_that_was_open_when_others_were_read_is_aborted() -> None:
    log = new_log()
    produce(log, record(b"plain"))
    produce(log, record(b"open"), producer_id=1, attributes=TRANSACTIONAL)
    seen = Seen(1, [])
    conversion = Conversion(HOST, seen)
    assert [view.body for view in all_of(log, conversion=conversion)] == [b"plain"]
    seen.stable, seen.hidden = 2, [(1, 1, 2)]
    assert [view.body for view in all_of(log, conversion=conversion)] == [b"plain"]


# -- through the broker's listener ---------------------------------------------------------------------


@pytest.fixture
def mixed(rig: Rig) -> Rig:
    """Offsets 0, 1 from RocketMQ, 2..6 from Kafka in two batches, 7 from RocketMQ, 8 from Kafka."""
    link = rig.connect()
    rig.send(link, b"0", i="TAGS\x01even")
    rig.send(link, b"1", i="TAGS\x01odd")
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    produce(log, record(b"2", "even", b"key2"), record(b"3", "odd"), compression=Compression.LZ4)
    produce(log, record(b"4", "even"), record(b"5", "odd"), record(b"6", "even"))
    rig.send(link, b"7", i="TAGS\x01odd")
    produce(log, record(b"8", "even"))
    rig.beat(link, "c1", TOPIC)
    rig.sent.clear()
    return rig


def consume(rig: Rig, **more: object) -> list[int]:
    """Bodies of all messages that the pulls of one consumer bring."""
    offset, found = 0, []
    while offset < 9:
        answer = rig.ask(rig.link, PULL, pull_ext(offset, **more))
        if answer.code == 0:
            found += [int(view.body) for view in decode_records(answer.body)]
        else:
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert int(answer.ext["nextBeginOffset"]) > offset
        assert answer.ext["maxOffset"] == "9"
        offset = int(answer.ext["nextBeginOffset"])
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 32])
def test_a_consumer_reads_a_mixed_queue(mixed: Rig, count: int) -> None:
    assert consume(mixed, maxMsgNums=count) == list(range(9))


@pytest.mark.parametrize(
    ("kind", "expression", "wanted"),
    [
        ("TAG", "even", [0, 2, 4, 6, 8]),
        ("TAG", "odd", [1, 3, 5, 7]),
        ("SQL92", "TAGS = 'odd'", [1, 3, 5, 7]),
        ("SQL92", "KEYS = 'key2'", [2]),
    ],
)
def test_filters_in_a_mixed_queue(
    mixed: Rig, kind: str, expression: str, wanted: list[int]
) -> None:
    more = {"expressionType": kind, "subscription": expression, "sysFlag": 4}
    assert consume(mixed, **more) == wanted


def test_random_pulls_of_a_random_queue(rig: Rig) -> None:
    rng = random.Random(7)
    link = rig.connect()
    rig.send(link, b"0")
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    while log.max_offset < 200:
        first = log.max_offset
        if rng.random() < 0.5:
            rig.send(link, b"%d" % first)
        else:
            numbers = range(first, first + rng.randrange(1, 9))
            produce(
                log,
                *(record(b"%d" % number) for number in numbers),
                compression=rng.choice(list(Compression)),
            )
    rig.beat(link, "c1", TOPIC)
    found: list[int] = []
    while len(found) < log.max_offset:
        answer = rig.ask(
            link, PULL, pull_ext(len(found), maxMsgNums=rng.randrange(1, 20), maxMsgBytes=2_000)
        )
        found += [int(view.body) for view in decode_records(answer.body)]
        assert answer.ext["nextBeginOffset"] == str(len(found))
    assert found == list(range(log.max_offset))


def test_the_ledger_notes_deliveries_of_converted_messages(mixed: Rig) -> None:
    mixed.ask(mixed.link, PULL, pull_ext(2))
    mixed.advance(60_000)
    (noted,) = [item for item in mixed.ledger() if isinstance(item, Delivered)]
    assert (noted.group, noted.topic, noted.queue, noted.client) == (GROUP, TOPIC, 0, "c1")
    assert (noted.first, noted.next, noted.count, noted.stored) == (2, 7, 5, START)
    (waiting, *_) = [item for item in mixed.ledger() if isinstance(item, Backlog)]
    assert (waiting.waiting, waiting.peak) == ((2,), 7)


def test_a_batch_is_not_found_by_its_address(mixed: Rig) -> None:
    (view, *_) = decode_records(mixed.ask(mixed.link, PULL, pull_ext(2)).body)
    answer = mixed.ask(mixed.link, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": view.physical_offset})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    back = {
        "offset": view.physical_offset,
        "group": GROUP,
        "delayLevel": 0,
        "originMsgId": view.message_id,
        "originTopic": TOPIC,
        "unitMode": "false",
    }
    answer = mixed.ask(mixed.link, RequestCode.CONSUMER_SEND_MSG_BACK, back)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "look message by offset failed" in answer.remark


def test_a_search_goes_through_batches_larger_than_its_steps(rig: Rig) -> None:
    link = rig.connect()
    rig.send(link, b"first")
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    for first in range(0, 3_000, 1_500):
        produce(log, *(record(b"", key=b"k%d" % (first + number)) for number in range(1_500)))
    for wanted in (0, 1_022, 1_023, 1_024, 1_499, 1_500, 2_999):
        ext = {
            "topic": TOPIC,
            "key": f"k{wanted}",
            "maxNum": 64,
            "beginTimestamp": 0,
            "endTimestamp": 2**63 - 1,
            "_UNIQUE_KEY_QUERY": "false",
        }
        opaque = rig.post(link, RequestCode.QUERY_MESSAGE, ext)
        rig.advance(1_000)
        answer = rig.reply_to(link, opaque)
        assert answer is not None
        assert [view.queue_offset for view in decode_records(answer.body)] == [wanted + 1]


@pytest.mark.parametrize(("key", "wanted"), [("key2", [b"2"]), ("unique", [b"5"])])
def test_converted_messages_are_found_by_their_keys(
    mixed: Rig, key: str, wanted: list[bytes]
) -> None:
    views = decode_records(mixed.ask(mixed.link, PULL, pull_ext(4)).body)
    if key == "unique":
        key = views[1].message_id
    ext = {
        "topic": TOPIC,
        "key": key,
        "maxNum": 64,
        "beginTimestamp": 0,
        "endTimestamp": 2**63 - 1,
        "_UNIQUE_KEY_QUERY": "false",
    }
    opaque = mixed.post(mixed.link, RequestCode.QUERY_MESSAGE, ext)
    mixed.advance(1_000)
    answer = mixed.reply_to(mixed.link, opaque)
    assert answer is not None
    assert [view.body for view in decode_records(answer.body)] == wanted


def test_a_run_for_kafka_is_of_one_kind(mixed: Rig) -> None:
    log = mixed.store.log(TOPIC, 0)
    assert log is not None
    kinds = []
    offset = 0
    while offset < log.max_offset:
        run = log.read_run(offset, EVERYTHING)
        kinds.append((run.kind, run.first_offset, run.next_offset))
        offset = run.next_offset
    assert kinds == [(RECORDS, 0, 2), (BATCHES, 2, 7), (RECORDS, 7, 8), (BATCHES, 8, 9)]


# -- for readers that decode batches themselves ----------------------------------------------------


def taking(offset: int, **more: object) -> dict[str, object]:
    return pull_ext(offset, takesBatches="true", **more)


def given_batches(answer: Command) -> list[tuple[int, int, int]]:
    """(store timestamp, base offset, records) of each batch in an answer."""
    log_id = int(answer.ext["uniquePrefix"][-6:], 16)
    assert answer.ext["uniquePrefix"] == unique_prefix(host_bytes("127.0.0.1:10911"), log_id)
    return [
        (stored, header.base_offset, header.count)
        for stored, _, header in stored_batches.read(answer.body)
    ]


def test_batches_are_given_as_they_are_stored(mixed: Rig) -> None:
    log = mixed.store.log(TOPIC, 0)
    assert log is not None
    records_first = mixed.ask(mixed.link, PULL, taking(0))
    assert "uniquePrefix" not in records_first.ext
    assert [view.body for view in decode_records(records_first.body)] == [b"0", b"1"]
    answer = mixed.ask(mixed.link, PULL, taking(3))
    assert given_batches(answer) == [(START, 2, 2), (START, 4, 3)]
    assert answer.body[8:].startswith(log.entry_at(2))
    assert answer.body.endswith(log.entry_at(4))
    assert answer.ext["nextBeginOffset"] == "7"
    assert answer.ext["maxOffset"] == "9"


def test_the_ledger_hears_of_given_batches(mixed: Rig) -> None:
    mixed.ask(mixed.link, PULL, taking(3))
    mixed.advance(2_000)
    (noted,) = [item for item in mixed.ledger() if isinstance(item, Delivered)]
    assert (noted.first, noted.next, noted.count, noted.stored) == (3, 7, 4, START)


def test_no_more_batches_than_the_limits_allow(mixed: Rig) -> None:
    for count, following in ((1, "4"), (2, "4"), (3, "7"), (32, "7")):
        answer = mixed.ask(mixed.link, PULL, taking(2, maxMsgNums=count))
        assert answer.ext["nextBeginOffset"] == following
    answer = mixed.ask(mixed.link, PULL, taking(2, maxMsgBytes=1))
    assert given_batches(answer) == [(START, 2, 2)]


def test_a_pull_with_a_filter_gets_messages(mixed: Rig) -> None:
    for more in (
        {"subscription": "even", "sysFlag": 4},
        {"subscription": "n > 1 OR TAGS = 'even'", "expressionType": "SQL92", "sysFlag": 4},
    ):
        answer = mixed.ask(mixed.link, PULL, taking(2, **more))
        assert "uniquePrefix" not in answer.ext
        assert [view.body for view in decode_records(answer.body)] == [b"2", b"4", b"6"]


def test_a_group_whose_members_filter_gets_messages(rig: Rig, mixed: Rig) -> None:
    mixed.beat(mixed.link, "c1", TOPIC, expression="even", version=2)
    answer = mixed.ask(mixed.link, PULL, taking(2, subVersion=2))
    assert [view.body for view in decode_records(answer.body)] == [b"2", b"4", b"6"]


def test_batches_of_aborted_and_open_transactions_are_not_given() -> None:
    log = new_log()
    produce(log, record(b"aborted"), producer_id=1, attributes=TRANSACTIONAL)
    marker = write_marker(
        Marker(ABORT), base_offset=1, producer_id=1, producer_epoch=0, timestamp=START
    )
    log.append_batch(marker, 1, START)
    produce(log, record(b"plain"), now=START + 5)
    produce(log, record(b"open"), producer_id=3, attributes=TRANSACTIONAL)
    conversion = Conversion(HOST, Seen(3, [(1, 0, 1)]))
    found = conversion.read_batches(log, 0, 100, EVERYTHING, log.max_offset)
    assert found is not None
    assert (found.count, found.first_offset, found.next_offset) == (1, 2, 3)
    assert found.stored == START + 5
    assert [header.base_offset for _, _, header in stored_batches.read(found.data)] == [2]
    nothing = conversion.read_batches(log, 0, 1, EVERYTHING, log.max_offset)
    assert nothing is not None
    assert (nothing.data, nothing.count, nothing.first_offset, nothing.next_offset) == (
        b"",
        0,
        1,
        1,
    )


def test_aborted_transactions_are_gone_through_once_for_all_batches_of_a_read() -> None:
    """Not once for each batch: in a log of small transactions both are many."""
    log = new_log()
    for producer_id in range(100):
        for _ in range(2):
            produce(log, record(b"x"), producer_id=producer_id, attributes=TRANSACTIONAL)
    seen = 0

    class Counted(list[tuple[int, int, int]]):
        def __iter__(self) -> Iterator[tuple[int, int, int]]:
            for each in super().__iter__():
                nonlocal seen
                seen += 1
                yield each

    class AllAborted(Seen):
        def aborted(self, log: Log, first: int, next_offset: int) -> Sequence[tuple[int, int, int]]:
            return Counted((number, 2 * number, 2 * number) for number in range(100))

    conversion = Conversion(HOST, AllAborted(200, []))
    found = conversion.read_batches(log, 0, 200, EVERYTHING, 200)
    assert found is not None
    assert (found.count, found.first_offset, found.next_offset) == (100, 1, 200)
    assert seen == 100


def test_where_a_record_is_there_are_no_batches() -> None:
    log = new_log()
    put(log)
    produce(log, record(b"a"))
    conversion = Conversion(HOST)
    assert conversion.read_batches(log, 0, 9, EVERYTHING, EVERYTHING) is None
    assert conversion.read_batches(log, 1, 9, EVERYTHING, EVERYTHING) is not None


def test_batches_of_more_than_an_answer_holds_are_converted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log()
    for size in (200, 200, 900):
        produce(log, record(bytes(size)))
    monkeypatch.setattr(module, "ANSWER_BYTES_MAX", 700)
    conversion = Conversion(HOST)
    found = conversion.read_batches(log, 0, 9, EVERYTHING, EVERYTHING)
    assert found is not None
    assert (found.count, found.next_offset) == (2, 2)
    assert len(found.data) <= 700
    assert conversion.read_batches(log, 2, 9, EVERYTHING, EVERYTHING) is None


def test_batches_from_inside_one_whose_front_was_deleted() -> None:
    log = new_log()
    produce(log, *(record(b"%d" % number) for number in range(6)))
    log.delete_before(4)
    found = Conversion(HOST).read_batches(log, 4, 9, EVERYTHING, EVERYTHING)
    assert found is not None
    assert (found.count, found.first_offset, found.next_offset) == (2, 4, 6)
