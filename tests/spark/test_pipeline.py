"""The Spark jobs on messages of a small peer: both tables with the rows that `ledger.cost` makes."""

from __future__ import annotations

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


@pytest.mark.usefixtures("spark")
def test_the_command_line(peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS))
    assert pipeline.main(["ledger", "-n", peer.address, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "broker_started" in out
    assert f"hand-offs: 1; tables in {tmp_path}" in out
    assert {path.name for path in tmp_path.iterdir()} == {"handoffs", "rebalances"}


def test_the_command_line_reads_a_copy_of_the_ledger_and_writes_a_report(
    spark: SparkSession, peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer.put("copy", ledger.encode(RECORDS))
    report = tmp_path / "report.html"
    arguments = ["-n", peer.address, "--out", str(tmp_path), "-t", "copy", "--report", str(report)]
    assert pipeline.main(["ledger", *arguments]) == 0
    assert f"report: {report}" in capsys.readouterr().out
    assert "Group <b>one</b>" in report.read_text("utf-8")
    assert spark.read.parquet(str(tmp_path / "rebalances")).count() == 5


@pytest.mark.usefixtures("spark")
def test_the_command_line_tells_errors_in_a_line(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pipeline.main(["ledger", "-n", peer.address, "--out", "out", "-t", "flights"]) == 2
    words = f"option 'subscribe': {peer.address} knows no topic 'flights'"
    assert capsys.readouterr().err == f"steelyard pipeline: {words}\n"
