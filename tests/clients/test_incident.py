"""`steelyard pipeline incident` reads our own brokers like Apache's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import kafka as kafka_python
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.kafka.servers import Running
from tests.waiting import until

from steelyard.incident.kafka.costs import costs
from steelyard.incident.kafka.offsets_topic import OffsetsTopic
from steelyard.spark.incidents.archive import archive
from steelyard.spark.incidents.sources import read_dump, read_kafka


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_join_and_a_leave(kafka: Running, name: str, protocol: str, tmp_path: Path) -> None:
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap}
    admin = AdminClient(servers)
    (made,) = admin.create_topics([NewTopic(name, 4, 1)]).values()
    made.result(30)
    producer = Producer(servers)
    members: list[Consumer] = []

    def join() -> None:
        options = servers | {"group.id": name, "client.id": f"c{len(members)}"}
        options |= {"group.protocol": protocol, "enable.auto.commit": False}
        members.append(Consumer(options))
        members[-1].subscribe([name])

    read: set[int] = set()

    def shared() -> bool:
        """Whether all hold a share, and have read and committed in every partition since `read` was emptied."""
        for number in range(4):
            producer.produce(name, b"x", partition=number)
        producer.flush(10)
        for member in members:
            if records := member.consume(10, 0.1):
                member.commit(asynchronous=False)
                read.update(record.partition() or 0 for record in records)
        held: list[TopicPartition] = [place for member in members for place in member.assignment()]
        return len(held) == len(read) == 4 and all(member.assignment() for member in members)

    try:
        for count in range(2):
            join()
            read.clear()
            until(shared, f"{count + 1} members share", 60)
        members.pop(0).close()
        read.clear()
        until(shared, "one member has all", 60)
    finally:
        for member in members:
            member.close()

    def found() -> list[tuple[str, int, int]]:
        topic = OffsetsTopic(name)
        ends = read_kafka(kafka.bootstrap, topic)
        assert set(ends) == {(name, number) for number in range(4)}
        rows = costs(topic.groups[name], topic.topics).rebalances
        return [(row.trigger, len(row.members_before), len(row.members_after)) for row in rows]

    until(lambda: len(found()) == 4, "all four rebalances are in the topic")
    assert found() == [
        ("joined", 0, 1),
        ("joined", 1, 2),
        ("left (unregistered)", 2, 1),
        ("left (unregistered)", 1, 0),
    ]


def test_an_archive_continues_and_outlives_a_kill(
    kafka: Running, name: str, tmp_path: Path
) -> None:
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap}
    admin = AdminClient(servers)
    (made,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
    made.result(30)
    consumer = Consumer(servers | {"group.id": name, "enable.auto.commit": False})

    def commit(*offsets: int) -> None:
        for offset in offsets:
            consumer.commit(offsets=[TopicPartition(name, 0, offset)], asynchronous=False)

    def archived() -> list[int]:
        archive(kafka.bootstrap, tmp_path / "archive", None)
        topic = OffsetsTopic(name)
        read_dump(tmp_path / "archive", topic)
        history = topic.groups.get(name)
        return [] if history is None else list(*(s.offsets for s in history.commits.values()))

    commit(1)
    until(lambda: archived() == [1], "the first commit is in the archive")
    for path in (tmp_path / "archive").rglob("*.log"):
        with path.open("ab") as file:
            file.write(b"\0\1\2")  # as a kill leaves it
    commit(2)
    until(lambda: archived() == [1, 2], "the second one, too")
    assert archived() == [1, 2]
    consumer.close()


def of_confluent(bootstrap: str, found: OffsetsTopic) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    )
    topic, waiting = "__consumer_offsets", set(range(50))
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in waiting])
    while waiting:
        for message in consumer.consume(500, 1):
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF
                waiting.discard(message.partition())
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            found.take(message.timestamp()[1], key, value)
    consumer.close()


def of_kafka_python(bootstrap: str, found: OffsetsTopic) -> None:
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    places = [kafka_python.TopicPartition("__consumer_offsets", number) for number in range(50)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    while any(consumer.position(place) < ends[place] for place in places):
        for records in consumer.poll(1000).values():
            for record in records:
                found.take(record.timestamp, record.key, record.value)
    consumer.close()


@pytest.mark.parametrize("read", [of_confluent, of_kafka_python])
def test_other_clients_read_the_topic(
    kafka: Running, name: str, read: Callable[[str, OffsetsTopic], None]
) -> None:
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": kafka.bootstrap}
    admin = AdminClient(servers)
    (made,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
    made.result(30)
    consumer = Consumer(servers | {"group.id": name, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    consumer.close()

    def committed() -> list[int]:
        found = OffsetsTopic(name)
        read(kafka.bootstrap, found)
        history = found.groups.get(name)
        return [] if history is None else list(*(s.offsets for s in history.commits.values()))

    until(lambda: committed() == [7], "the commit is in the topic")
