"""What Kafka's producers wrote gives the same rows, whether the broker converts it or the source decodes the batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.nodes.broker.conftest import Rig
from tests.nodes.broker.driver import START, TOPIC
from tests.spark.rows import rows_of

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.conversion.messages import convert
from steelyard.errors import BrokerError, ProtocolError
from steelyard.spark.options.reading import read_options
from steelyard.spark.reading import pull, record_batches
from steelyard.spark.reading.columns import SCHEMA
from steelyard.spark.reading.planning import QueueRange
from steelyard.spark.reading.record_batches import GivenBatches, decode
from steelyard.spark.reading.record_borders import record_borders
from steelyard.spark.reading.record_columns import HEADERS_MAX, RecordOrigin
from steelyard.spark.servers.link import Link
from steelyard.store.log import Log
from steelyard.wire import stored_batches
from steelyard.wire.kafka.compression import Compression
from steelyard.wire.kafka.packing import VARINTS
from steelyard.wire.kafka.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    Marker,
    Record,
    with_offset,
    write_batch,
    write_marker,
)
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

NAMES = tuple(SCHEMA.names)
ORIGIN = RecordOrigin(TOPIC, "broker-a", 0, "7F0000012A9F000001")
Rows = list[dict[str, object]]
KINDS = [each for each in Compression if each != Compression.NONE]


class Broker:
    """A broker in memory, and the source's connection to it. `takes_batches`: whether requests may say so."""

    def __init__(self, host: str = "127.0.0.1:10911") -> None:
        config = BrokerConfig(name="broker-a", address=host, kafka=KafkaConfig())
        self._rig = Rig(config)
        self._rig.send(self._rig.connect(), b"first", i="TAGS\x01a")
        kafka = self._rig.node._kafka
        assert kafka is not None
        kafka.producers.prepare(self.log)  # as before the first transaction
        self.takes_batches = True
        self.answers: list[Command] = []
        self.address = host

    @property
    def log(self) -> Log:
        log = self._rig.store.log(TOPIC, 0)
        assert log is not None
        return log

    def restart(self) -> None:
        """Let a new broker learn from the log how transactions ended."""
        self._rig.restart()
        self._rig.connect()

    # -- filling -----------------------------------------------------------------------------------

    def send(self, body: bytes, tag: str = "a") -> None:
        self._rig.send(self._rig.link, body, i=f"TAGS\x01{tag}\x02KEYS\x01k")

    def produce(
        self,
        *records: Record,
        compression: int = Compression.NONE,
        producer_id: int = -1,
        append_time: int | None = None,
    ) -> int:
        """Append a batch; return its offset."""
        batch = write_batch(
            [msgspec.structs.replace(each, offset=n) for n, each in enumerate(records)],
            compression=compression,
            producer_id=producer_id,
            attributes=TRANSACTIONAL if producer_id >= 0 else 0,
        )
        return self.put(batch, len(records), append_time)

    def put(self, batch: bytes, count: int, append_time: int | None = None) -> int:
        self._rig.now += 7
        placed = with_offset(batch, self.log.max_offset, append_time=append_time)
        return self.log.append_batch(placed, count, self._rig.now)

    def end(self, producer_id: int, kind: int) -> None:
        """End the transaction of a producer."""
        marker = write_marker(
            Marker(kind),
            base_offset=self.log.max_offset,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=START,
        )
        self.log.append_batch(marker, 1, self._rig.now)

    def damage_log(self) -> None:
        """Change the last byte of the log on the disk."""
        (path,) = (
            each
            for each in self._rig.disk.files
            if each.startswith(self.log.folder) and each.endswith(".log")
        )
        self._rig.disk.files[path].data[-1] ^= 1

    # -- reading -----------------------------------------------------------------------------------

    def request(self, request: Command) -> int:
        ext = dict(request.ext)
        if not self.takes_batches:
            ext.pop("takesBatches", None)
        return self._rig.post(self._rig.link, request.code, ext)

    def reply(self, opaque: int) -> Command:
        while (answer := self._rig.reply_to(self._rig.link, opaque)) is None:
            self._rig.advance(1)
        self.answers.append(answer)
        return answer

    def rows(
        self,
        start: int = 0,
        end: int | None = None,
        *,
        batches: bool = True,
        options: Mapping[str, str] | None = None,
    ) -> Rows:
        """What the source reads."""
        self.takes_batches = batches
        self.answers.clear()
        read = read_options(
            {"nameservers": "n:1", "subscribe": TOPIC, "retryTimeoutMs": "0"} | {**(options or {})}
        )
        end = self.log.max_offset if end is None else end
        queue = QueueRange(TOPIC, "broker-a", 0, self.address, start, end)
        found: Rows = []
        with mock.patch.object(pull, "Link", return_value=Connection(self)):
            for batch in pull.batches(queue, read):
                assert batch.schema.names == list(read.columns)
                found += rows_of(batch)
        return found

    def gave_batches(self) -> bool:
        return any("uniquePrefix" in answer.ext for answer in self.answers)


