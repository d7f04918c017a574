"""`steelyard pipeline sink` in the shared Spark session: rows, dead letters, restarts, compaction, wrong options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from steelyard.errors import ConfigError
from steelyard.spark import pipeline
from steelyard.spark.table.kept import Kept, agreed
from steelyard.spark.table.writing import OPEN_FILES_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Peer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


def sink(peer: Peer, out: Path, *more: str) -> int:
    arguments = ["sink", "-n", peer.address, "-t", "T", "--out", str(out), "--once", "--json"]
    return pipeline.main([*arguments, *more])


def table(spark: SparkSession, out: Path) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.read.parquet(str(out)).collect()]


@pytest.mark.spark_long
def test_json_to_parquet(
    spark: SparkSession, peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schema is inferred once and stays; what does not fit is a dead letter; a second run continues."""
    out, bad = tmp_path / "out", tmp_path / "out_dead_letters"
    bodies = [b'{"id": 1, "name": "a"}', b"rubbish", b'{"id": 2}']
    peer.put("T", *bodies)
    assert sink(peer, out, "--schema", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["dead_letters"]) == (2, 1)
    assert report["freshness_p99_ms"] >= report["freshness_p50_ms"] > 0
    peer.put("T", *bodies, b'{"id": "text"}', b'{"id": 3}')
    assert sink(peer, out, "--schema", "json") == 0
    rows = sorted(table(spark, out), key=lambda row: row["_queueOffset"])
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a"), (2, None), (3, None)]
    assert rows[1] == rows[1] | {
        "_topic": "T",
        "_brokerName": "broker-a",
        "_queueId": 0,
        "_queueOffset": 2,
        "_keys": "k2",
        "_tags": "t",
        "day": rows[1]["_storeTimestamp"].date(),
    }
    letters = sorted(table(spark, bad), key=lambda row: row["queueOffset"])
    assert [(row["queueOffset"], bytes(row["body"]), row["reason"]) for row in letters] == [
        (1, b"rubbish", "not JSON"),
        (3, b'{"id": "text"}', "id is not bigint"),
    ]
    assert letters[0] == letters[0] | {
        "topic": "T",
        "brokerName": "broker-a",
        "queueId": 0,
        "day": letters[0]["storeTimestamp"].date(),
    }
    capsys.readouterr()
    assert pipeline.main(["compact", "--out", str(out)]) == 0
    assert capsys.readouterr().out == "".join(
        f"{folder}: 2 files merged into 1, 0 old files deleted\n" for folder in (out, bad)
    )
    assert len(spark.read.parquet(str(out)).inputFiles()) == 1
    assert len(table(spark, out)) == 3
    assert sink(peer, out, "--schema", "json", "--schema-ddl", "id string") == 2
    assert "begun with another one, which sink.json has; leave it out" in capsys.readouterr().err
    assert sink(peer, out, "--schema", "raw") == 2
    assert "--schema is 'raw', but this table was begun with 'json'" in capsys.readouterr().err
    assert sink(peer, out) == 0, "later starts need no schema"
    assert sink(peer, out, "--checkpoint", str(tmp_path / "other")) == 2
    assert "has data, but its checkpoint" in capsys.readouterr().err


@pytest.mark.spark_long
def test_more_folders_than_a_task_writes_at_a_time(
    spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    out, count = tmp_path / "out", 2 * OPEN_FILES_MAX + 1
    peer.fill("T", 1, count)
    assert sink(peer, out, "--partition-by", "keys") == 0
    assert sorted(row["queueOffset"] for row in table(spark, out)) == [*range(count)]
    assert sorted(path.parent.name for path in out.glob("*/*.parquet")) == sorted(
        f"keys=k{number}" for number in range(count)
    )


WRONG = [
    (["-t", "none"], "option 'subscribe': PEER knows no topic 'none'"),
    (["-n", "127.0.0.1:1"], "127.0.0.1:1"),
    (["-n", "rubbish"], "option 'nameservers' has 'rubbish'"),
    (["--option", "tags"], "argument --option: 'tags' is not NAME=VALUE"),
    (["--option", "colour=red"], "unknown option 'colour'"),
    (
        ["--option", "maxoffsetsPerTrigger=9"],
        "maxoffsetsPerTrigger is not for the sink; use --batch-max",
    ),
    (["--option", "columns=body"], "--option columns is not for the sink; use --schema"),
    (["--option", "topic=other"], "--option topic is not for the sink; use --topic"),
    (["--schema", "avro"], "--schema avro needs --schema-file"),
    (["--schema", "avro", "--schema-ddl", "a int"], "--schema-ddl is for --schema json"),
    (["--schema-file", "/none"], "--schema-file cannot be read"),
    (["--schema", "json", "--schema-ddl", "a nothing"], "the schema is neither Spark's DDL nor"),
    (["--schema", "json", "--schema-ddl", "_topic int"], "two columns of the table would be named"),
    (["--schema", "json", "--schema-ddl", "day int"], "two columns of the table would be named"),
    (["--schema", "json"], "none of the first 1 messages is a JSON object"),
    (
        ["--schema", "json", "--option", "alignByTime=true"],
        "none of the first 1 messages is a JSON",
    ),
    (["--schema", "json", "--option", "startingoffsets=latest"], "none of the first 1 messages is"),
    (["--partition-by", "colour"], "there is no column 'colour' to partition by"),
    (["--interval", "x"], "argument --interval: 'x' is not a number"),
    (["--to", "iceberg", "--out", "a.b.c"], "--to iceberg needs --checkpoint"),
    (["--out", "s3://a/b"], "'s3://a/b' is a URL"),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_options_are_told_in_a_line(
    arguments: list[str],
    words: str,
    peer: Peer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    peer.put("T", b"text")
    try:
        code: object = sink(peer, tmp_path / "out", *arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("steelyard pipeline")
    assert words.replace("PEER", peer.address) in line
    assert not (tmp_path / "out").exists()


@pytest.mark.spark_long
def test_one_run_at_a_time(
    spark: SparkSession,
    peer: Peer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler starts a run while the one before it still waits for Spark.

    1. Of a new table: the one that begins it last ends. 2. Of a table that was begun: the second ends.
    """
    out = tmp_path / "out"
    codes: list[int] = []

    def session(*_: object, **__: object) -> SparkSession:
        monkeypatch.setattr(pipeline, "session", lambda *_, **__: spark)
        codes.append(sink(peer, out))
        return spark

    begun, running = "has begun the checkpoint", "wait for its end"
    for count, expected, words in ((1, [0, 2], begun), (2, [2, 0], running)):
        peer.put("T", *[b"text"] * count)
        codes.clear()
        monkeypatch.setattr(pipeline, "session", session)
        codes.append(sink(peer, out))
        assert codes == expected
        assert words in capsys.readouterr().err
    assert sorted(row["queueOffset"] for row in table(spark, out)) == [0, 1]


def test_another_format_is_refused() -> None:
    begun = Kept(
        topic="T", to="parquet", out="o", kind="raw", schema="", prefix="_", partition_by=["day"]
    )
    with pytest.raises(ConfigError, match="--to is 'delta', but this table was begun with 'parq"):
        agreed(begun, replace(begun, to="delta"))
    before_it_was_kept = replace(begun, to="")
    assert agreed(before_it_was_kept, begun) == before_it_was_kept
