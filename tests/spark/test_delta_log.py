"""The log of a Delta table in folders for all kinds of values; Spark made their names."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from steelyard.spark.table.delta_log import DeltaLog
from steelyard.spark.table.files import DataFile, found_file
from steelyard.spark.table.parquet_log import partition_of

FOLDERS = {
    "plain": "plain",
    "a:b": "a%3Ab",
    "a b": "a b",
    "ü": "ü",
    "a%b": "a%25b",
    None: "__HIVE_DEFAULT_PARTITION__",
}
"""Values, and how Spark writes them into the name of a folder."""


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    pytest.importorskip("deltalake")
    return DeltaLog(tmp_path / "table", ["tags"])


def put(log: DeltaLog, folder: str, name: str, *bodies: str) -> DataFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = log.data / f"tags={folder}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"body": bodies}), path)
    return found_file(path, partition_of(path.parent.relative_to(log.data)))


def rows(log: DeltaLog) -> list[tuple[str, str | None]]:
    import pyarrow as pa
    from deltalake import DeltaTable

    table: Any = pa.table(DeltaTable(str(log.data)).to_pyarrow_table())
    return sorted((row["body"], row["tags"]) for row in table.to_pylist())


@pytest.mark.parametrize(("value", "folder"), FOLDERS.items())
def test_whatever_value_a_folder_is_of(log: DeltaLog, value: str | None, folder: str) -> None:
    """1. Two files are added. 2. They are found again. 3. One takes their place."""
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("body", StringType()), StructField("tags", StringType())])
    small = [put(log, folder, f"q-{number}.parquet", f"{number}") for number in range(2)]
    log.append(small, schema, "query", 0)
    assert rows(log) == [("0", value), ("1", value)]
    assert sorted(log.files(), key=attrgetter("path")) == small
    merged = put(log, folder, "merged.parquet", "0", "1")
    assert log.replace(log.files(), merged, schema)
    assert rows(log) == [("0", value), ("1", value)]
    assert log.files() == [merged]
