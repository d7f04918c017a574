"""One topic, two dialects: what RocketMQ's clients write, Kafka's read, and the other way round, at the same offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient
from tests.clients.confluent import Confluent
from tests.clients.libraries import Library, Sent
from tests.peers.kafka.servers import Running
from tests.waiting import until

from steelyard import (
    Admin,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    MessageView,
    Producer,
    PushConsumer,
    RouteError,
)

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture
def producer(kafka: Running) -> Iterator[Producer]:
    with Producer("dialects", kafka.nameserver) as producer:
        yield producer


def wait_route(kafka: Running, topic: str) -> None:
    """Until RocketMQ's clients find a topic that Kafka's have made."""

    def is_known() -> bool:
        try:
            return bool(admin.route(topic).queue_datas)
        except RouteError:
            return False

    with Admin(kafka.nameserver) as admin:
        until(is_known, f"a route to {topic}")


def wait_partitions(kafka: Running, topic: str, count: int) -> None:
    """Until each broker tells Kafka's clients of so many partitions of a topic that sends have made: a consumer that
    is told of fewer looks for others minutes later."""
    for address in kafka.bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address})

        def are_told(admin: AdminClient = admin) -> bool:
            return len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == count

        until(are_told, f"{count} partitions of {topic} at {address}")


@contextmanager
def pushed(kafka: Running, group: str, topic: str, tags: str = "*") -> Iterator[list[MessageView]]:
    """What a push consumer of RocketMQ is given."""
    got: list[MessageView] = []
    consumer = PushConsumer(group, kafka.nameserver, got.append, config=FIRST)
    with consumer.subscribe(topic, tags):
        yield got


def test_rocketmq_writes_and_kafka_reads(
    kafka: Running, library: Library, name: str, producer: Producer
) -> None:
    """The topic is made by the first send; keys become the key, tags and properties headers."""
    sent = [
        producer.send(
            Message(name, b"body %d" % number, "TagA", f"key{number}", {"colour": f"{number}"})
        )
        for number in range(12)
    ]
    producer.send(Message(name, b"bare"))
    wait_partitions(kafka, name, len({result.queue for result in sent}))
    records = library.consume(name, name, 13)
    assert {record.value for record in records} == {
        b"bare",
        *(b"body %d" % number for number in range(12)),
    }
    for number, result in enumerate(sent):
        (record,) = (one for one in records if one.value == b"body %d" % number)
        headers = dict(record.headers)
        assert record.offset == result.queue_offset
        assert record.key == b"key%d" % number
        assert headers["TAGS"] == b"TagA"
        assert headers["colour"] == b"%d" % number
        assert headers["UNIQ_KEY"] == result.message_id.encode()
    (bare,) = (one for one in records if one.value == b"bare")
    assert bare.key is None
    assert "TAGS" not in dict(bare.headers)


def test_kafka_writes_and_rocketmq_reads(kafka: Running, library: Library, name: str) -> None:
    """Every codec; keys, tags and properties come from key and headers; a filter by tag reads the header TAGS."""
    library.create_topic(name, 2)
    wait_route(kafka, name)
    wanted: dict[bytes, tuple[str, str, str | None]] = {}
    for codec in library.codecs:
        records = []
        for number in range(4):
            value, tag = f"{codec} {number}", "AB"[number % 2]
            headers = (("TAGS", tag.encode()), ("codec", codec.encode()), ("bytes", b"\xff"))
            records.append(Sent(value.encode(), b"k%d" % number, headers, partition=number % 2))
            wanted[value.encode()] = (f"k{number}", tag, codec)
        library.send(name, records, codec=codec)

    def facts(message: MessageView) -> tuple[str, str, str | None]:
        assert "bytes" not in message.properties
        return message.keys, message.tags, message.properties.get("codec")

    with (
        pushed(kafka, name, name) as everything,
        pushed(kafka, f"{name}-b", name, "B") as filtered,
    ):
        until(lambda: len(everything) >= len(wanted), "all messages")
        until(lambda: len(filtered) >= len(wanted) // 2, "the filtered messages")
    assert {bytes(message.body): facts(message) for message in everything} == wanted
    only_b = {body: found for body, found in wanted.items() if found[1] == "B"}
    assert {bytes(message.body): facts(message) for message in filtered} == only_b


def test_rocketmq_sees_nothing_of_aborted_transactions(
    kafka: Running, library: Library, name: str
) -> None:
    """And nothing of an open one until it is committed, nor what came after it."""
    library.create_topic(name)
    wait_route(kafka, name)
    transaction = library.transaction(name)
    transaction.begin()
    transaction.send(name, [b"aborted"] * 3)
    transaction.abort()
    library.send(name, [Sent(b"before")])
    transaction.begin()
    transaction.send(name, [b"committed"] * 3)
    library.send(name, [Sent(b"after")])
    with pushed(kafka, name, name) as got:
        until(lambda: got, "what came before")
        assert [bytes(message.body) for message in got] == [b"before"]
        transaction.commit()
        until(lambda: len(got) >= 5, "all messages")
    transaction.close()
    bodies = [bytes(one.body) for one in sorted(got, key=lambda one: one.queue_offset)]
    assert bodies == [b"before", *[b"committed"] * 3, b"after"]


def test_both_dialects_write_one_log(kafka: Running, name: str, producer: Producer) -> None:
    """In turn into one partition; both read the same at the same offsets, in the order written."""
    library = Confluent(kafka.bootstrap)
    library.create_topic(name)
    wait_route(kafka, name)
    wanted: list[bytes] = []
    for turn in range(6):
        batch = [b"kafka %d.%d" % (turn, number) for number in range(3)]
        codec = library.codecs[turn % len(library.codecs)]
        assert library.send(name, [Sent(value) for value in batch], codec=codec)[0] == len(wanted)
        wanted += batch
        result = producer.send(name, b"rocketmq %d" % turn)
        assert result.queue_offset == len(wanted)
        wanted.append(b"rocketmq %d" % turn)
    records = library.read(name, {0: 0}, len(wanted))
    assert [(record.offset, record.value) for record in records] == [*enumerate(wanted)]
    with pushed(kafka, name, name) as got:
        until(lambda: len(got) >= len(wanted), "all messages")
    found = sorted((message.queue_offset, bytes(message.body)) for message in got)
    assert found == [*enumerate(wanted)]
    for start in range(len(wanted)):
        assert library.read(name, {0: start}, 1)[0].value == wanted[start]
