"""`format("rocketmq")` in the shared Spark session."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from steelyard.spark import source
from steelyard.spark.schema import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.spark.conftest import Peer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


def read(spark: SparkSession, peer: Peer, **options: str) -> DataFrame:
    given = {"nameServer": peer.address, "topic": "T"} | options
    return spark.read.format("rocketmq").options(**given).load()


def test_the_format_is_found_without_a_register_call(spark: SparkSession, peer: Peer) -> None:
    peer.fill("T", 2, 3)
    frame = read(spark, peer)
    assert frame.schema == SCHEMA
    assert frame.rdd.getNumPartitions() == 2
    rows = frame.orderBy("queueId", "queueOffset").collect()
    assert [(row.queueId, row.queueOffset) for row in rows] == [
        (q, n) for q in (0, 1) for n in range(3)
    ]
    assert rows[1].asDict() == {
        "topic": "T",
        "brokerName": "broker-a",
        "queueId": 0,
        "queueOffset": 1,
        "bornTimestamp": datetime(2023, 11, 14, 22, 13, 20, 1_000),
        "storeTimestamp": datetime(2023, 11, 14, 22, 13, 20, 501_000),
        "keys": "k1",
        "tags": "t",
        "body": b"body 1",
        "properties": {"KEYS": "k1", "TAGS": "t"},
        "flag": 0,
        "reconsumeTimes": 0,
        "msgId": "7F00000100002A9F00000000000003E8",
    }


def test_times_are_utc(spark: SparkSession, peer: Peer) -> None:
    peer.fill("T", 1, 1)
    (row,) = read(spark, peer).selectExpr("unix_millis(bornTimestamp) as born").collect()
    assert row.born == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC).timestamp() * 1000


def test_registered_by_hand(spark: SparkSession, peer: Peer) -> None:
    source.register(spark)
    peer.fill("T", 1, 5)
    assert read(spark, peer).count() == 5


def test_chosen_columns_and_more_partitions_than_queues(spark: SparkSession, peer: Peer) -> None:
    peer.fill("T", 2, 100)
    frame = read(spark, peer, columns="queueOffset,queueId", minPartitions="5")
    assert frame.columns == ["queueOffset", "queueId"]
    assert frame.rdd.getNumPartitions() == 5
    rows = frame.orderBy("queueId", "queueOffset").collect()
    assert [(row.queueId, row.queueOffset) for row in rows] == [
        (q, n) for q in (0, 1) for n in range(100)
    ]


def test_a_frame_that_is_used_twice_has_all_rows_the_second_time(
    spark: SparkSession, peer: Peer
) -> None:
    """With filter pushdown on, Spark 4.3 keeps what a Python source planned for the first filter it took."""
    peer.fill("T", 2, 10)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = read(spark, peer)
        one = frame.where("queueId = 1 and queueOffset < 3")
        assert one.count() == 3
        assert frame.count() == 20
        assert one.union(frame).count() == 23
    finally:
        spark.conf.unset(setting)


def test_an_empty_topic_has_no_rows(spark: SparkSession, peer: Peer) -> None:
    peer.fill("T", 2, 0)
    assert read(spark, peer).count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topicc": "T"}, "unknown option 'topicc'; did you mean 'topic'?"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is 'latest'"),
        ({"topic": "U"}, "knows no topic 'U'"),
    ],
)
def test_wrong_options_reach_the_user_in_words(
    spark: SparkSession, peer: Peer, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        read(spark, peer, **options).count()
    assert words in str(caught.value)
