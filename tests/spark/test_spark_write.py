"""`df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")` in the shared Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.api.kafka import KafkaServers
from tests.spark.conftest import Peer, stores
from tests.waiting import until

from steelyard import Admin
from steelyard.wire.remoting.acl import signature
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    servers = KafkaServers(tmp_path_factory.mktemp("written"))
    with Admin(servers.nameservers) as admin:
        for topic in ("Batch", "Stream"):
            admin.create_topic(topic, queues=2)
    yield servers
    servers.stop()


@pytest.mark.spark_long
def test_a_batch_and_a_stream_of_it(
    spark: SparkSession, cluster: KafkaServers, tmp_path: Path
) -> None:
    address = cluster.nameservers
    rows = spark.range(2_500).selectExpr(
        "cast(id as string) as value",
        "cast(id % 7 as string) as key",
        "if(id % 2 = 0, 'even', 'odd') as tags",
        "map('n', cast(id as string)) as properties",
    )
    sink = {"nameservers": address, "topic": "Batch"}
    rows.write.format("rocketmq").options(**sink).mode("append").save()

    def stream() -> list[int]:
        """Copy what is new, exactly once; the numbers of the micro-batches."""
        source = {"nameservers": address, "subscribe": "Batch", "startingOffsets": "earliest"}
        query = (
            spark.readStream.format("rocketmq")
            .options(**source, maxOffsetsPerTrigger="1000")
            .load()
            .drop("topic")
            .writeStream.format("rocketmq")
            .options(nameservers=address, topic="Stream", checkpointLocation=str(tmp_path))
            .option("exactlyOnce", "true")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        return [progress.batchId for progress in query.recentProgress if progress.numInputRows]

    batches = stream()
    assert len(batches) == 3
    # As a driver leaves it that is killed after the sink's commit and before Spark has noted it.
    for name in (f"{batches[-1]}", f".{batches[-1]}.crc"):
        (tmp_path / "commits" / name).unlink(missing_ok=True)
    assert stream() == batches[-1:]

    def found() -> list[tuple[int, str, tuple[str, int]]]:
        frame = spark.read.format("rocketmq").options(nameservers=address, topic="Stream").load()
        rows = frame.orderBy("brokerName", "queueId", "queueOffset").collect()
        for row in rows:
            assert row["keys"] == str(int(row.body) % 7)
            assert row.tags == ("odd" if int(row.body) % 2 else "even")
            assert row.properties["n"] == str(int(row.body))
        return [(int(row.body), row["keys"], (row.brokerName, row.queueId)) for row in rows]

    until(lambda: len(found()) >= 2_500)
    copies = found()
    assert sorted(number for number, _, _ in copies) == [*range(2_500)]
    assert len({(key, queue) for _, key, queue in copies}) == 7


def test_errors_are_told_on_the_driver(spark: SparkSession, cluster: KafkaServers) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) as body")
    for options, words in (
        ({"topic": "Batch", "sinkid": "x"}, "option 'sinkId' is given, but 'exactlyOnce'"),
        ({"topic": "NoSuchTopic"}, "knows no topic 'NoSuchTopic'"),
        ({"topic": "Batch", "nameservers": "127.0.0.1:1"}, r"cannot connect to 127\.0\.0\.1:1"),
    ):
        given = {"nameservers": cluster.nameservers} | options
        with pytest.raises(Exception, match=words):
            frame.write.format("rocketmq").options(**given).mode("append").save()
    null = frame.selectExpr("cast(null as string) as body")
    given = {"nameservers": cluster.nameservers, "topic": "Batch"}
    with pytest.raises(Exception, match="column 'body' has a null"):
        null.write.format("rocketmq").options(**given).mode("append").save()


def test_a_job_that_runs_twice_writes_once(spark: SparkSession, cluster: KafkaServers) -> None:
    with Admin(cluster.nameservers) as admin:
        admin.create_topic("Job", queues=1)
    given = {"nameservers": cluster.nameservers, "topic": "Job"}
    for _ in range(2):
        rows = spark.range(20).selectExpr("cast(id as string) as body")
        writer = rows.write.format("rocketmq").options(**given, exactlyOnce="true", sinkId="job-1")
        writer.mode("append").save()
    frame = spark.read.format("rocketmq").options(**given).load()
    until(lambda: frame.count() >= 20)
    assert sorted(int(row.body) for row in frame.collect()) == [*range(20)]


def guard(peer: Peer, secret: bytes) -> list[bytes]:
    """Let the peer have a topic T, and refuse batches as Apache does unless they are signed with the secret."""
    stored = stores(peer, "T")
    store = peer.replies[RequestCode.SEND_BATCH_MESSAGE]

    def check(request: Command) -> Command | bytes:
        if request.ext["Signature"] == signature(dict(request.ext), request.body, secret):
            return store(request)
        return Command(ResponseCode.NO_PERMISSION, remark="Check signature failed for accessKey=me")

    peer.replies[RequestCode.SEND_BATCH_MESSAGE] = check
    return stored


def plans(spark: SparkSession) -> list[str]:
    """The plans of all writes of the session, as Spark keeps them for its web pages."""
    store = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    texts = [found.apply(each).physicalPlanDescription() for each in range(found.size())]
    return [text for text in texts if "AppendData" in text or "WriteToDataSource" in text]


@pytest.mark.spark_long
def test_keys_reach_the_workers_and_are_shown_nowhere(
    spark: SparkSession, peer: Peer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A wrong one is one exception on the driver, with the words of the broker that refused it."""
    keys = {"accessKey": "me", "secretKey": "hush-secret", "securityToken": "hush-token"}
    given = {"nameservers": peer.address, "topic": "T"} | keys
    stored = guard(peer, b"hush-secret")
    peer.put("S", b"4", b"5")
    shown: list[str] = []

    def batch(**options: str) -> None:
        frame = spark.range(3).selectExpr("cast(id as string) as body")
        frame.write.format("rocketmq").options(**given | options).mode("append").save()

    def stream(name: str, **options: str) -> None:
        source = {"nameservers": peer.address, "subscribe": "S", "startingOffsets": "earliest"}
        rows = spark.readStream.format("rocketmq").options(**source, columns="body").load()
        sink = given | {"checkpointLocation": str(tmp_path / name)} | options
        writer = rows.writeStream.format("rocketmq").options(**sink).trigger(availableNow=True)
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            shown.append(query._jsq.explainInternal(True))

    batch()
    assert sorted(stored) == [b"0", b"1", b"2"]
    stream("right")
    assert sorted(stored) == [b"0", b"1", b"2", b"4", b"5"]
    stored.clear()
    refusal = rf"{peer.address}.*Check signature failed for accessKey=me"
    for write in (batch, lambda **more: stream("wrong", **more)):
        with pytest.raises(Exception, match=refusal) as refused:
            write(secretKey="hush-other")
        shown += [str(refused.value), repr(refused.value)]
        assert str(refused.value).count("Traceback") <= 1
    assert not stored
    shown += plans(spark)
    shown += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    shown += capfd.readouterr()
    assert len(shown) > 8
    assert not [text for text in shown if "hush" in text]
