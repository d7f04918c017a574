"""Producers and consumers with quotas: at what rate they go, at Apache's broker and at ours."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.peers.kafka.servers import Running
from tests.peers.kafka.test_tools import TOOLS, tool
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer

CONFIGS = "kafka.admin.ConfigCommand"
QUOTA = 1_000_000
"""In bytes/s."""
BURST_S = 10
"""What a client has not used of the last seconds is free."""
MEASURED_S = 30
RECORD = bytes(10_000)


def limit(cluster: Running, client_id: str) -> None:
    rates = f"producer_byte_rate={QUOTA},consumer_byte_rate={QUOTA}"
    words = ("--entity-type", "clients", "--entity-name", client_id, "--add-config", rates)
    tool(CONFIGS, "--bootstrap-server", cluster.bootstrap, "--alter", *words)


def make(cluster: Running, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)


class Rate:
    """Bytes, by when they came."""

    def __init__(self) -> None:
        self._arrivals: list[tuple[float, int]] = []

    def add(self, size: int) -> None:
        self._arrivals.append((time.monotonic(), size))

    def after_burst(self, begun: float) -> float:
        """Bytes/s from the first that came when the burst was over, to the last."""
        late = [each for each in self._arrivals if each[0] >= begun + 1.5 * BURST_S]
        assert late, "nothing came after the burst"
        # What came at the same time as the first was paid for before.
        first = late[0][0]
        size = sum(size for when, size in late if when > first + 0.2)
        return size / (late[-1][0] - first)


def is_within(rate: float) -> bool:
    """Whether a rate is the quota, or less on a busy machine.

    30 s may have a third more: Apache's broker gives the quota in bursts, and a client that stood still has saved up for one.
    """
    return 0.5 * QUOTA <= rate <= 1.35 * QUOTA


def test_librdkafka_is_held_to_its_quotas(cluster: Running, name: str) -> None:
    make(cluster, name)
    limit(cluster, name)
    common: dict[str, str | int | float | bool] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": name,
    }
    sent, begun = Rate(), time.monotonic()
    # Batches of 100 kB, so that whole batches do not blur the rate.
    producer = Producer(
        {
            **common,
            "batch.size": 100_000,
            "message.timeout.ms": 600_000,
            "queue.buffering.max.messages": 2_000,
        }
    )

    def delivered(error: object, message: object) -> None:
        if error is None:
            sent.add(len(RECORD))

    while time.monotonic() < begun + 1.5 * BURST_S + MEASURED_S:
        try:
            producer.produce(name, RECORD, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
    producer.purge()
    rate = sent.after_burst(begun)
    assert is_within(rate), rate

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
    read, begun = Rate(), time.monotonic()
    while time.monotonic() < begun + 1.5 * BURST_S + 20:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read.add(len(message.value() or b""))
    consumer.close()
    rate = read.after_burst(begun)
    assert is_within(rate), rate


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
