"""Where the ledger's tables are kept: as Parquet files; `lakes` has other formats.

All have two columns more than the rows: `day`, and `batch`, the number of the micro-batch that
wrote the row, or `open` while the row may still change. A micro-batch that is repeated after a
crash writes the same rows to the same partitions (`day`, `batch`), so nothing is there twice.

Open rows of a group are replaced by those of the next micro-batch in which the group is. In Delta
and Iceberg one transaction per table does that. Parquet files know no transactions: the open rows
of each micro-batch are stored in the hidden folder `_open` first, so that they can be written again
when the driver was killed while it replaced those that readers see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from steelyard.decoding import prepared
from steelyard.ledger.tables import TABLES, TableRow
from steelyard.spark.ledger.query import GROUPS
from steelyard.spark.tables import ddl, to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OPEN = "open"
PARTITIONS = "day date, batch string"
STAGING = ".spark-staging-"
"""What the folders begin with in which Spark writes partitions before it moves them."""


class Sink(Protocol):
    """Where tables are kept."""

    def write(self, made: DataFrame, number: int) -> None:
        """Write the rows (`query.MADE`) of a micro-batch."""

    def read(self, table: str) -> DataFrame:
        """Return a table; an empty one if nothing was written."""


def rows_of(table: str, made: DataFrame) -> DataFrame:
    """Return the encoded rows of a table as its columns, with `day` and `batch`."""
    kind = TABLES[table].rows
    schema = f"{ddl(kind)}, {PARTITIONS}"
    return (
        made.where(made.table == table)
        .select("row", "day", "batch")
        .mapInArrow(_decoder(kind), schema)
    )


def _decoder(
    kind: type[TableRow],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    convert = to_arrow(kind)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = msgspec.msgpack.Decoder(prepared(kind))
        for batch in batches:
            rows, day, number = batch.columns
            table = convert(decoder.decode(row) for row in rows.to_pylist())
            table = table.append_column("day", day).append_column("batch", number)
            yield from table.to_batches()

    return run


def numbered(made: DataFrame, number: int) -> DataFrame:
    """Return the rows of tables, with the column `batch`."""
    from pyspark.sql import functions as f

    batch = f.when(made.is_open, f.lit(OPEN)).otherwise(f.lit(str(number)))
    return made.where(made.table.isin([*TABLES])).withColumn("batch", batch).drop("is_open")


def groups_in(made: DataFrame) -> DataFrame:
    """Return the groups all open rows of which are in a micro-batch."""
    return made.where(made.table == GROUPS).select("group").distinct()


def without_groups_of(made: DataFrame, rows: DataFrame) -> DataFrame:
    """Return those rows of groups that have none in `made`."""
    return rows.join(groups_in(made), "group", "left_anti")


class ParquetSink:
    """Tables in a folder: `FOLDER/rebalances/day=2026-11-23/batch=17/part-….parquet`."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._files = HadoopFiles(spark)
        self._is_clean = False
        for table in TABLES:
            self._files.make(f"{folder}/{table}")

    def read(self, table: str) -> DataFrame:
        schema = f"{ddl(TABLES[table].rows)}, {PARTITIONS}"
        return self._spark.read.schema(schema).parquet(f"{self._folder}/{table}")

    def write(self, made: DataFrame, number: int) -> None:
        self._remove_unfinished()
        rows = self._with_kept(made, numbered(made, number), number)
        found = rows.select("table", "day", "batch").distinct().collect()
        places = {(row.table, f"day={row.day}", row.batch) for row in found}
        for table in sorted({table for table, _, _ in places}):
            writer = rows_of(table, rows).coalesce(1).write.mode("overwrite")
            writer = writer.option("partitionOverwriteMode", "dynamic")
            writer.partitionBy("day", "batch").parquet(f"{self._folder}/{table}")
        for table in TABLES:
            for day in self._files.names(f"{self._folder}/{table}"):
                if day.startswith("day=") and (table, day, OPEN) not in places:
                    self._files.delete(f"{self._folder}/{table}/{day}/batch={OPEN}")

    def _remove_unfinished(self) -> None:
        """Delete what a driver that was killed had begun to write; no reader sees it."""
        if not self._is_clean:
            for table in TABLES:
                for name in self._files.names(f"{self._folder}/{table}"):
                    if name.startswith(STAGING):
                        self._files.delete(f"{self._folder}/{table}/{name}")
            self._is_clean = True

    def _with_kept(self, made: DataFrame, rows: DataFrame, number: int) -> DataFrame:
        """Return the rows, with open ones of groups that are not in this batch; store those."""
        hidden = f"{self._folder}/_open"
        complete = [
            int(name)
            for name in self._files.names(hidden)
            if self._files.exists(f"{hidden}/{name}/_SUCCESS")
        ]
        before = max((one for one in complete if one < number), default=None)
        open_rows = rows.where(rows.batch == OPEN)
        if before is not None:
            kept = self._spark.read.schema(rows.schema).parquet(f"{hidden}/{before}")
            open_rows = open_rows.unionByName(without_groups_of(made, kept))
        open_rows.coalesce(1).write.mode("overwrite").parquet(f"{hidden}/{number}")
        for one in complete:
            if before is not None and one < before:
                self._files.delete(f"{hidden}/{one}")
        stored = self._spark.read.schema(rows.schema).parquet(f"{hidden}/{number}")
        return rows.where(rows.batch != OPEN).unionByName(stored)


class HadoopFiles:
    """Files wherever Spark can write: Hadoop's file systems, which the driver's JVM has."""

    def __init__(self, spark: SparkSession) -> None:
        self._hadoop: Any = spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._hadoop.Path(path)
        return place.getFileSystem(self._conf), place

    def make(self, path: str) -> None:
        system, place = self._at(path)
        system.mkdirs(place)

    def names(self, path: str) -> list[str]:
        system, place = self._at(path)
        if not system.exists(place):
            return []
        return [each.getPath().getName() for each in system.listStatus(place)]

    def exists(self, path: str) -> bool:
        system, place = self._at(path)
        return bool(system.exists(place))

    def delete(self, path: str) -> None:
        system, place = self._at(path)
        system.delete(place, True)
