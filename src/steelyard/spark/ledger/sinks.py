"""Where the ledger's tables are kept: as Parquet files; `lakes` has other formats.

All have two columns more than the rows: `day`, and `batch`, the number of the micro-batch that
wrote the row, or `open` while the row may still change. A micro-batch that is repeated after a
crash writes the same rows to the same partitions (`day`, `batch`), so nothing is there twice.

Open rows of a group are replaced by those of the next micro-batch in which the group is. In Delta
and Iceberg one transaction per table does that. Parquet files know no transactions: the open rows
of each micro-batch are stored in the hidden folder `_open` first, so that they can be written again
when the driver was killed while it replaced those that readers see.

The rows of a micro-batch are few, and the driver writes them: a Spark job for each table would take
longer to plan than to run.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from steelyard.ledger.tables import TABLES
from steelyard.spark.ledger.micro_batch import OPEN, MicroBatch, decoder
from steelyard.spark.tables import ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = "day date, batch string"


class Sink(ABC):
    """Where tables are kept."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._decoded = {table: decoder(table) for table in TABLES}

    @abstractmethod
    def write(self, batch: MicroBatch) -> None:
        """Write the rows of a micro-batch."""

    @abstractmethod
    def read(self, table: str) -> DataFrame:
        """Return a table; an empty one if nothing was written."""


def schema_of(table: str) -> str:
    """Return the columns of a table as it is kept, in Spark's DDL."""
    return f"{ddl(TABLES[table].rows)}, {PARTITIONS}"


class ParquetSink(Sink):
    """Tables in a folder: `FOLDER/rebalances/day=2026-11-23/batch=17/part-0.parquet`."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark)
        self._folder = folder
        # Of this run: another one may repeat the micro-batch at the same time.
        self._staged = f"{folder}/_staged-{uuid.uuid4().hex}.parquet"
        self._files = HadoopFiles(spark)
        for table in TABLES:
            self._files.make(f"{folder}/{table}")

    def read(self, table: str) -> DataFrame:
        return self._spark.read.schema(schema_of(table)).parquet(f"{self._folder}/{table}")

    def write(self, batch: MicroBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_open = pc.equal(batch.rows.column("batch"), OPEN)
        final, open_rows = batch.rows.filter(pc.invert(is_open)), batch.rows.filter(is_open)
        rows = pa.concat_tables([final, self._with_kept(open_rows, batch)])
        written = set()
        for (table, day, name), mine in _divided(rows):
            place = f"{self._folder}/{table}/day={day}/batch={name}"
            self._put(place, self._decoded[table](mine).drop_columns(["day", "batch"]))
            written.add(place)
        for table in TABLES:
            for day in self._files.names(f"{self._folder}/{table}"):
                place = f"{self._folder}/{table}/{day}/batch={OPEN}"
                if day.startswith("day=") and place not in written:
                    self._files.delete(place)

    def _with_kept(self, open_rows: pa.Table, batch: MicroBatch) -> pa.Table:
        """Return open rows of all groups, also of those that are not in this batch; store them."""
        import pyarrow as pa

        hidden = f"{self._folder}/_open"
        stored = {int(name): self._parts(f"{hidden}/{name}") for name in self._files.names(hidden)}
        complete = [number for number, parts in stored.items() if parts]
        before = max((number for number in complete if number < batch.number), default=None)
        if before is not None:
            kept = self._read(stored[before]).cast(open_rows.schema)
            open_rows = pa.concat_tables([open_rows, batch.of_other_groups(kept)])
        self._put(f"{hidden}/{batch.number}", open_rows)
        for number in complete:
            if before is not None and number < before:
                self._files.delete(f"{hidden}/{number}")
        return open_rows

    def _parts(self, folder: str) -> list[str]:
        names = self._files.names(folder)
        return [f"{folder}/{name}" for name in names if name.endswith(".parquet")]

    def _read(self, paths: list[str]) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = (pa.BufferReader(self._files.read(path)) for path in paths)
        return pa.concat_tables([pq.read_table(file) for file in files])

    def _put(self, folder: str, rows: pa.Table) -> None:
        """Make a file with these rows the only one of a folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        data = pa.BufferOutputStream()
        pq.write_table(rows, data)
        self._files.write(self._staged, data.getvalue().to_pybytes())
        self._files.delete(folder)
        self._files.make(folder)
        self._files.rename(self._staged, f"{folder}/part-0.parquet")


def _divided(rows: pa.Table) -> Iterator[tuple[tuple[str, object, str], pa.Table]]:
    """Divide encoded rows by table, day and batch."""
    import pyarrow as pa

    places: dict[tuple[str, object, str], list[int]] = {}
    columns = (rows.column(name).to_pylist() for name in ("table", "day", "batch"))
    for position, place in enumerate(zip(*columns, strict=True)):
        places.setdefault(place, []).append(position)
    for place, positions in places.items():
        yield place, rows.take(pa.array(positions))


class HadoopFiles:
    """Files wherever Spark can write: Hadoop's file systems, which the driver's JVM has."""

    def __init__(self, spark: SparkSession) -> None:
        org: Any = spark.sparkContext._jvm.org  # type: ignore[union-attr]
        self._hadoop = org.apache.hadoop.fs
        self._all_bytes = org.apache.commons.io.IOUtils.toByteArray
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

    def read(self, path: str) -> bytes:
        system, place = self._at(path)
        stream = system.open(place)
        try:
            return bytes(self._all_bytes(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """Write a file, which may exist."""
        system, place = self._at(path)
        stream = system.create(place, True)
        try:
            stream.write(data)
        finally:
            stream.close()

    def rename(self, path: str, to: str) -> None:
        system, place = self._at(path)
        if not system.rename(place, self._hadoop.Path(to)):
            raise OSError(f"cannot rename {path} to {to}")

    def delete(self, path: str) -> None:
        system, place = self._at(path)
        system.delete(place, True)
