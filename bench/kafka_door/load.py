"""One load on one Kafka broker, by confluent-kafka (librdkafka), in a process of its own; prints its figures as JSON.

produce   messages of one size as fast as they are acknowledged (acks=all, linger 5 ms)
consume   the same messages back, from the beginning, by one consumer
latency   1,000 messages a second, each timed from `produce` to its consumer's `poll`
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS = 4
RATE = 1_000
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Load:
    kind: str
    bootstrap: str
    topic: str
    messages: int
    message_bytes: int
    client: Mapping[str, str] = field(default_factory=dict)
    """What a client sets to reach the servers, besides their address: of TLS."""

    @property
    def servers(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.client}


CREATION_S = 120


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int = PARTITIONS,
    client: Mapping[str, str] | None = None,
) -> None:
    """Returns when the topic can be written to."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **(client or {})})
    new = [NewTopic(topic, partitions, 1)]
    # A broker of Apache that stood still for the others' turns first joins its controller again.
    (made,) = admin.create_topics(
        new, request_timeout=CREATION_S, operation_timeout=CREATION_S
    ).values()
    made.result(CREATION_S)
    while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
        time.sleep(0.01)


def produce(load: Load) -> dict[str, Any]:
    body = bytes(load.message_bytes)
    producer = Producer(
        {
            **load.servers,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 512 * 1024,
        }
    )
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    producer.produce(load.topic, body, on_delivery=delivered)  # connections and metadata are there
    producer.flush()
    begun = time.perf_counter()
    for _ in range(load.messages):
        while True:
            try:
                producer.produce(load.topic, body)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    return figures(load, time.perf_counter() - begun, failures)


def consume(load: Load) -> dict[str, Any]:
    consumer = Consumer(
        {
            **load.servers,
            "group.id": "bench",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Else librdkafka rests for a second whenever it has 64 MB in hand.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(load.topic, number, 0) for number in range(PARTITIONS)])
    first = consumer.consume(1, 30)
    begun = time.perf_counter()
    count = len(first)
    failures: list[str] = []
    while count < load.messages and time.perf_counter() < begun + 120:
        for message in consumer.consume(min(10_000, load.messages - count), 1.0):
            error = message.error()
            if error is None:
                count += 1
            else:
                failures.append(str(error))
    seconds = time.perf_counter() - begun
    if count < load.messages:
        failures.append(f"{count} of {load.messages} came")
    consumer.close()
    return figures(load, seconds, failures)


def latency(load: Load) -> dict[str, Any]:
    """End to end at a steady rate; the first seconds do not count."""
    producer = Producer({**load.servers, "acks": "all", "linger.ms": 0})
    consumer = Consumer(
        {
            **load.servers,
            "group.id": "latency",
            "fetch.wait.max.ms": 500,
            "auto.offset.reset": "latest",
        }
    )
    consumer.assign([TopicPartition(load.topic, n, 0) for n in range(PARTITIONS)])
    padding = bytes(load.message_bytes - 8)
    taken: list[float] = []
    total = load.messages

    def receive() -> None:
        while len(taken) < total:
            message = consumer.poll(10)
            if message is None:
                return
            value = message.value()
            if message.error() is None and value is not None:
                sent = int.from_bytes(value[:8], "big")
                taken.append((time.perf_counter_ns() - sent) / 1e6)

    receiver = threading.Thread(target=receive)
    receiver.start()
    begun = time.perf_counter()
    for number in range(total):
        pause = begun + number / RATE - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        stamp = time.perf_counter_ns().to_bytes(8, "big")
        producer.produce(load.topic, stamp + padding, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush()
    receiver.join()
    consumer.close()
    seconds = time.perf_counter() - begun
    failures = [] if len(taken) == total else [f"{len(taken)} of {total} came"]
    counted = sorted(taken[int(WARM_UP_S * RATE) :])
    result = figures(load, seconds, failures)
    result["p50_ms"] = counted[len(counted) // 2]
    result["p99_ms"] = counted[int(len(counted) * 0.99)]
    return result


def figures(load: Load, seconds: float, failures: list[str]) -> dict[str, Any]:
    rate = load.messages / seconds
    return {
        "messages": load.messages,
        "messages_per_s": rate,
        "mb_per_s": rate * load.message_bytes / 1e6,
        "failures": failures[:5],
    }


KINDS = {"produce": produce, "consume": consume, "latency": latency}


if __name__ == "__main__":
    wanted = Load(**json.loads(sys.argv[1]))
    print(json.dumps(KINDS[wanted.kind](wanted)))
