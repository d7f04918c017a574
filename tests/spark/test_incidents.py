"""`steelyard pipeline incident` on a copied folder and on a running broker: what it prints and writes, and what it refuses."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from tests.incident.dumps import GOLDEN, segment

from steelyard.spark import pipeline

DUMP = "kafka-4.3.1-classic"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A broker's log.dirs with two partitions."""
    for number, data in enumerate((segment(DUMP), b"")):
        folder = tmp_path / "dump" / f"__consumer_offsets-{number}"
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").write_bytes(data)
    topic = tmp_path / "dump" / "incident-2"
    topic.mkdir()
    (topic / "00000000000000000000.log").write_bytes(segment(DUMP))  # with some other records
    return tmp_path / "dump"


def run(*words: object) -> int:
    return pipeline.main(["incident", *map(str, words)])


def test_what_is_printed_and_written(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = dump.parent / "out"
    logs = GOLDEN / DUMP
    page = dump.parent / "pages" / "incident.html"
    assert (
        run("--dump", dump, "--logs", logs, "-g", "incident", "--out", out, "--report", page) == 0
    )
    text = page.read_text()
    assert "Group <b>incident</b>, 21:01:00 to 21:02:20 UTC" in text
    assert '"incident:0"' in text
    assert "left (poll timeout)" in text
    assert "Backlog" not in text
    out_text = capsys.readouterr().out
    printed = out_text.splitlines()
    assert printed[0] == "group incident"
    assert max(map(len, printed[: printed.index("lag")])) <= 100
    assert " ".join(out_text.split()).count("left: its application did not poll for too long") == 1
    assert any(line.startswith("1 group, 1,134 commits; 8 rebalances, 13") for line in printed)
    rows = parquet.read_table(out / "rebalances.parquet").to_pylist()
    assert [row["queues_moved"] for row in rows] == [0, 2, 1, 2, 2, 2, 2, 2]
    assert rows[0]["started_at"].year == 2026
    assert parquet.read_table(out / "handoffs.parquet").num_rows == 17
    (lag,) = parquet.read_table(out / "lag.parquet").to_pylist()
    assert (lag["queue"], lag["lag"]) == (2, lag["log_end"] - lag["committed"])


def test_a_part_of_the_time(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dump", dump, "--from", "2026-11-23T21:01:40", "--to", "2026-11-23T21:02:00") == 0
    assert "; 2 rebalances, 4 queues moved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--dump", "{dump}", "-g", "other"), "no group 'other' in {dump}; there are incident"),
        (("--dump", "{dump}/incident-2"), "no folder __consumer_offsets-NUMBER with files *.log"),
        ((), "incident needs --kafka, --dump or --logs"),
        (
            ("--dump", "{dump}", "--from", "2026-11-24", "--to", "2026-11-23"),
            "--from is after --to",
        ),
        (
            ("--dump", "{dump}", "--report", "{dump}/incident-2/00000000000000000000.log/r"),
            "written",
        ),
        (("--kafka", "a:1", "--option", "timeoutMs=1"), "option 'timeoutMs' does not say how Kaf"),
        (
            ("--kafka", "a:1", "--option", "tls=maybe"),
            "option 'tls' is 'maybe'; it must be true or",
        ),
        (("--kafka", "a:1", "--option", "tlsCaFile=x"), "is given, but 'tls' is not true"),
        (("--logs", "{dump}"), "no file below {dump} has lines of RocketMQ"),
        (("--kafka", "127.0.0.1:1"), "not connected to Kafka broker 127.0.0.1:1"),
        (("--dump", "{dump}", "--out", "{dump}/incident-2/00000000000000000000.log"), "written"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...],
    line: str,
    dump: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("steelyard.spark.incidents.sources.CONNECT_TIMEOUT_S", 0.5)
    assert run(*(word.format(dump=dump) for word in words)) == 2
    errors = capsys.readouterr().err
    assert line.format(dump=dump) in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--dump", "/none"), "there is no folder '/none'"),
        (("--kafka", "a:1", "--from", "noon"), "'noon' is not a time such as 2026-11-23T21:00"),
        (("--kafka", "a:1", "--utc-offset", "CET"), "'CET' is not a time zone such as +02:00"),
    ],
)
def test_bad_arguments(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*words)
    assert ended.value.code == 2
    assert line in capsys.readouterr().err


def test_a_damaged_segment_is_named(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dump / "__consumer_offsets-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert run("--dump", dump) == 2
    assert f"{path}: the record batch at byte 0 is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "data", [b"text", gzip.compress(b"text\n" * 100)[:-20]], ids=["no gzip", "cut"]
)
def test_a_log_that_cannot_be_read_is_named(
    data: bytes, dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dump / "server.log.gz"
    path.write_bytes(data)
    assert run("--dump", dump, "--logs", dump) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"steelyard pipeline: {path} cannot be read: ")


def test_an_archive_of_a_cluster_that_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.spark.incidents.sources.CONNECT_TIMEOUT_S", 0.5)
    arguments = ["archive-offsets", "--kafka", "127.0.0.1:1", "--out", str(tmp_path)]
    assert pipeline.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("steelyard pipeline: not connected to Kafka broker 127.0.0.1:1 within")


def test_an_archive_that_cannot_be_written(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dump / "incident-2" / "00000000000000000000.log"
    assert pipeline.main(["archive-offsets", "--kafka", "127.0.0.1:1", "--out", str(path)]) == 2
    assert f"{path} cannot be written" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        pipeline.main(["archive-offsets", "--kafka", "a:1", "--out", "x", "--every", "0"])
    assert "'0' is not a whole number from 1 to 86400" in capsys.readouterr().err


def test_rocketmqs_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = GOLDEN / "rocketmq-5.3.3" / "logs"
    page = tmp_path / "incident.html"
    assert run("--logs", logs, "--report", page, "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "connection closed" in printed
    assert "1 group, 21 log lines; 7 rebalances" in printed
    assert "incident broker-a:3" in page.read_text()
    assert run("--logs", logs, "-g", "other") == 2
    assert "no group 'other' in the logs; there are incident" in capsys.readouterr().err