class Connection(Link):
    """The source's connection to a broker in memory."""

    def __init__(self, broker: Broker) -> None:
        self.address = broker.address
        self._broker = broker

    def send(self, request: Command) -> int:
        return self._broker.request(request)

    def receive(self, opaque: int) -> Command:
        return self._broker.reply(opaque)

    def close(self) -> None:
        pass


@contextmanager
def counted() -> Iterator[list[int]]:
    """The offsets of batches whose records are converted one by one."""
    found: list[int] = []

    def noted(*given: object) -> int:
        assert isinstance(given[2], int)
        found.append(given[2])
        return convert(*given)  # type: ignore[arg-type]

    with mock.patch.object(record_batches, "convert", noted):
        yield found


def record(
    value: bytes | None = b"value",
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp: int = START,
) -> Record:
    return Record(0, timestamp, key, value, headers)


def same_both_ways(
    broker: Broker, start: int = 0, end: int | None = None, options: Mapping[str, str] | None = None
) -> Rows:
    expected = broker.rows(start, end, batches=False, options=options)
    assert not broker.gave_batches()
    assert broker.rows(start, end, options=options) == expected
    return expected


# -- the usual case --------------------------------------------------------------------------------

USUAL = {
    "values only": [record(b"%d" % n * (n % 90)) for n in range(300)],
    "nulls": [record(None), record(b""), record(None, b""), record(b"x", None)],
    "keys": [record(b"v", b"key %d" % n, timestamp=START + 50 * n) for n in range(300)],
    "some keys": [record(b"v", b"k" if n % 3 else None) for n in range(9)],
    "keys that are no text": [record(b"v", n.to_bytes(4, "big")) for n in range(300)],
    "keys of other scripts": [record(b"v", "鍵é".encode()), record(b"v", b"\xff")],
    "headers": [
        record(b"v", b"k", (("TAGS", b"t%d" % n), ("trace", b"%d" % n), ("é", b"\xc3\xa9")))
        for n in range(200)
    ],
    "headers now and then": [
        record(b"v", None, tuple((f"h{m}", b"%d" % m) for m in range(n % 5))) for n in range(50)
    ],
    "tags now and then": [
        record(b"v", b"k" if n % 2 else None, (("a", b"1"), ("TAGS", b"t"))[n % 3 :])
        for n in range(20)
    ],
    "headers that are left out": [
        record(
            b"v",
            None,
            (("UNIQ_KEY", b"u"), ("KEYS", b"k"), ("", b"v"), ("null", None), ("empty", b"")),
        ),
        record(b"v", None, (("no text", b"\xff"), ("a\x01b", b"v"), ("n", b"a\x02b"), ("m", b"v"))),
    ],
    "most headers": [record(b"v", None, tuple((f"h{m}", b"v") for m in range(HEADERS_MAX)))],
    "no timestamps": [record(timestamp=-1) for _ in range(3)],
    "times that grow and shrink": [record(timestamp=START + n**4 * (-1) ** n) for n in range(70)],
    "a large value": [record(bytes(300_000)), record(b"small")],
}


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_usual_records_are_decoded_together(name: str, compression: Compression) -> None:
    broker = Broker()
    broker.produce(*USUAL[name], compression=compression)
    broker.produce(*USUAL[name], compression=compression, append_time=START + 5)
    with counted() as one_by_one:
        rows = same_both_ways(broker)
    assert broker.gave_batches()
    assert len(rows) == 1 + 2 * len(USUAL[name])
    assert not one_by_one


@pytest.mark.parametrize("compression", Compression)
def test_every_compression(compression: Compression) -> None:
    broker = Broker()
    broker.produce(*(record(b"%d" % n * 50) for n in range(500)), compression=compression)
    with counted() as one_by_one:
        assert len(same_both_ways(broker)) == 501
    assert not one_by_one


