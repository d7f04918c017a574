"""`steelyard pipeline sink` to every format, batches that are repeated, and the merging of small files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from steelyard.spark import pipeline
from steelyard.spark.table.tables import open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Peer

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(600)]

PATH_FIELD = 2147483546
"""Iceberg's number of the column of paths in a file of positions."""
PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def sink(peer: Peer, out: str, *more: str) -> int:
    arguments = ["sink", "-n", peer.address, "-t", "T", "--out", out, "--once", "--json"]
    return pipeline.main([*arguments, *more])


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace of an Iceberg catalog."""
    pytest.importorskip("pyiceberg", reason="pip install 'steelyard[iceberg]'")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    # It reads the environment when it is imported, which an earlier test may have done.
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    catalog.load_catalog("lake").create_namespace("shop")
    return "lake.shop"


def delta_rows(name: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(name).to_pyarrow_table().to_pylist()
    return rows


def iceberg_rows(name: str) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    catalog, _, table = name.partition(".")
    rows: list[dict[str, Any]] = (
        load_catalog(catalog).load_table(table).scan().to_arrow().to_pylist()
    )
    return rows


def test_raw_rows_are_those_of_the_source_and_small_files_are_merged(
    spark: SparkSession, peer: Peer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    peer.fill("T", 3, 40)
    assert sink(peer, str(out), "--batch-max", "60", "--compact-every", "0") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    whole = spark.read.parquet(str(out))
    source = spark.read.format("rocketmq").options(nameservers=peer.address, topic="T").load()
    assert whole.columns == [*source.columns, "day"]
    same = whole.drop("day", "properties")
    assert same.exceptAll(source.drop("properties")).isEmpty()
    assert whole.count() == 120
    before = {*out.glob("day=*/*.parquet")}
    assert len(before) == 6
    assert pipeline.main(["compact", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 6 files merged into 1, 0 old files deleted")
    assert whole.count() == 120, "a reader that knows the old files still finds them"
    again = spark.read.parquet(str(out))
    assert len(again.inputFiles()) == 1
    assert again.drop("properties").exceptAll(whole.drop("properties")).isEmpty()
    assert again.count() == 120
    assert pipeline.main(["compact", "--out", str(out), "--retain", "0"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 0 files merged into 0, 6 old files deleted")
    assert len([*out.glob("day=*/*.parquet")]) == 1
    assert spark.read.parquet(str(out)).count() == 120
    peer.fill("T", 3, 41)
    assert sink(peer, str(out)) == 0
    assert spark.read.parquet(str(out)).count() == 123, "the merged files know their batches"


def test_small_files_of_short_runs_are_merged(
    spark: SparkSession, peer: Peer, tmp_path: Path
) -> None:
    """Batch 0 has no messages; each run of a scheduler's job writes one of the next."""
    out = str(tmp_path / "out")
    for batch, files in ((1, 1), (2, 1), (3, 2), (4, 1)):
        peer.put("T", *[b"text"] * batch)
        assert sink(peer, out, "--compact-every", "2") == 0
        assert len(spark.read.parquet(out).inputFiles()) == files
    assert spark.read.parquet(out).count() == 4


