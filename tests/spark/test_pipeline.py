"""The Spark jobs on messages of a small peer: tables with the rows that `ledger.cost` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from tests.waiting import until

from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    BrokerStarted,
    Delivered,
    MemberJoined,
    Record,
)
from steelyard.ledger.tables import Costs
from steelyard.spark import pipeline

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
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


def test_the_ledger_becomes_tables(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    bodies = [ledger.encode(RECORDS[:4]), ledger.encode(RECORDS[4:]), ledger.encode([])]
    peer.put(LEDGER_TOPIC, *bodies)
    for _ in range(2):  # the second run finds nothing new
        tables = pipeline.ledger_tables(spark, peer.address, tmp_path / "out")
    expected = cost.costs(RECORDS)
    assert len(expected.handoffs) == 1
    assert len(expected.rebalances) == 5
    assert tables.collect() == expected
    assert dict(tables.rebalances.dtypes)["started_at"] == "timestamp"
    assert sorted((row.kind, row.group) for row in tables.events.collect()) == [
        ("broker_started", ""),
        ("broker_started", ""),
        ("joined", "one"),
        ("joined", "one"),
        ("joined", "two"),
    ]
    assert [(row.client, row.queues, row.delivered) for row in served(tables, "one")] == [
        ("A", 1, 10),
        ("B", 1, 12),
    ]
    assert pipeline.read_ledger(spark, peer.address) == RECORDS


def served(tables: pipeline.LedgerTables, group: str) -> list[Row]:
    return tables.balance.where(tables.balance.group == group).orderBy("client").collect()


@pytest.mark.spark_long
def test_a_later_run_goes_on_where_the_last_one_ended(
    spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    """Rows of the first run change: group two has a rebalance less, and then a row that is final."""
    later: list[Record] = [delivered(8_000_000, "one", "A", 20, 30)]
    for count in (4, 7, len(RECORDS)):
        peer.put(LEDGER_TOPIC, *(ledger.encode([one]) for one in RECORDS[:count]))
        tables = pipeline.ledger_tables(spark, peer.address, tmp_path, messages_max=2)
        assert tables.collect() == cost.costs(RECORDS[:count])
        kinds = [type(one).__struct_config__.tag for one in RECORDS[:count]]
        assert tables.events.count() == len(kinds) - kinds.count("delivered")
    assert {row.batch for row in tables.rebalances.collect()} == {"open"}
    every = [*RECORDS, *later]
    peer.put(LEDGER_TOPIC, *(ledger.encode([one]) for one in every))
    tables = pipeline.ledger_tables(spark, peer.address, tmp_path)
    assert tables.collect() == cost.costs(every)
    assert tables.rebalances.where("group = 'one' and batch != 'open'").count() == 3
    assert {str(row.day) for row in tables.rebalances.collect()} == {"1970-01-01"}


@pytest.mark.spark_long
def test_records_that_come_too_late_are_told(
    spark: SparkSession, peer: Peer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS))
    pipeline.ledger_tables(spark, peer.address, tmp_path, delay_ms=0)
    late = [*RECORDS, delivered(3_000, "one", "A", 10, 12)]
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS), ledger.encode(late[-1:]))
    tables = pipeline.ledger_tables(spark, peer.address, tmp_path, delay_ms=0)
    assert tables.collect() == cost.costs(RECORDS)
    assert "left out 1 record that came too late, 0 messages that came again" in caplog.text


@pytest.mark.spark_long
def test_tables_follow_the_ledger(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS[:5]))

    def found() -> Costs | None:
        """What the tables say; None if a batch has replaced the open rows while they were read."""
        try:
            return pipeline.tables_in(spark, tmp_path).collect()
        except Py4JJavaError as error:
            if "FILE_NOT_EXIST" not in str(error):
                raise
            return None

    query = pipeline.follow_ledger(spark, peer.address, tmp_path, interval_s=0)
    try:
        until(lambda: (tables := found()) is not None and len(tables.rebalances) == 2)
        peer.put(LEDGER_TOPIC, ledger.encode(RECORDS[:5]), ledger.encode(RECORDS[5:]))
        until(lambda: found() == cost.costs(RECORDS))
    finally:
        query.stop()


@pytest.mark.spark_long
def test_a_ledger_without_groups_gives_empty_tables(
    spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS[:1]))
    tables = pipeline.ledger_tables(spark, peer.address, tmp_path)
    assert tables.handoffs.columns[:3] == ["group", "topic", "broker"]
    assert tables.handoffs.count() == tables.rebalances.count() == 0


@pytest.mark.spark_long
@pytest.mark.usefixtures("spark")
def test_the_command_line(
    peer: Peer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS))
    assert pipeline.main(["ledger", "-n", peer.address, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    heads = "began (UTC)          moved  stalled  longest, ms  reprocessed ≤  drain, ms  reason"
    assert (
        f"""group two
{heads}
1970-01-01 00:00:01      0        0            0              0          –  X joined; a died
1970-01-01 00:01:30      0        0            0              0          –  a started