def test_a_row_in_full() -> None:
    """As the documentation of columns has it, written by hand."""
    broker = Broker("10.1.2.3:10911")
    headers = (("TAGS", b"TagA"), ("a", b"1"), ("UNIQ_KEY", b"U9"), ("none", None))
    broker.produce(record(b"body", b"the key", headers, START - 3))
    (row,) = broker.rows(1)
    key = f"0A0102032A9F{broker.log.log_id:06X}" + "0" * 13 + "1"
    assert row == {
        "topic": TOPIC,
        "brokerName": "broker-a",
        "queueId": 0,
        "queueOffset": 1,
        "bornTimestamp": (START - 3) * 1000,
        "storeTimestamp": (START + 7) * 1000,
        "keys": "the key",
        "tags": "TagA",
        "body": b"body",
        "properties": [("UNIQ_KEY", key), ("TAGS", "TagA"), ("KEYS", "the key"), ("a", "1")],
        "flag": 0,
        "reconsumeTimes": 0,
        "msgId": key,
    }


def test_a_broker_at_an_ipv6_address() -> None:
    broker = Broker("[2001:db8::1]:10911")
    broker.produce(record(b"a"), record(b"b"))
    assert len(str(same_both_ways(broker)[1]["msgId"])) == 56


@pytest.mark.parametrize("names", ["body", "tags", "keys,tags", "properties", "msgId,topic"])
def test_columns_are_chosen(names: str) -> None:
    broker = Broker()
    broker.produce(record(b"x", b"k", (("TAGS", b"t"), ("n", b"1"))), record(b"y"))
    assert len(same_both_ways(broker, options={"columns": names})) == 3


def test_many_rows_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batches, "ROWS_MAX", 64)
    monkeypatch.setattr(record_batches, "BYTES_MAX", 3_000)
    broker = Broker()
    broker.produce(*(record(b"%d" % n) for n in range(400)))
    for _ in range(30):
        broker.produce(*(record(bytes(50)) for _ in range(9)), compression=Compression.LZ4)
    with counted() as one_by_one:
        assert len(same_both_ways(broker)) == 671
    assert not one_by_one


