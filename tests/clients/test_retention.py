"""Retention and a disk that is nearly full, as an unmodified client sees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.confluent import Confluent
from tests.peers.kafka import servers
from tests.peers.kafka.servers import Running
from tests.waiting import until

CHUNK = 900_000
"""Bytes of a record: one, or with its batch's header not even one more, fits into the smallest segment."""


def begins_at(bootstrap: str, topic: str) -> int:
    """The first offset of the only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "asks"})
    try:
        begin, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(begin)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One broker that looks for old segments each 100 ms."""
    settings = ("--kafka-set", "log.retention.check.interval.ms=100")
    with servers.run_steelyard(tmp_path_factory.mktemp("kafka"), *settings) as running:
        yield running


@pytest.mark.parametrize(
    ("settings", "begin"),
    [
        ({"segment.bytes": "1048576", "retention.bytes": "2000000"}, 5),
        ({"segment.bytes": "1048576", "retention.ms": "1"}, 8),
        ({"segment.ms": "1", "retention.bytes": "2000000"}, 5),
    ],
)
def test_old_segments_of_a_topic_go(
    kafka: Running, name: str, settings: dict[str, str], begin: int
) -> None:
    """Three records hold 2,000,000 bytes, two do not."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 1, config=settings)])[name].result(60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(8):
        producer.produce(name, b"x" * CHUNK)
        assert producer.flush(30) == 0
    until(lambda: begins_at(kafka.bootstrap, name) == begin, f"offset {begin} is the first")
    found = Confluent(kafka.bootstrap).read(name, {0: begin}, 8 - begin)
    assert [record.offset for record in found] == [*range(begin, 8)]


def test_producers_hear_of_a_disk_that_is_nearly_full(tmp_path: Path, name: str) -> None:
    full = ("--set", "disk_full_ratio=0.0000001", "--set", f"disk_free_bytes_enough={1 << 60}")
    with servers.run_steelyard(tmp_path, *full) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(name, 1)])[name].result(60)
        failed: list[KafkaError | None] = []
        producer = Producer(
            {"bootstrap.servers": running.bootstrap, "message.timeout.ms": 30_000, "retries": 0}
        )
        producer.produce(name, b"x", on_delivery=lambda error, _: failed.append(error))
        producer.flush(30)
        assert [error and error.code() for error in failed] == [KafkaError.KAFKA_STORAGE_ERROR]
