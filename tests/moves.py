"""What tests of `steelyard pipeline move` put into topics, and what consumers see of it."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from steelyard import Admin, Message, MessageQueue, MessageView, Producer, PullConsumer

PARTITIONS = 3


def send(nameservers: str, topic: str, numbers: range) -> None:
    """Messages of all kinds, in order, to two queues of each broker."""
    with Admin(nameservers) as admin:
        admin.create_topic(topic, queues=2)
    with Producer("p", nameservers, compress_above_bytes=2_000) as producer:
        queues = sorted(producer.queues(topic))
        for number in numbers:
            body = b"%d|" % number + bytes(3_000 if number % 10 == 0 else number % 7)
            message = Message(
                topic,
                body,
                tags=f"tag{number % 3}",
                keys=f"key{number} other",
                properties={"n": str(number), "colour": "grün-中"},
                flag=number % 5,
            )
            producer.send(message, queue=queues[number % len(queues)])


def contents(nameservers: str, topic: str) -> dict[MessageQueue, list[Any]]:
    """What a consumer sees of each message, in order."""
    found: dict[MessageQueue, list[Any]] = {}
    with PullConsumer("reader", nameservers) as consumer:
        for queue in consumer.queues(topic):
            at = consumer.min_offset(queue)
            views: list[MessageView] = []
            while at < consumer.max_offset(queue):
                result = consumer.pull(queue, at)
                views += result.messages
                at = result.next_begin_offset
            found[queue] = [
                (view.body, view.flag, view.born_timestamp, dict(view.properties)) for view in views
            ]
    return found


def produce(bootstrap: str, topic: str, numbers: range, *, aborted: bool = False) -> None:
    """Records in two transactions, the second one aborted if that is asked for: offsets have gaps."""
    client = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "lz4"}
    )
    client.init_transactions(30)
    for ends in (True, False) if aborted else (True,):
        client.begin_transaction()
        for number in numbers:
            client.produce(
                topic,
                None if number % 7 == 0 else b"value %d" % number,
                None if number % 5 == 0 else b"key %d" % number,
                partition=number % PARTITIONS,
                timestamp=1_700_000_000_000 + number,
                headers=[("n", b"%d" % number), ("n", None)],
            )
        client.flush(30)  # Apache refuses the abort of a transaction that it has not heard of yet
        client.commit_transaction(30) if ends else client.abort_transaction(30)


def read(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """What librdkafka's consumer reads, partition by partition."""
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        | {"enable.partition.eof": True, "isolation.level": "read_committed"}
    )
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    client.assign(places)
    found, ended = [], 0
    try:
        while ended < len(places):
            message = client.poll(30)
            assert message is not None
            if message.error() is None:
                found.append(seen(message))
            else:
                ended += 1
    finally:
        client.close()
    return sorted(found, key=lambda one: one[:2])


def seen(message: confluent_kafka.Message) -> tuple[Any, ...]:
    """Partition, offset, and what a record is besides."""
    place = message.partition(), message.offset()
    return *place, message.key(), message.value(), message.headers(), message.timestamp()


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    client = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    client.commit(
        offsets=[confluent_kafka.TopicPartition(topic, *one) for one in offsets.items()],
        asynchronous=False,
    )
    client.close()


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    client = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = client.committed(places, timeout=30)
    client.close()
    return {place.partition: place.offset for place in found if place.offset >= 0}
