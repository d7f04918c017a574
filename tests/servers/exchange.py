"""Clients of both protocols at a cluster of two brokers: python -m tests.servers.exchange NAMESERVER KAFKA TOPIC.

They find the brokers by what these advertise, write to both, and read from both. What was read is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import threading

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.waiting import until

from steelyard import ConsumeFrom, MessageView, Producer, PushConsumer

BODIES = [f"{number}".encode() for number in range(8)]


def exchange(nameserver: str, kafka: str, topic: str) -> dict[str, list[str]]:
    """What consumers of either protocol read of what producers of either wrote, sorted; and the brokers it was at."""
    admin = AdminClient({"bootstrap.servers": kafka})
    until(lambda: len(admin.list_topics(timeout=60).brokers) == 2)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    until(lambda: _leaders(admin, topic) == {1, 2})
    writer = confluent_kafka.Producer({"bootstrap.servers": kafka})
    for number, body in enumerate(BODIES[:4]):
        writer.produce(topic, body, partition=number % 2)
    assert writer.flush(60) == 0
    with Producer("exchange", nameserver) as producer:
        until(lambda: len({q.broker_name for q in producer.queues(topic)}) == 2)
        for queue in producer.queues(topic):
            for body in BODIES[4:]:
                producer.send(topic, queue.broker_name.encode() + body, queue=queue)
    wanted = 4 + 2 * 4
    return {
        "kafka": sorted(_read_by_kafka(kafka, topic, wanted)),
        "rocketmq": sorted(_read_by_rocketmq(nameserver, topic, wanted)),
    }


def expected() -> dict[str, list[str]]:
    """What `exchange` returns if all is right."""
    names = [b"broker-a", b"broker-b"]
    bodies = [*BODIES[:4], *(name + body for name in names for body in BODIES[4:])]
    texts = sorted(body.decode() for body in bodies)
    return {"kafka": texts, "rocketmq": texts}


def _leaders(admin: AdminClient, topic: str) -> set[int]:
    partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
    return {each.leader for each in partitions.values()}


def _read_by_kafka(kafka: str, topic: str, wanted: int) -> list[str]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"kafka-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        return len(found) >= wanted

    until(read)
    consumer.close()
    return found


def _read_by_rocketmq(nameserver: str, topic: str, wanted: int) -> list[str]:
    found: list[str] = []
    lock = threading.Lock()

    def listen(message: MessageView) -> None:
        with lock:
            found.append(message.body.decode())

    consumer = PushConsumer(
        f"rocketmq-{topic}", nameserver, listen, consume_from=ConsumeFrom.FIRST_OFFSET
    )
    with consumer.subscribe(topic, "*"):
        until(lambda: len(found) >= wanted)
    return found


if __name__ == "__main__":
    print(json.dumps(exchange(*sys.argv[1:])))