def test_a_repeated_batch_is_written_once(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    """As after a kill: before the dead letters, or before Spark noted that the batch is done."""
    out, bad = tmp_path / "out", tmp_path / "out_dead_letters"
    peer.put("T", b'{"id": 1}', b"rubbish", b'{"id": 2}')
    arguments = ("--schema", "json", "--schema-ddl", "id bigint")
    assert sink(peer, str(out), *arguments) == 0
    for log in ((bad,), (out, bad)):
        for folder in log:
            for name in (folder / "_spark_metadata").iterdir():
                name.unlink()
        commits = sorted((out / "_checkpoint" / "commits").iterdir())
        for commit in commits:
            if commit.name in ("1", ".1.crc"):
                commit.unlink()
        assert sink(peer, str(out), *arguments) == 0
        assert sorted(row["id"] for row in spark.read.parquet(str(out)).collect()) == [1, 2]
        assert [row["queueOffset"] for row in spark.read.parquet(str(bad)).collect()] == [1]
        files = [*out.glob("day=*/*.parquet")]
        assert len(files) == 1, "files of the first try were replaced"


@pytest.mark.parametrize("to", ["delta", "iceberg"])
def test_other_formats(
    to: str,
    spark: SparkSession,
    peer: Peer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """Read by delta-rs and PyIceberg: rows, dead letters, a batch that is repeated, merged files."""
    pytest.importorskip(PACKAGES[to], reason=f"pip install 'steelyard[{to}]'")
    out = str(tmp_path / "out") if to == "delta" else f"{request.getfixturevalue('lake')}.orders"
    rows = delta_rows if to == "delta" else iceberg_rows
    checkpoint = tmp_path / "checkpoint"
    arguments = ["--to", to, "--checkpoint", str(checkpoint), "--schema", "json"]
    arguments += ["--schema-ddl", "id bigint, name string, tags array<string>"]
    arguments += ["--compact-every", "0"]
    bodies = [b'{"id": 1, "name": "a", "tags": ["x"]}', b"rubbish", b'{"id": 2}']
    peer.put("T", *bodies)
    assert sink(peer, out, *arguments) == 0
    peer.put("T", *bodies, b'{"id": 3}', b"more rubbish")
    assert sink(peer, out, *arguments) == 0
    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    assert sink(peer, out, *arguments) == 0  # repeats the batch
    for merged in (False, True):
        good = sorted(rows(out), key=lambda row: row["id"])
        assert [(row["id"], row["name"], row["tags"]) for row in good] == [
            (1, "a", ["x"]),
            (2, None, None),
            (3, None, None),
        ]
        assert [row["_queueOffset"] for row in good] == [0, 2, 3]
        bad = sorted(rows(f"{out}_dead_letters"), key=lambda row: row["queueOffset"])
        assert [(row["queueOffset"], row["body"], row["reason"]) for row in bad] == [
            (1, b"rubbish", "not JSON"),
            (4, b"more rubbish", "not JSON"),
        ]
        files = open_log(to, out, ("day",), "_storeTimestamp").files()
        assert len(files) == (1 if merged else 2)
        capsys.readouterr()
        if not merged:
            assert pipeline.main(["compact", "--to", to, "--out", out, "--checkpoint", "-"]) == 0
            assert capsys.readouterr().out.count("2 files merged into 1") == 2


def test_times_that_divide_a_delta_table(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    """Spark writes them into names of folders in its own time zone, which Delta does not know."""
    pytest.importorskip("deltalake", reason="pip install 'steelyard[delta]'")
    out = str(tmp_path / "out")
    peer.put("T", b'{"at": "2026-07-01T00:00:00Z"}')
    arguments = ["--to", "delta", "--schema", "json", "--schema-ddl", "at timestamp"]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert sink(peer, out, *arguments, "--partition-by", "at") == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    (row,) = delta_rows(out)
    assert row["at"] == datetime(2026, 7, 1, tzinfo=UTC)


def test_rows_that_others_deleted_stay_deleted(
    spark: SparkSession,
    peer: Peer,
    tmp_path: Path,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trino and Spark delete rows of an Iceberg table by a file of positions, which merging must not lose."""
    out, checkpoint = f"{lake}.orders", str(tmp_path / "checkpoint")
    arguments = ["--to", "iceberg", "--checkpoint", checkpoint, "--compact-every", "0"]
    for bodies in (b"01", b"012", b"0123"):
        peer.put("T", *(body.encode() for body in bodies.decode()))
        assert sink(peer, out, *arguments) == 0
    delete_by_position(out, tmp_path / "deletes.parquet", b"0", monkeypatch)
    assert sorted(row["body"] for row in iceberg_rows(out)) == [b"1", b"2", b"3"]
    compact = ["compact", "--to", "iceberg", "--out", out, "--retain", "0"]
    assert pipeline.main(compact) == 0
    assert sorted(row["body"] for row in iceberg_rows(out)) == [b"1", b"2", b"3"]
    assert len(open_log("iceberg", out, ("day",), "storeTimestamp").files()) == 2
    assert pipeline.main(compact) == 0
    assert sorted(row["body"] for row in iceberg_rows(out)) == [b"1", b"2", b"3"]


def delete_by_position(name: str, path: Path, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete the first row with a body, as PyIceberg cannot, but reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.catalog import load_catalog
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestContent,
        ManifestWriterV2,
    )

    catalog, _, rest = name.partition(".")
    table = load_catalog(catalog).load_table(rest)
    (task, position) = next(
        (task, bodies.index(body))
        for task in table.scan().plan_files()
        if body
        in (
            bodies := pq.read_table(task.file.file_path.removeprefix("file://"))["body"].to_pylist()
        )
    )
    pq.write_table(pa.table({"file_path": [task.file.file_path], "pos": [position]}), path)
    bounds = {PATH_FIELD: task.file.file_path.encode()}
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=task.file.partition,
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    deletes.spec_id = task.file.spec_id
    with monkeypatch.context() as patched:
        patched.setattr(ManifestWriterV2, "content", lambda _: ManifestContent.DELETES)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(deletes)
