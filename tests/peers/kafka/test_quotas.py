"""Producers and consumers with quotas: at what rate they go, at Apache's broker and at ours."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.peers.kafka.servers import Running
from tests.peers.kafka.test_tools import TOOLS, tool
from tests.waiting import PATIENCE_S

from steelyard import KafkaConsumer, TopicPartition

pytestmark = pytest.mark.peer

CONFIGS = "kafka.admin.ConfigCommand"
QUOTA = 1_000_000
"""In bytes/s."""
BURST_S = 10
"""What a client has not used of the last seconds is free."""
TRANSFER_S = 40
"""For what is sent and read: the quota of so many seconds, a multiple of the burst.

Apache's broker gives it in bursts, eleven seconds apart: over a shorter time a rate says when the bursts came.
"""
RECORD = bytes(10_000)
RECORDS = QUOTA * TRANSFER_S // len(RECORD)


def limit(cluster: Running, client_id: str) -> None:
    rates = f"producer_byte_rate={QUOTA},consumer_byte_rate={QUOTA}"
    words = ("--entity-type", "clients", "--entity-name", client_id, "--add-config", rates)
    tool(CONFIGS, "--bootstrap-server", cluster.bootstrap, "--alter", *words)


def make(cluster: Running, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


def is_held(seconds: float) -> bool:
    """Whether a transfer took as long as the quota says: its first burst is free, a busy machine may take twice as long.

    A client that was not held would need one or two seconds.
    """
    return 0.75 * (TRANSFER_S - BURST_S) <= seconds <= 2 * TRANSFER_S


def test_librdkafka_is_held_to_its_quotas(cluster: Running, name: str) -> None:
    make(cluster, name)
    limit(cluster, name)
    common: dict[str, str | int | float | bool] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": name,
    }
    # Batches of 100 kB: what is sent before an answer tells to wait is a small part of the burst.
    producer = Producer({**common, "batch.size": 100_000, "message.timeout.ms": 600_000})
    begun = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(name, RECORD)
    assert producer.flush(10 * TRANSFER_S) == 0
    seconds = time.monotonic() - begun
    assert is_held(seconds), seconds

    consumer = Consumer(
        {
            **common,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100_000,
            "fetch.queue.backoff.ms": 0,
        }
    )
    consumer.subscribe([name])
    first = None
    for _ in range(RECORDS):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        first = first or time.monotonic()
    assert first is not None
    seconds = time.monotonic() - first
    consumer.close()
    assert is_held(seconds), seconds


def test_consumers_of_one_name_share_a_quota(cluster: Running, name: str) -> None:
    """Two connections get no more than one would: most of it after the burst, and not earlier."""
    make(cluster, name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    each = 15 * QUOTA // len(RECORD)
    for _ in range(each):
        producer.produce(name, RECORD)
    assert producer.flush(PATIENCE_S) == 0
    limit(cluster, name)

    def read(number: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": name,
                "group.id": f"{name}-{number}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([name])
        for _ in range(each):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
        consumer.close()

    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(read, range(2))] == [None, None]
    assert time.monotonic() - begun > 0.75 * (30 - BURST_S)


def test_javas_producer_is_held_to_its_quota(cluster: Running, name: str) -> None:
    """Two thirds of its records are sent after the burst, and not earlier."""
    make(cluster, name)
    limit(cluster, name)
    seconds = 3 * BURST_S
    number = QUOTA * seconds // 1_000
    words = ("--topic", name, "--num-records", number, "--record-size", 1000, "--throughput", -1)
    props = (f"bootstrap.servers={cluster.bootstrap}", f"client.id={name}")
    begun = time.monotonic()
    tool(f"{TOOLS}.ProducerPerformance", *words, "--producer-props", *props)
    assert time.monotonic() - begun > 0.9 * (seconds - BURST_S)


def test_our_consumer_waits_for_its_quota(
    cluster: Running, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker reads nothing from it for longer than a request may take: it waits, and keeps its connection (KIP-219)."""
    make(cluster, name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(3_000):  # three times what a burst may be
        producer.produce(name, RECORD)
    assert producer.flush(PATIENCE_S) == 0
    limit(cluster, name)
    with KafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        client_id=name,
        auto_offset_reset="earliest",
        request_timeout_ms=3_000,
        fetch_max_bytes=20_000_000,
        max_partition_fetch_bytes=20_000_000,
    ) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        begun = time.monotonic()
        count = 0
        while count < 3_000:
            found = consumer.poll(1_000)
            count += len(found)
            assert time.monotonic() - begun < 3 * PATIENCE_S, count
        seconds = time.monotonic() - begun
    assert seconds > 0.75 * (3_000 * len(RECORD) / QUOTA - BURST_S), seconds
    assert "time-out" not in caplog.text


def test_another_client_is_not_slowed_down(cluster: Running, name: str) -> None:
    """While one waits for its quota, the other sends ten times as much."""
    make(cluster, name)
    limit(cluster, name)
    stopped = threading.Event()
    common = {"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.messages": 2_000}
    slow = Producer({**common, "client.id": name})

    def send() -> None:
        while not stopped.is_set():
            try:
                slow.produce(name, RECORD)
            except BufferError:
                slow.poll(0.1)
            slow.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        free = Producer({**common, "client.id": f"{name}-free"})
        begun = time.monotonic()
        for _ in range(3_000):
            while len(free) >= 1_000:
                free.poll(0.1)
            free.produce(name, RECORD)
        assert free.flush(PATIENCE_S) == 0
        rate = 3_000 * len(RECORD) / (time.monotonic() - begun)
        assert rate > 2 * QUOTA, rate
    finally:
        stopped.set()
        thread.join()
        slow.purge()
