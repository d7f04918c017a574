"""The source beside open Kafka transactions of a real producer: it stops before them and misses nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.api.kafka import KafkaServers
from tests.spark.rows import rows_of

from steelyard.spark.options.reading import read_options
from steelyard.spark.reading import pull, record_batches
from steelyard.spark.reading.record_columns import decode_rows
from steelyard.spark.reading.stream import RocketMQStreamReader
from steelyard.spark.source import RocketMQReader
from steelyard.wire.remoting.command import Command

TOPIC = "Ledger"
ALL = ReadMaxRows(1_000)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[KafkaServers]:
    made = KafkaServers(tmp_path, brokers=1)
    yield made
    made.stop()


class Reading:
    """A stream, and batch reads of the same topic; each has to be done within a second."""

    def __init__(self, servers: KafkaServers) -> None:
        self._options = {
            "nameservers": servers.nameservers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "retryTimeoutMs": "1000",
        }
        self._stream = RocketMQStreamReader(read_options(self._options, "stream"))
        self._at = self._stream.initialOffset()
        self._at = self._stream.latestOffset(self._at, ALL)

    def batch(self, **options: str) -> list[int]:
        return _values(RocketMQReader(read_options(self._options | options)))

    def more(self) -> list[int]:
        """The next micro-batch."""
        begun, self._at = self._at, self._stream.latestOffset(self._at, ALL)
        parts = self._stream.partitions(begun, self._at)
        return [int(body) for part in parts for body in _bodies(self._stream, part)]


def _values(reader: RocketMQReader) -> list[int]:
    return [int(body) for part in reader.partitions() for body in _bodies(reader, part)]


def _bodies(reader: RocketMQReader | RocketMQStreamReader, part: object) -> list[bytes]:
    batches = reader.read(part)  # type: ignore[arg-type]
    return [body for batch in batches for body in batch.column("body").to_pylist()]  # type: ignore[union-attr]


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_open_transaction_is_the_end_until_it_ends(servers: KafkaServers, is_kept: bool) -> None:
    servers.topic(TOPIC, partitions=1)
    servers.fill(TOPIC, range(3), partitions=1)
    settings = {"bootstrap.servers": servers.bootstrap, "log_level": 0}
    producer = Producer(settings | {"transactional.id": "tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in (3, 4):
        producer.produce(TOPIC, b"%d" % value, partition=0)
    assert producer.flush(30) == 0
    servers.fill(TOPIC, range(5, 8), partitions=1)  # behind it, and in no transaction

    reading = Reading(servers)
    assert reading.batch() == [0, 1, 2]
    assert reading.batch(endingTimestamp=str(1 << 60)) == [0, 1, 2]
    assert reading.more() == [0, 1, 2]
    assert reading.more() == []

    if is_kept:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    rest = [3, 4] * is_kept + [5, 6, 7]
    assert reading.more() == rest
    assert reading.more() == []
    assert reading.batch() == [0, 1, 2, *rest]


def test_what_a_producer_wrote_reads_the_same_both_ways(
    servers: KafkaServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As record batches, and as messages that the broker makes of them."""
    servers.topic(TOPIC, partitions=1)
    servers.transactions(TOPIC, {0: True, 1: False, 2: True})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"bootstrap.servers": servers.bootstrap, "log_level": 0}
        producer = Producer(settings | {"compression.type": codec, "linger.ms": 5})
        for n in range(300):
            both: list[tuple[str, str | bytes | None]]
            both = [("TAGS", b"t%d" % (n % 3)), ("codec", codec.encode())]
            key = None if n % 5 else b"k%d" % n
            producer.produce(
                TOPIC, b"%d" % n * (n % 50), key=key, headers=both[n % 3 :], partition=0
            )
        assert producer.flush(30) == 0

    def read() -> list[dict[str, object]]:
        options = {"nameservers": servers.nameservers, "subscribe": TOPIC, "minPartitions": "7"}
        reader = RocketMQReader(read_options(options))
        return [
            row
            for part in reader.partitions()
            for batch in reader.read(part)
            for row in rows_of(batch)
        ]

    decoded: list[int] = []

    def noted(*given: Any) -> pa.RecordBatch:
        found = decode_rows(*given)
        decoded.append(found.num_rows)
        return found

    monkeypatch.setattr(record_batches, "decode_rows", noted)
    rows = read()
    assert [row["body"] for row in rows[:2]] == [b"0", b"2"]
    assert sum(decoded) == len(rows) == 1_502
    request = pull._request
    monkeypatch.setattr(pull, "_request", lambda *given: _without(request(*given), "takesBatches"))
    decoded.clear()
    assert read() == rows
    assert not decoded


def _without(request: Command, name: str) -> Command:
    ext = {key: value for key, value in request.ext.items() if key != name}
    return msgspec.structs.replace(request, ext=ext)
