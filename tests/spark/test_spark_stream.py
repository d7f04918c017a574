"""Streams in the shared Spark session: checkpoints, new queues, brokers that come back, lag and progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.api.conftest import Servers
from tests.waiting import until

from steelyard import Admin, Message, MessageQueue, Producer
from steelyard.spark.lag import LagListener, QueryLag, query_lag
from steelyard.spark.offsets import Behind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from tests.spark.conftest import Peer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A nameserver and two brokers."""
    made = Servers(tmp_path_factory.mktemp("brokers"))
    yield made
    made.stop()


def to_parquet(spark: SparkSession, folder: Path, *, ends: bool, **options: str) -> StreamingQuery:
    reader = spark.readStream.format("rocketmq").options(**options).load()
    writer = reader.writeStream.format("parquet").option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    writer = (
        writer.trigger(availableNow=True) if ends else writer.trigger(processingTime="0 seconds")
    )
    return writer.start(str(folder / "out"))


def bodies(folder: Path) -> list[bytes]:
    """What Spark says that its files have: those that its log of commits names."""
    if not (folder / "out" / "_spark_metadata").exists():
        return []
    names: set[str] = set()
    for log in (folder / "out" / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names.update(
                part.split('"')[0].rpartition("/")[2]
                for part in log.read_text().split('"path":"')[1:]
            )
    found: list[bytes] = []
    for name in sorted(names):
        found += pq.read_table(folder / "out" / name, columns=["body"]).column("body").to_pylist()
    return sorted(found, key=int)


def test_available_now_with_a_checkpoint(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    told: list[QueryLag] = []
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    options = {
        "nameservers": peer.address,
        "subscribe": "T",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "30",
        "consumerGroup": "g",
        "columns": "body,queueId",
    }
    peer.fill("T", 2, 40, b"%d")
    try:
        query = to_parquet(spark, tmp_path, ends=True, **options)
        assert query.awaitTermination(120)
        assert [one.numInputRows for one in query.recentProgress] == [0, 30, 30, 20]
        until(lambda: len(told) == 4)
        # where each batch ended: 80 messages behind, 50, 20, none
        assert [one.total for one in told] == [80, 50, 20, 0]
        assert told[1].sources == (Behind(25, 25.0, 25, 50),)
        assert query.lastProgress is not None
        assert query_lag(query.lastProgress) == told[-1]
        assert peer.committed == {("T", 0): 40, ("T", 1): 40}
        until(lambda: not listener.lags)
    finally:
        spark.streams.removeListener(listener)
    assert bodies(tmp_path) == sorted([b"%d" % n for n in range(40)] * 2, key=int)
    peer.fill("T", 3, 50, b"%d")
    query = to_parquet(spark, tmp_path, ends=True, **options)
    assert query.awaitTermination(120)
    assert bodies(tmp_path) == sorted([b"%d" % n for n in range(50)] * 3, key=int)


@pytest.mark.spark_long
def test_queues_topics_and_brokers_that_come_and_go(
    spark: SparkSession, servers: Servers, tmp_path: Path
) -> None:
    """A running query: it begins at the end; queues and a topic are added; a broker stops and comes back."""
    sent = 0

    def send(topic: str, broker: str, queue: int, count: int = 100) -> None:
        nonlocal sent
        with Producer("p", servers.nameservers) as producer:
            batch = [Message(topic, b"%d" % n) for n in range(sent, sent + count)]
            producer.send_batch(batch, queue=MessageQueue(topic, broker, queue))
        sent += count

    def all_read() -> bool:
        return len(bodies(tmp_path)) >= sent

    with Admin(servers.nameservers) as admin:
        admin.create_topic("Stream1", queues=1)
        with Producer("p", servers.nameservers) as producer:
            producer.send("Stream1", b"-1")
        query = to_parquet(
            spark,
            tmp_path,
            ends=False,
            nameservers=servers.nameservers,
            subscribePattern=r"Stream\d",
            tags="*",
        )
        try:
            until(lambda: bool(query.recentProgress) or not query.isActive, 120)
            send("Stream1", "broker-a", 0)
            send("Stream1", "broker-b", 0)
            until(all_read, 120)
            admin.create_topic("Stream1", queues=2)
            admin.create_topic("Stream2", queues=1)
            send("Stream1", "broker-b", 1)
            send("Stream2", "broker-a", 0)
            until(all_read, 120)
            port = servers.stop_broker("broker-b")
            send("Stream1", "broker-a", 1)
            servers.start_broker("broker-b", port)
            send("Stream1", "broker-b", 0)
            until(all_read, 120)
            assert query.exception() is None
        finally:
            query.stop()
    assert bodies(tmp_path) == [b"%d" % n for n in range(sent)]
