"""Spark reads the topics of an Apache broker, and of ours, as the Java client wrote them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.peers.apache import Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.series import Seen, expected, message, seen_by_java
from tests.waiting import until

from steelyard import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.peer, pytest.mark.spark]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install steelyard[spark]")
    from steelyard.spark.session import session

    made = session()
    yield made
    made.stop()


def test_every_message_is_a_row(
    cluster: Running, peer: Peer, spark: SparkSession, name: str
) -> None:
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    results = peer.ask("send", f"{name}p", name, "s", 0, 80, 100)["results"]
    results += peer.ask("send", f"{name}p", name, "s", 80, 3, 20_000)["results"]  # compressed
    batches = peer.ask("batch", f"{name}p", name, "s", 83, 100, 50)["results"]
    peer.ask("stop", f"{name}p")

    reader = spark.read.format("rocketmq").option("nameservers", cluster.nameserver)
    rows = reader.option("topic", name).load().collect()

    seen = [
        Seen(
            hashlib.md5(row.body).hexdigest(),
            row.tags,
            row["keys"],
            row.properties["colour"],
            row.properties["number"],
        )
        for row in rows
    ]
    sizes = {range(80): 100, range(80, 83): 20_000, range(83, 183): 50}
    assert sorted(seen) == expected(name, "s", sizes)
    places = {row.msgId: (row.brokerName, row.queueId, row.queueOffset) for row in rows}
    for result in results:
        assert places[result["id"]] == (result["broker"], result["queue"], result["offset"])
    first = batches[0]
    assert {(first["broker"], first["queue"], first["offset"] + step) for step in range(100)} <= {
        (row.brokerName, row.queueId, row.queueOffset) for row in rows
    }


def test_what_the_sink_writes_reaches_java_consumers(
    cluster: Running, peer: Peer, spark: SparkSession, name: str
) -> None:
    """Rows of one key in order: `number % 7` is the sharding key."""
    with Admin(cluster.nameserver) as admin:
        admin.create_topic(name, queues=4)
    peer.ask("consumer", f"{name}c", cluster.nameserver, f"{name}cg", name, "*")
    sizes = {range(300): 100, range(300, 303): 20_000}
    made = [message(name, "s", index, size) for each, size in sizes.items() for index in each]
    rows = [
        (one.body, str(one.keys), one.tags, one.properties, str(int(one.properties["number"]) % 7))
        for one in made
    ]
    types = "body binary, keys string, tags string, properties map<string,string>"
    frame = spark.createDataFrame(rows, f"{types}, shardingKey string").coalesce(1)
    sink = {"nameservers": cluster.nameserver, "topic": name}
    frame.write.format("rocketmq").options(**sink).mode("append").save()

    until(lambda: len(peer.received(f"{name}c")) >= len(made), "every message")
    received = peer.received(f"{name}c")
    peer.ask("stop", f"{name}c")
    assert sorted(map(seen_by_java, received)) == expected(name, "s", sizes)
    places: dict[int, list[tuple[str, int, int, int]]] = {}
    for event in received:
        number = int(event["properties"]["number"])
        place = (event["broker"], event["queue"], event["offset"], number)
        places.setdefault(number % 7, []).append(place)
    for of_key in places.values():
        assert len({place[:2] for place in of_key}) == 1
        assert [place[3] for place in sorted(of_key)] == sorted(place[3] for place in of_key)


def test_mqadmin_finds_what_the_sink_writes(
    cluster: Running, peer: Peer, spark: SparkSession, name: str
) -> None:
    """By key, in the printed topic, and in the offsets of its queues."""
    create_topic(cluster, peer, name, queues=2)
    count = 40
    rows = spark.range(count).selectExpr(
        "concat('body ', id) as body",
        "concat('key-', id) as keys",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "map('number', cast(id as string)) as properties",
    )
    given = {"nameservers": cluster.nameserver, "topic": name}
    rows.write.format("rocketmq").options(**given).mode("append").save()
    table = spark.read.format("rocketmq").options(**given).load()
    until(lambda: table.count() == count, "all readable")
    found = {row["keys"]: row for row in table.collect()}

    nameserver = ("-n", cluster.nameserver)
    status = peer.mqadmin("topicStatus", *nameserver, "-t", name)
    lines = [line.split() for line in status.splitlines() if line.startswith("broker-")]
    ends = {(line[0], int(line[1])): int(line[3]) for line in lines}
    assert ends == {
        (broker, queue): len(
            [row for row in found.values() if (row.brokerName, row.queueId) == (broker, queue)]
        )
        for broker in cluster.brokers
        for queue in (0, 1)
    }

    printed = peer.mqadmin("printMsg", *nameserver, "-t", name, "-d", "true")
    bodies = re.findall(r"MSGID: (\w+) .*?KEYS=([\w-]+).*? BODY: (.*)", printed)
    assert sorted(bodies) == sorted(
        (row.msgId, key, row.body.decode()) for key, row in found.items()
    )

    def by_key(key: str) -> str:
        return peer.mqadmin("queryMsgByKey", *nameserver, "-t", name, "-k", key)

    def indexed(key: str) -> bool:
        return found[key].msgId in by_key(key)

    for key in ("key-0", "key-17"):
        row = found[key]
        until(partial(indexed, key), f"{key} in the index")
        text = by_key(key)
        assert [line.split() for line in text.splitlines() if line.startswith(row.msgId)] == [
            [row.msgId, str(row.queueId), str(row.queueOffset)]
        ]


def test_a_part_of_the_queues_by_offsets(
    cluster: Running, peers: dict[str, Peer], spark: SparkSession, name: str
) -> None:
    java = peers["4.9.8"]
    java.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    results = java.ask("batch", f"{name}p", name, "s", 0, 90, 50)["results"]
    java.ask("stop", f"{name}p")
    (broker, queue) = results[0]["broker"], results[0]["queue"]

    reader = spark.read.format("rocketmq").option("nameservers", cluster.nameserver)
    reader = reader.option("topic", name).option("queues", f"{broker}:{queue}")
    reader = reader.option("startingOffsets", f'{{"{name}": {{"{broker}": {{"{queue}": 10}}}}}}')
    reader = reader.option("endingOffsets", f'{{"{name}": {{"{broker}": {{"{queue}": 80}}}}}}')
    rows = reader.load().collect()
    assert sorted(row.queueOffset for row in rows) == list(range(10, 80))
    assert sorted(int(row.properties["number"]) for row in rows) == list(range(10, 80))
