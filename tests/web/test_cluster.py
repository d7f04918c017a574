"""Figures of a running cluster, beside what its clients know themselves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition
from tests.waiting import until
from tests.web.conftest import Watched
from tests.web.scrapes import get, readiness, scrape

from steelyard import Admin, Producer, PullConsumer, PushConsumer
from steelyard.ledger.cost import costs
from steelyard.ledger.events import LEDGER_TOPIC, Record, decode
from steelyard.ledger.order import in_order
from steelyard.ledger.tables import Rebalance
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView

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


def test_the_lag_of_a_kafka_group_that_never_committed_is_all_that_is_left(
    watched: Watched,
) -> None:
    """A member that hangs in its first message commits nothing: what it holds waits."""
    servers = watched.servers
    topic = servers.topic("unread", 4)
    servers.fill(topic, range(60))
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": servers.bootstrap,
            "group.id": "stuck",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is not None and len(consumer.assignment()) == 4)
    until(lambda: scrape(watched.http).total(KAFKA_LAG, group="stuck") == 60)
    seconds = scrape(watched.http).all(
        "steelyard_kafka_consumer_group_lag_seconds", group="stuck", topic=topic
    )
    assert len(seconds) == 4
    assert max(seconds) > 0
    with Admin(servers.nameservers) as admin:
        report = admin.kafka_group("stuck")
        assert [row.offset for row in report.offsets] == [None] * 4
        assert report.lag == admin.consumer_progress("stuck").lag == 60
        assert max(admin.oldest_waits(report).values()) > 0
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
    """One member reads all queues, another joins: what is counted is what the ledger's job finds."""
    nameserver = watched.servers.nameservers
    read: list[set[MessageQueue]] = [set(), set()]

    def member(number: int) -> PushConsumer:
        def listener(message: MessageView) -> None:
            read[number].add(message.queue)

        client_id = f"10.0.0.{number}@crew"
        return PushConsumer("crew", nameserver, listener, client_id=client_id).subscribe("Tasks")

    with (
        Producer("makers", nameserver) as producer,
        PullConsumer("auditors", nameserver) as auditor,
    ):
        producer.send("Tasks", b"first")

        def queues() -> set[MessageQueue]:
            return set(auditor.queues("Tasks"))

        def reads(number: int, count: int) -> bool:
            """Send to each queue; whether the member has read so many by now."""
            for queue in sorted(queues()):
                producer.send("Tasks", b"more", queue=queue)
            time.sleep(0.1)  # a rate that leaves the clients and servers in this process some time
            return len(read[number]) >= count

        def agree() -> bool:
            truth = costs_of(told(auditor, "crew"))
            return truth["moved"] > 0 and counted(watched, "crew") == truth

        with member(0):
            until(lambda: reads(0, len(queues())))
            with member(1):
                until(lambda: reads(1, len(queues()) // 2) and agree())


def costs_of(table: Sequence[Rebalance]) -> dict[str, float]:
    """Rebalances by trigger, pauses and repeats, from the ledger's table."""
    return {
        **Counter(row.trigger for row in table),
        "moved": sum(row.queues_moved for row in table),
        "stalled": sum(row.queues_stalled for row in table),
        "redelivered": sum(row.redelivered for row in table),
        "reprocessed_min": sum(row.reprocessed_min for row in table),
        "reprocessed_max": sum(row.reprocessed_max for row in table),
    }


def counted(watched: Watched, group: str) -> dict[str, float]:
    """The same from the counters."""
    seen = scrape(watched.http)
    triggers = {
        dict(labels)["trigger"]: value
        for (name, labels), value in seen.series.items()
        if name == "steelyard_rebalances_total" and ("group", group) in labels and value
    }
    repeats = {
        "redelivered": "redelivered_messages",
        "reprocessed_min": "reprocessed_messages_min",
        "reprocessed_max": "reprocessed_messages_max",
    }
    return {
        **triggers,
        **{kind: seen.total(PAUSES, group=group, kind=kind) for kind in ("moved", "stalled")},
        **{
            column: seen.total(f"steelyard_rebalance_{name}_total", group=group)
            for column, name in repeats.items()
        },
    }


def told(consumer: PullConsumer, group: str) -> list[Rebalance]:
    """The rebalances of a group, as the ledger's job computes them from all records."""
    records: list[Record] = []
    for queue in consumer.queues(LEDGER_TOPIC):
        offset = 0
        while (found := consumer.pull(queue, offset)).messages:
            records += [one for message in found.messages for one in decode(message.body)]
            offset = found.next_begin_offset
    return [row for row in costs(in_order(records)).rebalances if row.group == group]


def test_a_broker_that_is_down_is_told_and_delays_nobody(watched: Watched) -> None:
    until(lambda: readiness(watched.http) == (200, []))
    topic = watched.servers.topic("coordinated", 1)
    groups = {f"group-{number}" for number in range(6)}
    for group in groups:
        member = KafkaConsumer({"bootstrap.servers": watched.servers.bootstrap, "group.id": group})
        member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        member.close()
    assert readiness(watched.http) == (200, [])
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
    left = {
        group for group in groups if seen.all("steelyard_kafka_consumer_group_members", group=group)
    }
    _, _, orphans = missing[0].partition(" without a coordinator: ")
    assert {*orphans.split(", ")} == groups - left
    count = seen.all("steelyard_kafka_groups_without_coordinator", broker="broker-1")
    assert count == [len(groups - left)]
    assert get(watched.http, "/healthz")[0] == 200
    watched.servers.start_broker("broker-1")
    until(lambda: readiness(watched.http) == (200, []))
    assert scrape(watched.http).total("steelyard_kafka_groups_without_coordinator") == 0


def test_both_formats_and_no_other_paths(watched: Watched) -> None:
    status, kind, text = get(
        watched.http, "/metrics", "application/openmetrics-text; version=1.0.0"
    )
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert get(watched.http, "/metrics")[1].startswith("text/plain; version=")
    assert get(watched.http, "/no.such")[0] == 404