@given(
    st.lists(st.tuples(st.sampled_from([0, 5, 63, 64, 200, 9_000]), st.integers(1, 90))), st.data()
)
@settings(max_examples=examples(100))
def test_records_are_located_whatever_their_sizes(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    sizes = [size for size, count in runs for _ in range(count)]
    noise = data.draw(st.lists(st.integers(0, 300), max_size=200))
    parts = [VARINTS[size] + bytes(size) for size in sizes + noise]
    ends = [9]
    for part in parts:
        ends.append(ends[-1] + len(part))
    area = b"x" * 9 + b"".join(parts) + b"y"
    assert record_borders(area, 9, ends[-1], len(parts)).tolist() == ends


# -- records that are decoded one by one -----------------------------------------------------------


def summed(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def damaged(count: int, at: int, noise: bytes, compression: int = 0) -> bytes:
    """A batch with other bytes from the record area's byte `at` on, and a checksum that is right."""
    batch = bytearray(
        write_batch(
            [Record(n, START, b"k", b"value %d" % n) for n in range(count)], compression=compression
        )
    )
    batch[61 + at : 61 + at + len(noise)] = noise
    return summed(batch)


def with_count(count: int, records: int) -> bytes:
    """A batch that claims another number of records than it has."""
    batch = bytearray(write_batch([Record(n, START, None, b"v%d" % n) for n in range(records)]))
    batch[23:27] = (count - 1).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return summed(batch)


ODD_RECORDS = {
    "two headers of one name": record(b"v", None, (("a", b"1"), ("b", b"2"), ("a", b"3"))),
    "two tags": record(b"v", None, (("TAGS", b"1"), ("TAGS", b"3"))),
    "many headers": record(b"v", None, tuple((f"h{m}", b"v") for m in range(HEADERS_MAX + 1))),
    "properties of more than fits": record(b"v", b"k" * 40_000, (("TAGS", b"t"), ("n", b"1"))),
    "properties just below": record(b"v", b"k" * 32_600, (("TAGS", b"t" * 50), ("n", b"1"))),
    "a time far away": record(timestamp=2**62 + START),
}
ODD_BATCHES = {
    "a record that claims too much": (damaged(3, 15, b"\x7e"), 3),
    "a field that claims too much": (damaged(3, 4, b"\x7e"), 3),
    "a null header name": (damaged(1, 0, b"\x1c\x00\x00\x00\x01\x02v\x02\x01\x0ahello"), 1),
    "a header name that is no text": (
        damaged(1, 0, b"\x1c\x00\x00\x00\x01\x02v\x02\x02\xff\x08hell"),
        1,
    ),
    "bytes after the last record": (with_count(2, 5), 2),
    "fewer records than it says": (with_count(9, 4), 9),
    "many fewer records than it says": (with_count(60_000, 2), 60_000),
    "an unknown compression": (damaged(2, -40, b"\x00\x07"), 2),
    **{f"damaged {kind.name}": (damaged(900, 700, bytes(90), kind), 900) for kind in KINDS},
}


@pytest.mark.parametrize("name", ODD_RECORDS)
def test_odd_records_between_usual_ones(name: str) -> None:
    broker = Broker()
    broker.produce(record(b"before"), record(b"more"))
    odd = broker.produce(record(b"a"), ODD_RECORDS[name], record(b"b"))
    broker.produce(record(b"after"))
    with counted() as one_by_one:
        rows = same_both_ways(broker)
    assert len(rows) == 7
    assert set(one_by_one) == {odd}
    for start in range(8):
        same_both_ways(broker, start, 6)


@pytest.mark.parametrize("name", ODD_BATCHES)
def test_what_is_damaged_is_left_out(name: str, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.produce(record(b"before"))
    batch, count = ODD_BATCHES[name]
    odd = broker.put(batch, count)
    broker.produce(record(b"after"))
    with counted() as one_by_one, caplog.at_level(logging.WARNING):
        rows = same_both_ways(broker)
    assert set(one_by_one) >= {odd}
    bodies = [row["body"] for row in rows]
    assert bodies[:2] == [b"first", b"before"]
    assert bodies[-1] == b"after"
    told = [each.getMessage() for each in caplog.records]
    lost = 3 + count - len(rows)
    if lost:
        assert any(text.startswith(f"{lost} messages of topic {TOPIC}, queue 0") for text in told)
    else:
        assert not told


def test_a_batch_that_fits_into_no_answer_is_converted() -> None:
    broker = Broker()
    large = bytes(9 << 20)
    broker.produce(record(large), record(large), record(b"small"))
    assert len(broker.rows()) == 4
    assert not broker.gave_batches()


# -- filters, transactions, queues of both dialects ------------------------------------------------


def mixed(broker: Broker) -> None:
    """Both dialects, every compression, transactions of all fates, the last of them open."""
    broker.produce(*(record(b"%d" % n, b"k", (("TAGS", b"ab"[n % 2 :][:1]),)) for n in range(9)))
    broker.send(b"ours")
    broker.produce(record(b"aborted"), producer_id=1)
    broker.produce(record(b"committed"), producer_id=2, compression=Compression.SNAPPY)
    broker.end(1, ABORT)
    broker.send(b"ours again", "b")
    broker.end(2, COMMIT)
    broker.produce(record(b"aborted too"), producer_id=1)
    broker.end(1, ABORT)
    for kind in KINDS:
        broker.produce(record(b"x" * 99, None, (("TAGS", b"b"), ("n", b"9"))), compression=kind)
    broker.produce(record(b"open"), record(b"open"), producer_id=3)
    broker.produce(record(b"behind it"))
    broker.restart()


def test_a_queue_of_both_dialects_with_transactions() -> None:
    broker = Broker()
    mixed(broker)
    stable = broker.log.max_offset - 3
    rows = same_both_ways(broker, 0, stable)
    assert broker.gave_batches()
    bodies = [row["body"] for row in rows]
    assert not {b"aborted", b"aborted too", b"open", b"behind it"} & {*bodies}
    assert len(rows) == 1 + 9 + 1 + 1 + 1 + 4
    for middle in range(stable + 1):
        assert same_both_ways(broker, 0, middle) + same_both_ways(broker, middle, stable) == rows


@pytest.mark.parametrize(
    "options", [{"tags": "a"}, {"tags": "a || b"}, {"sql": "n = 9 OR TAGS = 'a'"}]
)
def test_filters_are_applied_by_the_broker(options: dict[str, str]) -> None:
    broker = Broker()
    mixed(broker)
    rows = same_both_ways(broker, 0, broker.log.max_offset - 3, options)
    assert 0 < len(rows) < 17
    assert not broker.gave_batches()


# -- whatever producers write ----------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"), max_size=5)
names = st.sampled_from(["TAGS", "KEYS", "a", "b", "é", ""]) | texts
values = st.none() | st.binary(max_size=6) | texts.map(str.encode)
records = st.builds(
    Record,
    st.just(0),
    st.integers(START - 99, START + 10**7) | st.integers(-(2**40), 2**61),
    st.none() | st.binary(max_size=9) | texts.map(str.encode),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(names, values), max_size=4).map(tuple),
)
batches = st.tuples(
    st.lists(records, min_size=1, max_size=40),
    st.sampled_from(Compression),
    st.sampled_from([-1, -1, 1, 2]),
    st.none() | st.just(START + 3),
)
steps = st.lists(
    batches
    | st.binary(min_size=1, max_size=9)
    | st.tuples(st.sampled_from([1, 2]), st.sampled_from([ABORT, COMMIT])),
    max_size=8,
)


@given(steps, st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=examples(120))
def test_rows_do_not_depend_on_who_decodes(
    steps: list[tuple[object, ...] | bytes], start: int, end: int
) -> None:
    broker = Broker()
    opened: set[int] = set()
    for step in steps:
        match step:
            case bytes():
                broker.send(step)
            case (list() as given_records, compression, int() as producer, append_time):
                assert isinstance(compression, int)
                assert append_time is None or isinstance(append_time, int)
                broker.produce(
                    *given_records,
                    compression=compression,
                    producer_id=producer,
                    append_time=append_time,
                )
                opened |= {producer} - {-1}
            case (int() as producer, int() as kind):
                broker.end(producer, kind)
                opened -= {producer}
    for producer in opened:
        broker.end(producer, ABORT)
    broker.restart()
    end = min(end, broker.log.max_offset)
    same_both_ways(broker, min(start, end), end)


# -- answers that are not what they should be ------------------------------------------------------


def answer_of(*batch: bytes) -> bytes:
    return b"".join(part for each in batch for part in stored_batches.packed(START, each))


def at(offset: int, *values: bytes) -> bytes:
    return with_offset(
        write_batch([Record(n, START, b"k", value) for n, value in enumerate(values)]), offset
    )


def decoded(data: bytes, start: int = 0, end: int = 1 << 40, origin: RecordOrigin = ORIGIN) -> Rows:
    return [
        row
        for batch in decode([GivenBatches(start, data)], end, origin, NAMES)
        for row in rows_of(batch)
    ]


def test_an_answer_cut_short_is_refused() -> None:
    data = answer_of(at(5, b"a", b"b"), at(7, b"c"))
    assert [row["queueOffset"] for row in decoded(data)] == [5, 6, 7]
    whole = len(answer_of(at(5, b"a", b"b")))
    for size in set(range(1, len(data))) - {whole}:
        with pytest.raises(ProtocolError):
            decoded(data[:size])


WRONG = {
    "offsets that go back": answer_of(at(5, b"a", b"b"), at(6, b"c")),
    "a negative offset": answer_of(at(-1, b"a")),
    "an offset without end": answer_of(at(1 << 60, b"a")),
    "no records": answer_of(
        summed(
            bytearray(
                at(0, b"a")[:23] + b"\xff" * 4 + at(0, b"a")[27:57] + bytes(4) + at(0, b"a")[61:]
            )
        )
    ),
    "an old format": answer_of(at(0, b"a")[:16] + b"\x01" + at(0, b"a")[17:]),
    "a negative size": answer_of(at(0, b"a")[:8] + b"\xff" * 4 + at(0, b"a")[12:]),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_no_batches_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        decoded(WRONG[name])


@pytest.mark.parametrize("prefix", ["", "xyz", "7f00", "A" * 100_000])
def test_an_answer_with_a_strange_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ProtocolError, match="not the beginning of a UNIQ_KEY"):
        decoded(answer_of(at(0, b"a")), origin=ORIGIN._replace(unique_prefix=prefix))


@given(st.binary(min_size=1, max_size=12), st.integers(61, 400), st.sampled_from([0, 2]))
@settings(max_examples=examples(300))
def test_damage_makes_no_difference_to_the_one_who_decodes(
    noise: bytes, position: int, headers: int
) -> None:
    """Damaged records, decoded together, are what they are one by one."""
    batch = bytearray(
        write_batch(
            [
                Record(n, START + n, b"k", b"v" * (30 * n), (("h", b"1"), ("TAGS", b"t"))[:headers])
                for n in range(8)
            ]
        )
    )
    position = min(position, len(batch) - 1)
    batch[position : position + len(noise)] = noise[: len(batch) - position]
    data = answer_of(bytes(batch), at(8, b"after"))
    with mock.patch.object(record_batches, "_located", return_value=None):
        expected = decoded(data)
    assert decoded(data) == expected


@pytest.mark.parametrize("batches", [True, False])
def test_a_batch_that_is_damaged_on_the_disk_is_an_error(batches: bool) -> None:
    broker = Broker()
    broker.produce(record(b"a"))
    broker.damage_log()
    with pytest.raises(
        BrokerError, match=r"message at offset 1 .* is damaged on the disk"
    ) as caught:
        broker.rows(1, batches=batches)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
