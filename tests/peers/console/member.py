"""A member of a group, as a process of its own: `member.py kafka BOOTSTRAP GROUP CLIENT_ID STRATEGY TOPICS [REVOKE_SECONDS]`,
`member.py rocketmq NAMESERVER GROUP CLIENT_ID TOPIC`, or COUNT members of Kafka's in one: `member.py crowd BOOTSTRAP GROUP PREFIX COUNT TOPIC`.

REVOKE_SECONDS: how long it takes to give up partitions, as applications do that first finish what they have.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable


def kafka(
    bootstrap: str, group: str, client_id: str, strategy: str, topics: str, seconds: str = "0"
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
    }
    if strategy == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"partition.assignment.strategy": strategy, "session.timeout.ms": 6000}
    consumer = Consumer(settings)

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            time.sleep(float(seconds))

    consumer.subscribe(topics.split(","), on_revoke=revoked)
    try:
        while True:
            consumer.poll(0.5)
    finally:
        consumer.close()


def crowd(bootstrap: str, group: str, prefix: str, count: str, topic: str) -> None:
    from confluent_kafka import Consumer

    consumers = []
    for number in range(1, int(count) + 1):
        settings: dict[str, str | int] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"{prefix}-{number}",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 30_000,
            "queued.min.messages": 1,
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        consumers.append(consumer)
    try:
        while True:
            for consumer in consumers:
                consumer.poll(0)
            time.sleep(0.02)
    finally:
        for consumer in consumers:
            consumer.close()


def rocketmq(nameserver: str, group: str, client_id: str, topic: str) -> None:
    from steelyard import PushConsumer

    with PushConsumer(group, nameserver, lambda message: None, client_id=client_id).subscribe(
        topic, "*"
    ):
        while True:
            time.sleep(60)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # to leave in order
    kinds: dict[str, Callable[..., None]] = {"kafka": kafka, "crowd": crowd, "rocketmq": rocketmq}
    kinds[sys.argv[1]](*sys.argv[2:])
