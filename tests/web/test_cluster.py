"""Figures of a running cluster, beside what its clients know themselves."""

from __future__ import annotations

import time
from collections import Counter

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition
from tests.waiting import until
from tests.web.conftest import Watched
from tests.web.scrapes import get, readiness, scrape

from steelyard import Producer, PullConsumer, PushConsumer
from steelyard.ledger.cost import costs
from steelyard.ledger.events import LEDGER_TOPIC, Record, decode
from steelyard.ledger.order import in_order
from steelyard.ledger.tables import Rebalance

LAG = "steelyard_consumer_group_lag_messages"
OFFSET = "steelyard_consumer_group_offset"
PAUSES = "steelyard_rebalance_pause_seconds_count"
KAFKA_LAG = "steelyard_kafka_consumer_group_lag_messages"


def test_the_lag_of_a_kafka_group_is_what_its_client_says(watched: Watched) -> None:
    servers = watched.servers
    topic = servers.topic("orders", 4)
    before_ms = time.time() * 1000
    servers.fill(topic, range(400))
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": servers.bootstrap,
            "group.id": "stock",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
    taken = [until(lambda: consumer.poll(0.1)) for _ in range(150)]
    assert all(message.error() is None for message in taken)
    offsets = dict.fromkeys(range(4), 0)
    for message in taken:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        offsets[partition] = offset + 1
    consumer.commit(
        offsets=[TopicPartition(topic, number, at) for number, at in offsets.items()],
        asynchronous=False,
    )
    seen = scrape(watched.http)
    committed = consumer.committed([TopicPartition(topic, number) for number in range(4)], 30)
    for place in committed:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, place.partition), 30)
        labels = {"group": "stock", "topic": topic, "partition": str(place.partition)}
        assert seen.all(KAFKA_LAG, **labels) == [end - place.offset]
        assert seen.all("steelyard_kafka_consumer_group_offset", **labels) == [place.offset]
        (seconds,) = seen.all("steelyard_kafka_consumer_group_lag_seconds", **labels)
        is_behind = end > place.offset
        assert (seconds > 0) == is_behind
        assert seconds * 1000 <= time.time() * 1000 - before_ms
        del labels["group"]
        assert seen.all("steelyard_queue_end_offset", **labels) == [end]
    assert seen.total(KAFKA_LAG, group="stock") == 250
    assert seen.total("steelyard_broker_requests_total", request="Produce") >= 1
    until(lambda: scrape(watched.http).total("steelyard_broker_fsync_seconds_count"))
    consumer.close()


def test_the_lag_of_a_rocketmq_group_is_what_was_not_consumed(watched: Watched) -> None:
    nameserver = watched.servers.nameservers
    received: list[bytes] = []

    def committed() -> float:
        return scrape(watched.http).total(OFFSET, group="buyers", topic="Goods")

    with Producer("makers", nameserver) as producer:
        consumer = PushConsumer("buyers", nameserver, lambda one: received.append(one.body))
        with consumer.subscribe("Goods"):
            for number in range(40):
                producer.send("Goods", b"%d" % number)
            until(lambda: committed() == 40)
            seen = scrape(watched.http)
            assert len(received) == 40
            assert seen.total(LAG, group="buyers") == 0
            assert seen.all("steelyard_consumer_group_members", group="buyers") == [1, 1]
            assert seen.total("steelyard_consumer_group_lag_seconds", group="buyers") == 0
        for number in range(30):
            producer.send("Goods", b"%d" % number)
    seen = scrape(watched.http)
    assert seen.total(LAG, group="buyers", topic="Goods") == 30
    assert max(seen.all("steelyard_consumer_group_lag_seconds", group="buyers")) > 0
    assert seen.all("steelyard_consumer_group_members", group="buyers") == [0, 0]
    assert seen.total("steelyard_queue_end_offset", topic="Goods") == 70


def test_rebalances_are_those_that_the_ledger_tells(watched: Watched) -> None:
    nameserver = watched.servers.nameservers
    taken: list[list[object]] = [[], []]

    def member(number: int) -> PushConsumer:
        consumer = PushConsumer(
            "crew", nameserver, taken[number].append, client_id=f"10.0.0.{number}@crew"
        )
        return consumer.subscribe("Tasks")

    with Producer("makers", nameserver) as producer:

        def gets_more(number: int) -> bool:
            for body in range(16):
                producer.send("Tasks", b"%d" % body)
            time.sleep(0.1)  # a rate that leaves the clients and servers in this process some time
            return bool(taken[number])

        producer.send("Tasks", b"first")
        with member(0):
            until(lambda: gets_more(0))
            with member(1):
                until(lambda: gets_more(1))
            taken[0].clear()
            until(lambda: gets_more(0))
            until(lambda: counted(watched, "joined") and counted(watched, "left (unregistered)"))
    table = told(nameserver, "crew")
    until(
        lambda: (
            {row.trigger: counted(watched, row.trigger) for row in table}
            == Counter(row.trigger for row in table)
        )
    )
    seen = scrape(watched.http)
    moved = seen.total(PAUSES, group="crew", kind="moved")
    assert moved == sum(row.queues_moved for row in table) > 0
    for name in ("redelivered_messages", "reprocessed_messages_max", "reprocessed_messages_min"):
        column = name.replace("_messages", "")
        value = seen.total(f"steelyard_rebalance_{name}_total", group="crew")
        assert value == sum(getattr(row, column) for row in table)


def counted(watched: Watched, trigger: str) -> float:
    seen = scrape(watched.http)
    return seen.total("steelyard_rebalances_total", group="crew", trigger=trigger)


def told(nameserver: str, group: str) -> list[Rebalance]:
    """The rebalances of a group, as the ledger's job computes them from all records."""
    records: list[Record] = []
    with PullConsumer("auditors", nameserver) as consumer:
        for queue in consumer.queues(LEDGER_TOPIC):
            offset = 0
            while (found := consumer.pull(queue, offset)).messages:
                records += [one for message in found.messages for one in decode(message.body)]
                offset = found.next_begin_offset
    return [row for row in costs(in_order(records)).rebalances if row.group == group]


def test_a_broker_that_is_down_is_told_and_delays_nobody(watched: Watched) -> None:
    until(lambda: readiness(watched.http) == (200, []))
    watched.servers.stop_broker("broker-1")
    began = time.monotonic()
    seen = scrape(watched.http)
    assert time.monotonic() - began < 10
    assert seen.all("steelyard_broker_up", broker="broker-0") == [1]
    assert seen.all("steelyard_broker_up", broker="broker-1") == [0]
    assert seen.all("steelyard_broker_messages_in_total", broker="broker-1") == []
    assert len(seen.all("steelyard_broker_messages_in_total", broker="broker-0")) == 1
    status, missing = readiness(watched.http)
    assert status == 503
    assert [text.partition(":")[0] for text in missing] == ["broker broker-1"]
    assert get(watched.http, "/healthz")[0] == 200
    watched.servers.start_broker("broker-1")
    until(lambda: readiness(watched.http) == (200, []))


def test_both_formats_and_no_other_paths(watched: Watched) -> None:
    status, kind, text = get(
        watched.http, "/metrics", "application/openmetrics-text; version=1.0.0"
    )
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert get(watched.http, "/metrics")[1].startswith("text/plain; version=")
    assert get(watched.http, "/")[0] == 404
