"""The Spark jobs on messages of a small peer: both tables with the rows that `ledger.cost` makes, and delays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    BrokerStarted,
    Delivered,
    MemberJoined,
    Record,
)
from steelyard.spark import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Peer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


def joined(at: int, group: str, client: str, *members: str) -> Record:
    return MemberJoined(
        at=at, broker="a", group=group, client=client, cause="heartbeat", members=members
    )


def delivered(at: int, group: str, client: str, first: int, following: int) -> Record:
    return Delivered(
        at=at,
        broker="a",
        group=group,
        client=client,
        topic="T",
        queue=0,
        until=at,
        first=first,
        next=following,
        count=following - first,
        stored=at - 250,
        backlog_max=10,
        backlog=1,
    )


RECORDS: list[Record] = [
    BrokerStarted(at=500, broker="a"),
    joined(1_000, "one", "A", "A"),
    joined(1_000, "two", "X", "X"),
    delivered(2_000, "one", "A", 0, 10),
    delivered(2_000, "two", "X", 0, 10),
    joined(20_000, "one", "B", "A", "B"),
    delivered(21_000, "one", "B", 8, 20),
    BrokerStarted(at=90_000, broker="a"),
    delivered(99_000, "two", "X", 10, 12),
]


def test_the_ledger_becomes_two_tables(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    bodies = [ledger.encode(RECORDS[:4]), ledger.encode(RECORDS[4:]), ledger.encode([])]
    peer.put(LEDGER_TOPIC, *bodies)
    for _ in range(2):  # the second run replaces the tables of the first
        tables = pipeline.ledger_tables(spark, peer.address, tmp_path / "out")
    expected = cost.costs(RECORDS)
    assert len(expected.handoffs) == 1
    assert len(expected.rebalances) == 5
    assert tables.collect() == expected
    assert dict(tables.rebalances.dtypes)["started_at"] == "timestamp"
    assert pipeline.read_ledger(spark, peer.address) == RECORDS


def test_a_ledger_without_groups_gives_empty_tables(
    spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS[:1]))
    tables = pipeline.ledger_tables(spark, peer.address, tmp_path)
    assert tables.handoffs.columns[:3] == ["group", "topic", "broker"]
    assert tables.handoffs.count() == tables.rebalances.count() == 0


def test_delays_per_carrier(spark: SparkSession, peer: Peer) -> None:
    flights: list[dict[str, object]] = [
        *({"carrier": "UA", "dep_delay": float(n), "arr_delay": n - 10} for n in range(101)),
        {"carrier": "UA", "dep_delay": float("nan"), "arr_delay": float("nan")},
        {"carrier": "AA", "dep_delay": 5, "arr_delay": None, "tailnum": "N1"},
        {"carrier": "AA", "dep_delay": 7},
    ]
    peer.put("flights", *(json.dumps(flight).encode() for flight in flights), b"no JSON")
    rows = pipeline.carrier_delays(spark, peer.address, "flights").collect()
    assert [row.asDict() for row in rows] == [
        {
            "carrier": "AA",
            "flights": 2,
            "dep_delay_mean": 6.0,
            "dep_delay_p50": 6.0,
            "dep_delay_p95": 6.9,
            "arr_delay_mean": None,
            "arr_delay_p50": None,
            "arr_delay_p95": None,
        },
        {
            "carrier": "UA",
            "flights": 102,
            "dep_delay_mean": 50.0,
            "dep_delay_p50": 50.0,
            "dep_delay_p95": 95.0,
            "arr_delay_mean": 40.0,
            "arr_delay_p50": 40.0,
            "arr_delay_p95": 85.0,
        },
    ]


@pytest.mark.usefixtures("spark")
def test_the_command_line(peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS))
    assert pipeline.main(["ledger", "-n", peer.address, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "broker_started" in out
    assert f"hand-offs: 1; tables in {tmp_path}" in out
    assert {path.name for path in tmp_path.iterdir()} == {"handoffs", "rebalances"}


@pytest.mark.usefixtures("spark")
def test_the_command_line_tells_errors_in_a_line(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.main(["delays", "-n", peer.address, "-t", "flights"]) == 2
    words = f"option 'topic': {peer.address} knows no topic 'flights'"
    assert capsys.readouterr().err == f"steelyard pipeline: {words}\n"
