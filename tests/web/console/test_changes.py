"""Changes of a cluster: only where they are allowed, and seen by other clients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.waiting import until
from tests.web.console.asking import Answered, ask, read
from tests.web.console.conftest import Consoles

from steelyard import Admin, Producer, PullConsumer, PushConsumer


def post(address: str, path: str, body: object) -> Answered:
    return ask(address, path, method="POST", body=body)


def kafka_topics(consoles: Consoles) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": consoles.servers.bootstrap}).list_topics(timeout=30)
    return {name: len(topic.partitions) for name, topic in found.topics.items()}


@pytest.mark.parametrize("which", ["changing", "kafka"])
def test_a_kafka_topic_is_created_and_deleted(consoles: Consoles, which: str) -> None:
    address = getattr(consoles, which)
    name = f"made-by-{which}"
    body = {"dialect": "kafka", "name": name, "queues": 3}
    refused = post(consoles.http, "topics", body)
    assert refused.status == 403
    assert "--allow-changes" in refused.body["error"]
    assert name not in kafka_topics(consoles)
    made = post(address, "topics", body)
    assert (made.status, made.body["text"]) == (200, f"created topic {name} with 3 partitions")
    until(lambda: kafka_topics(consoles).get(name) == 3)
    again = post(address, "topics", body)
    assert again.status == 409, again
    until(lambda: ask(address, f"topics/kafka/{name}").status == 200)
    assert ask(consoles.http, f"topics/kafka/{name}", method="DELETE").status == 403
    assert ask(address, f"topics/kafka/{name}", method="DELETE").status == 200
    until(lambda: name not in kafka_topics(consoles))
    until(lambda: ask(address, f"topics/kafka/{name}", method="DELETE").status == 404)


def test_a_rocketmq_topic_is_created_and_deleted(consoles: Consoles) -> None:
    made = post(
        consoles.changing, "topics", {"dialect": "rocketmq", "name": "MadeHere", "queues": 2}
    )
    assert made.body["text"] == "created topic MadeHere with 2 queues on 2 brokers"
    with Admin(consoles.servers.nameservers) as admin:
        until(lambda: "MadeHere" in admin.topics() and len(admin.queues("MadeHere")) == 4)
        gone = ask(consoles.changing, "topics/rocketmq/MadeHere", method="DELETE")
        assert gone.status == 200
        assert "MadeHere" not in admin.topics()


def answers_with(status: int, address: str, path: str) -> bool:
    return ask(address, path).status == status


@pytest.mark.parametrize("dialect", ["kafka", "rocketmq"])
def test_a_topic_that_was_deleted_is_not_there(consoles: Consoles, dialect: str) -> None:
    """A console that has read it before says so as well, from the first moment."""
    name = f"Gone-{dialect}"
    paths = [f"topics/{dialect}/{name}", f"messages?dialect={dialect}&topic={name}"]
    body = {"dialect": dialect, "name": name, "queues": 2}
    assert post(consoles.changing, "topics", body).status == 200
    for address in (consoles.changing, consoles.http):
        for path in paths:
            until(partial(answers_with, 200, address, path))
    assert ask(consoles.changing, paths[0], method="DELETE").status == 200
    answers = {
        (path, answer.status): answer.body
        for _ in range(10)
        for address in (consoles.changing, consoles.http)
        for path in paths
        for answer in (ask(address, path),)
    }
    assert {status for _, status in answers} <= {200, 404}, answers
    for path in paths:
        until(partial(answers_with, 404, consoles.http, path))


@pytest.mark.parametrize("which", ["changing", "kafka"])
def test_offsets_of_a_kafka_group(consoles: Consoles, which: str) -> None:
    address = getattr(consoles, which)
    topic = consoles.servers.topic(f"resets-{which}", 2)
    consoles.servers.fill(topic, range(20), partitions=2)
    consumer = Consumer(
        {
            "bootstrap.servers": consoles.servers.bootstrap,
            "group.id": f"reset-{which}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer.commit(
        offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 6)], asynchronous=False
    )

    def committed() -> list[int]:
        return [place.offset for place in consumer.committed(places, 30)]

    path = f"groups/kafka/reset-{which}/reset-offsets"

    def changes(body: dict[str, Any]) -> list[tuple[int | None, int]]:
        found = post(address, path, body)
        assert found.status == 200, found
        return [(row["before"], row["after"]) for row in found.body["offsets"]]

    assert changes({"topic": topic, "to": "latest"}) == [(4, 10), (6, 10)]  # a dry run
    assert committed() == [4, 6]
    assert changes({"topic": topic, "to": "latest", "dry_run": False}) == [(4, 10), (6, 10)]
    assert committed() == [10, 10]
    assert changes({"topic": topic, "to": "earliest", "dry_run": False}) == [(10, 0), (10, 0)]
    assert changes({"topic": topic, "to": 2**52, "dry_run": True}) == [(0, 10), (0, 10)]
    assert committed() == [0, 0]
    assert post(consoles.http, path, {"topic": topic, "to": "latest"}).status == 403
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is not None and consumer.assignment())
    refused = post(address, path, {"topic": topic, "to": "latest", "dry_run": False})
    assert refused.status == 409
    assert "stop all of its members first" in refused.body["error"]
    assert committed() == [0, 0]
    consumer.close()


def test_offsets_of_a_rocketmq_group(consoles: Consoles) -> None:
    nameserver = consoles.servers.nameservers
    received: list[bytes] = []
    with Producer("makers", nameserver) as producer:
        for number in range(12):
            producer.send("Resets", b"%d" % number)
        consumer = PushConsumer("resetters", nameserver, lambda one: received.append(one.body))
        with consumer.subscribe("Resets"):
            until(lambda: len(received) == 12)

    def lag() -> int:
        queues = read(consoles.http, "groups/rocketmq/resetters")["queues"]
        return sum(queue["lag"] or 0 for queue in queues)

    until(lambda: lag() == 0)
    path = "groups/rocketmq/resetters/reset-offsets"
    dry = post(consoles.changing, path, {"topic": "Resets", "to": "earliest"}).body
    assert dry["dry_run"]
    assert sum(row["before"] - row["after"] for row in dry["offsets"]) == 12
    assert lag() == 0
    done = post(consoles.changing, path, {"topic": "Resets", "to": "earliest", "dry_run": False})
    assert {row["after"] for row in done.body["offsets"]} == {0}
    until(lambda: lag() == 12)
    with PullConsumer("resetters", nameserver) as reader:
        assert {reader.committed(queue) for queue in reader.queues("Resets")} == {0}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"dialect": "kafka", "name": "x"}, 400, "queues is missing"),
        ({"dialect": "kafka", "name": "a b", "queues": 1}, 400, "name"),
        ({"dialect": "kafka", "name": "x", "queues": 0}, 400, "queues: expected `int` >= 1"),
        ({"dialect": "kafka", "name": "x", "queues": 1, "y": 2}, 400, "unknown field `y`"),
        ([], 400, "expected `object`, got `array`"),
        ({"dialect": "kafka", "name": "x" * 70_000, "queues": 1}, 413, "65536 bytes"),
    ],
)
def test_wrong_bodies(consoles: Consoles, body: object, status: int, words: str) -> None:
    found = post(consoles.changing, "topics", body)
    assert found.status == status, found
    assert words in found.body["error"]


def test_unknown_groups_and_topics_of_resets(consoles: Consoles) -> None:
    for dialect in ("kafka", "rocketmq"):
        path = f"groups/{dialect}/nobody-here/reset-offsets"
        found = post(consoles.changing, path, {"topic": "nothing", "to": "latest"})
        assert found.status == 404, (dialect, found)
