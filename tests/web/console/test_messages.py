"""The message browser, for both dialects, beside what was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer
from tests.waiting import until
from tests.web.console.asking import ask, read, with_query
from tests.web.console.conftest import Consoles

from steelyard import Message, Producer, PullConsumer


def bodies(found: Any) -> list[str]:
    return [one["body"]["text"] for one in found["messages"]]


def all_of(address: str, **query: object) -> list[Any]:
    """All messages, answer by answer."""
    found: list[Any] = []
    where: object = "earliest"
    while where is not None:
        answer = read(address, "messages", **{**query, "from": where})
        found += answer["messages"]
        where = answer["next"]
    return found


@pytest.fixture(scope="module")
def kafka_topic(consoles: Consoles) -> str:
    topic = consoles.servers.topic("clicks", 3)
    producer = KafkaProducer(
        {"bootstrap.servers": consoles.servers.bootstrap, "compression.type": "zstd"}
    )
    for number in range(30):
        producer.produce(
            topic,
            json.dumps({"n": number}),
            key=f"user-{number % 5}",
            partition=number % 3,
            headers=[("h", b"v"), ("h", b"\xff"), ("TAGS", b"blue" if number % 2 else b"red")],
            timestamp=1_700_000_000_000 + 1_000 * number,
        )
    producer.produce(topic, None, key=b"\xfe", partition=0, timestamp=1_700_000_100_000)
    assert producer.flush(30) == 0
    return topic


@pytest.fixture(scope="module")
def remoting_topic(consoles: Consoles) -> str:
    with Producer("makers", consoles.servers.nameservers) as producer:
        for number in range(30):
            producer.send(
                Message(
                    "Orders",
                    b"order %d" % number,
                    tags="blue" if number % 2 else "red",
                    keys=f"k{number} shared",
                    properties={"color": "grün"},
                )
            )
    return "Orders"


@pytest.mark.parametrize("which", ["http", "kafka"])
def test_kafka_messages_in_parts_and_by_place(
    consoles: Consoles, kafka_topic: str, which: str
) -> None:
    address = getattr(consoles, which)
    query = {"dialect": "kafka", "topic": kafka_topic}
    found = all_of(address, **query, limit=4)
    assert [one["body"] and one["body"]["text"] for one in found] == [
        *(json.dumps({"n": number}) for number in range(30)),
        None,
    ]
    assert [one["stored_at"] for one in found[:30]] == [
        1_700_000_000_000 + 1_000 * number for number in range(30)
    ]
    first, tombstone = found[0], found[-1]
    assert (first["key"], first["queue"], first["offset"]) == ("user-0", f"{kafka_topic}/0", 0)
    assert first["headers"] == [["h", "v"], ["h", "\\xff"], ["TAGS", "red"]]
    assert first["body"] == {
        "text": '{"n": 0}',
        "json": True,
        "hex": b'{"n": 0}'.hex(),
        "size": 8,
        "cut": False,
    }
    assert (first["size"], first["properties"], first["tag"]) == (14, {}, None)
    assert (tombstone["body"], tombstone["key"]) == (None, "\\xfe")
    (one,) = read(
        address, "messages", **query, **{"from": 2, "queue": f"{kafka_topic}/1", "limit": 1}
    )["messages"]
    assert one["body"]["text"] == '{"n": 7}'
    for when in ("1700000012500", "2023-11-14T22:13:32.500Z"):
        late = read(address, "messages", **query, **{"from": when, "limit": 2})
        assert bodies(late) == ['{"n": 13}', '{"n": 14}']
    latest = read(address, "messages", **query, limit=3)["messages"]
    assert [one["stored_at"] for one in latest] == [
        1_700_000_028_000,
        1_700_000_029_000,
        1_700_000_100_000,
    ]
    of_key = all_of(address, **query, key="user-3", limit=2)
    assert [one["body"]["text"] for one in of_key] == [
        json.dumps({"n": number}) for number in range(3, 30, 5)
    ]
    red = read(address, "messages", **query, tag="red", **{"from": "earliest", "limit": 2})
    assert bodies(red) == ['{"n": 0}', '{"n": 2}']


def test_rocketmq_messages_in_parts_and_by_place(consoles: Consoles, remoting_topic: str) -> None:
    query = {"dialect": "rocketmq", "topic": remoting_topic}
    found = all_of(consoles.http, **query, limit=7)
    assert sorted(one["body"]["text"] for one in found) == sorted(f"order {n}" for n in range(30))
    times = [one["stored_at"] for one in found]
    assert times == sorted(times)
    one = next(one for one in found if one["body"]["text"] == "order 3")
    assert (one["tag"], one["keys"], one["properties"]["color"]) == (
        "blue",
        ["k3", "shared"],
        "grün",
    )
    with PullConsumer("auditors", consoles.servers.nameservers) as auditor:
        queues = {f"Orders/{q.broker_name}/{q.queue_id}": q for q in auditor.queues("Orders")}
        (view,) = auditor.pull(queues[one["queue"]], one["offset"], max_messages=1).messages
    assert (one["id"], one["born_at"], one["stored_at"]) == (
        view.message_id,
        view.born_timestamp,
        view.store_timestamp,
    )
    again = read(
        consoles.http,
        "messages",
        **query,
        **{"from": one["offset"], "queue": one["queue"], "limit": 1},
    )
    assert again["messages"] == [one]
    blue = all_of(consoles.http, **query, tag="blue", limit=50)
    assert {each["tag"] for each in blue} == {"blue"}
    assert len(blue) == 15
    by_key = read(consoles.http, "messages", **query, key="k3")["messages"]
    assert by_key == [one]
    by_id = read(consoles.http, "messages", **query, key=one["id"])["messages"]
    assert by_id == [one]
    shared = read(consoles.http, "messages", **query, key="shared", tag="red", limit=50)
    assert len(shared["messages"]) == 15
    since = read(consoles.http, "messages", **query, **{"from": times[-1], "limit": 50})
    assert [each["stored_at"] for each in since["messages"]] == [
        at for at in times if at >= times[-1]
    ]
    latest = read(consoles.http, "messages", **query, limit=1)["messages"]
    assert [each["stored_at"] for each in latest] == [times[-1]]


def test_each_topic_is_listed_once_in_the_dialect_of_its_producers(
    consoles: Consoles, kafka_topic: str, remoting_topic: str
) -> None:
    def dialects() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in read(consoles.http, "topics")["topics"]:
            found.setdefault(line["name"], []).append(line["dialect"])
        return found

    until(lambda: dialects().get(remoting_topic) == ["rocketmq"])
    until(lambda: dialects()[kafka_topic] == ["kafka"])
    lines = {line["name"]: line for line in read(consoles.http, "topics")["topics"]}
    assert (lines[kafka_topic]["messages"], lines[kafka_topic]["queues"]) == (31, 3)
    assert lines[kafka_topic]["bytes"] > 0
    assert lines["Orders"]["messages"] == 30
    assert lines["RMQ_SYS_REBALANCE_LEDGER"]["internal"]
    assert not lines["Orders"]["internal"]
    picture = read(consoles.http, f"topics/kafka/{kafka_topic}")
    assert [queue["end"] for queue in picture["queues"]] == [11, 10, 10]
    assert picture["queues"][1]["first_at"] == 1_700_000_001_000
    assert picture["queues"][0]["last_at"] == 1_700_000_100_000
    assert picture["settings"]["cleanup.policy"] == "delete"
    theirs = read(consoles.http, "topics/rocketmq/Orders")
    assert sum(queue["end"] - queue["first"] for queue in theirs["queues"]) == 30


def test_large_bodies_are_cut(consoles: Consoles) -> None:
    body = "é" * 100_000
    with Producer("makers", consoles.servers.nameservers) as producer:
        producer.send("Large", body.encode())
    (found,) = read(consoles.http, "messages", dialect="rocketmq", topic="Large")["messages"]
    assert found["size"] == found["body"]["size"] == 200_000
    assert found["body"]["cut"]
    assert body.startswith(found["body"]["text"])
    assert len(found["body"]["text"]) == 32_768


def test_aborted_transactions_are_not_shown(consoles: Consoles) -> None:
    topic = consoles.servers.topic("paid", 1)
    consoles.servers.transactions(topic, {1: True, 2: False, 3: True})
    for address in (consoles.http, consoles.kafka):
        found = all_of(address, dialect="kafka", topic=topic, limit=1)
        assert [one["body"]["text"] for one in found] == ["1", "3"]


@pytest.mark.parametrize("dialect", ["kafka", "rocketmq"])
def test_a_queue_that_does_not_exist(
    consoles: Consoles, kafka_topic: str, remoting_topic: str, dialect: str
) -> None:
    topic = kafka_topic if dialect == "kafka" else remoting_topic
    query = {"dialect": dialect, "topic": topic, "queue": "nowhere/0"}
    found = ask(consoles.http, with_query("messages", query))
    assert found.status == 404
    assert "queue is 'nowhere/0'; " in found.body["error"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"from": "soon"}, "from is 'soon', which it cannot be"),
        ({"from": "2026-02-30"}, "from is '2026-02-30'"),
        ({"limit": "0"}, "limit is '0': expected `int` >= 1"),
        ({"limit": "ten"}, "limit is 'ten': expected `int`"),
        ({"dialect": "mqtt"}, "dialect is 'mqtt'; expected one of: kafka, rocketmq"),
        ({"limitt": "1"}, "unknown parameter 'limitt'; did you mean limit?"),
        ({"topic": ""}, "topic is ''"),
    ],
)
@pytest.mark.parametrize("dialect", ["kafka", "rocketmq"])
def test_wrong_questions_are_told_in_a_sentence(
    consoles: Consoles,
    kafka_topic: str,
    remoting_topic: str,
    dialect: str,
    query: dict[str, str],
    words: str,
) -> None:
    topic = kafka_topic if dialect == "kafka" else remoting_topic
    path = with_query("messages", {"dialect": dialect, "topic": topic, **query})
    found = ask(consoles.http, path)
    assert found.status == 400, found
    assert words in found.body["error"]