"""
        in out
    )
    assert (
        "1970-01-01 00:00:20      1        0          250              2          –  B joined"
        in out
    )
    assert f"hand-offs: 1; tables in {tmp_path}" in out
    arguments = ["ledger", "-n", peer.address, "--out", str(tmp_path), "-g"]
    assert pipeline.main([*arguments, "two"]) == 0
    out = capsys.readouterr().out
    assert "group two" in out
    assert "group one" not in out
    assert "hand-offs: 0;" in out
    monkeypatch.setattr("steelyard.spark.ledger.command.SHOWN_MAX", 1)
    assert pipeline.main([*arguments, "two"]) == 0
    out = capsys.readouterr().out
    assert "a started" in out
    assert "X joined" not in out
    assert "only the latest 1 rebalance; the tables have all" in out
    assert pipeline.main([*arguments, "three"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "steelyard pipeline: no group 'three' in the ledger; there are one, two"
    tables = {path.name for path in tmp_path.iterdir() if not path.name.startswith("_")}
    assert tables == {"events", "handoffs", "rebalances", "balance", "lag"}


@pytest.mark.spark_long
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


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("table_format", "words"),
    [("parquet", "Spark: Parent path is not a directory"), ("iceberg", "cannot be used: File ex")],
)
def test_a_folder_that_cannot_be_used_is_told_in_a_line(
    table_format: str,
    words: str,
    peer: Peer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    peer.put(LEDGER_TOPIC, ledger.encode(RECORDS))
    out = tmp_path / "file"
    out.touch()
    given = ["ledger", "-n", peer.address, "--out", str(out), "--format", table_format]
    assert pipeline.main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


WRONG = [
    (["--spark-conf", "a=b"], "argument --spark-conf: 'a=b' is not NAME=VALUE with a name"),
    (["--spark-conf", "spark.a"], "argument --spark-conf: 'spark.a' is not NAME=VALUE"),
    (["--delay", "-1"], "argument --delay: '-1' is not a number from 0 to 86400"),
    (["--interval", "soon"], "argument --interval: 'soon' is not a number from 0 to 86400"),
    (["--messages-max", "0"], "argument --messages-max: '0' is not a whole number from 1 to"),
    (["--packages", "a:b:1,c"], "argument --packages: 'c' is not group:artifact:version"),
    (["--jars", "none.jar"], "argument --jars: there is no file 'none.jar'"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_spark_options_are_told_in_a_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(["ledger", "-n", "127.0.0.1:1", "--out", "out", *arguments])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"steelyard pipeline ledger: {words}")


@pytest.mark.usefixtures("spark")
def test_a_session_cannot_get_another_master(
    peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    peer.put(LEDGER_TOPIC, b"[]")
    arguments = ["ledger", "-n", peer.address, "--out", "out", "--master", "local[7]"]
    assert pipeline.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("steelyard pipeline: setting 'spark.master' is 'local[7]', but")


def test_spark_options_become_settings(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    arguments = ["--out", "out", "-n", "a:1", "--jars", f"{jar},https://b/c.jar"]
    arguments += ["--packages", "a:b:1", "--master", "local[3]"]
    arguments += ["--spark-conf", "spark.a=b=c", "--spark-conf", "spark.master=yarn"]
    assert pipeline.settings_of(pipeline.build_parser().parse_args(["ledger", *arguments])) == {
        "spark.a": "b=c",
        "spark.master": "local[3]",
        "spark.jars": f"{jar},https://b/c.jar",
        "spark.jars.packages": "a:b:1",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "E: x\nsteelyard.errors.ConfigError: option 'a' is wrong\n SQLSTATE",
            "option 'a' is wrong",
        ),
        ("Traceback\nImportError: format rocketmq: p cannot\n\tat", "format rocketmq: p cannot"),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            "the executors have no pyarrow; see `steelyard pipeline archive --help`",
        ),
        (
            "ModuleNotFoundError: No module named 'google'",
            "the executors have no protobuf; see `steelyard pipeline archive --help`",
        ),
        (
            "An error occurred while calling o1.mkdirs.\n: java.io.IOException: Mkdirs failed\n\tat",
            "Spark: Mkdirs failed",
        ),
        (
            ": org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: a",
            "Spark: Parent path is not a directory: a",
        ),
        (
            ": java.lang.RuntimeException: java.lang.ClassNotFoundException: Class"
            " org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "Spark: ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
        ),
        (": java.lang.NullPointerException: none", None),
        ("ModuleNotFoundError: No module named 'flights'", None),
    ],
)
def test_the_reason_in_a_workers_traceback(text: str, reason: str | None) -> None:
    assert pipeline.reason_in(text) == reason


def test_the_command_line_writes_archives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.zip"
    assert pipeline.main(["archive", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {out.stat().st_size / 1e6:.1f} MB\n"


def test_without_spark_the_extra_is_named() -> None:
    program = "import sys; sys.modules['pyspark'] = None\n"
    program += "from steelyard.admin.main import main; sys.exit(main(['pipeline', 'ledger']))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("steelyard: this needs Spark: pip install 'steelyard[spark]' (")
