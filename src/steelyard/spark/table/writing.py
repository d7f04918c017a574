"""Writing the rows of a micro-batch to a table, once.

Spark writes files to a hidden folder. They get names that follow from the query and the number of
the micro-batch, and then the log of the table adds them with that number. A driver that is killed
before repeats the micro-batch, and replaces the files; one that is killed after finds the number.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.spark.table.files import STAGING, DataFile, TableLog, found_file, spark_path
from steelyard.spark.table.parquet_log import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TableWriter:
    """Writes the micro-batches of one query to one table."""

    def __init__(self, log: TableLog, query: str, partition_by: Sequence[str]) -> None:
        self._log = log
        self._query = query
        self._partition_by = partition_by
        self._may_have_remains = True

    def write(self, rows: DataFrame, batch: int) -> bool:
        """Add the rows of a micro-batch; False if the table has them already."""
        if self._log.batch(self._query) >= batch:
            return False
        name = f"{self._query[:8]}-{batch}"
        if self._may_have_remains:
            # of this micro-batch, if a crash interrupted it; later ones are new
            for old in self._log.data.glob(f"{'*/' * len(self._partition_by)}{name}-*.parquet"):
                old.unlink()
            self._may_have_remains = False
        stage = self._log.data / STAGING / name
        write_files(rows, stage, self._partition_by, self._log.time_zone)
        files = published(stage, self._log.data, name)
        if files:
            shown = rows.drop(*(one for one in self._partition_by if one.startswith(HIDDEN)))
            self._log.append(files, shown.schema, self._query, batch)
        return True


OPEN_FILES_MAX = 16
"""Files that a task may write at a time.

Rows of a task that belong to more folders than that are sorted first.
"""
HIDDEN = "_by_"
"""What names of columns begin with that only divide rows among folders."""


def write_files(
    rows: DataFrame, folder: Path, partition_by: Sequence[str], time_zone: str = ""
) -> None:
    """Write Parquet files in place of the folder."""
    # Iceberg and Delta do not know the timestamps of Spark's default (INT96).
    conf = rows.sparkSession.conf
    conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES_MAX))
    writer = rows.write.mode("overwrite")
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    if time_zone:
        writer = writer.option("timeZone", time_zone)
    writer.parquet(spark_path(folder))


def published(stage: Path, data: Path, name: str) -> list[DataFile]:
    """Move files with rows from the hidden folder to their places; `name` begins their names."""
    found = []
    for number, source in enumerate(sorted(stage.rglob("*.parquet"))):
        folder = source.parent.relative_to(stage)
        file = found_file(source, partition_of(folder))
        if not file.rows:
            continue
        target = data / folder / f"{name}-{number}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        found.append(DataFile(target, file.size_bytes, file.rows, file.modified_ms, file.partition))
    shutil.rmtree(stage)
    return found
