"""Spark reads the topics of an Apache broker, and of ours, as the Java client wrote them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.peers.apache import Peer
from tests.peers.conftest import Running
from tests.peers.series import Seen, expected

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
