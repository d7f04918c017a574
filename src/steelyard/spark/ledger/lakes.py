"""The ledger's tables as Delta or Iceberg tables, written by the driver with delta-rs or PyIceberg.

A transaction per table replaces the rows of a micro-batch's own number and the open ones at once: a
batch that is repeated after a crash leaves the same rows. Neither library needs the JVM, so they do
not depend on Spark's version: of Delta's and Iceberg's own Spark packages, none that is published
works with Spark 4.3 (docs/decisions/0029).
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import SteelyardError
from steelyard.ledger.tables import TABLES
from steelyard.spark.extras import imported
from steelyard.spark.ledger.micro_batch import OPEN, MicroBatch
from steelyard.spark.ledger.sinks import Sink, schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class LakeSink(Sink):
    """Tables in a format with transactions; `FOLDER/rebalances` or what its catalog says."""

    def write(self, batch: MicroBatch) -> None:
        """Write the rows of a micro-batch."""
        import pyarrow.compute as pc

        for table in TABLES:
            mine = pc.equal(batch.rows.column("table"), table)
            self._write_table(table, self._decoded[table](batch.rows.filter(mine)), batch)

    def _write_table(self, name: str, rows: pa.Table, batch: MicroBatch) -> None:
        import pyarrow as pa

        current = self._open_rows(name, rows.schema).select(rows.schema.names)
        kept = batch.of_other_groups(current)
        if rows.num_rows or kept.num_rows < current.num_rows:
            self._replace(name, pa.concat_tables([rows, kept]), [str(batch.number), OPEN])

    def read(self, table: str) -> DataFrame:
        """Return a table as Parquet files that Spark reads; an empty one if there are none."""
        schema = schema_of(table)
        folder, files = self._files(table)
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.option("basePath", folder).schema(schema).parquet(*files)

    @abstractmethod
    def _open_rows(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return the open rows of a table, which is made if there is none."""

    @abstractmethod
    def _replace(self, name: str, rows: pa.Table, batches: Sequence[str]) -> None:
        """Replace all rows of these batches by others, in one transaction."""

    @abstractmethod
    def _files(self, name: str) -> tuple[str, list[str]]:
        """Return the folder of a table, and its files of now."""


class DeltaSink(LakeSink):
    """Delta tables `FOLDER/rebalances` and so on."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark)
        self._lake = imported("deltalake", "delta", "Delta tables")
        self._folder = folder

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _open_rows(self, name: str, schema: pa.Schema) -> pa.Table:
        table = self._lake.DeltaTable.create(
            self._path(name), schema, mode="ignore", partition_by=["day", "batch"]
        )
        found: pa.Table = table.to_pyarrow_table(filters=[("batch", "=", OPEN)])
        return found.cast(schema)

    def _replace(self, name: str, rows: pa.Table, batches: Sequence[str]) -> None:
        chosen = ", ".join(f"'{one}'" for one in batches)
        self._lake.write_deltalake(
            self._path(name), rows, mode="overwrite", predicate=f"batch IN ({chosen})"
        )

    def _files(self, name: str) -> tuple[str, list[str]]:
        path = self._path(name)
        if not self._lake.DeltaTable.is_deltatable(path):
            return path, []
        return path, self._lake.DeltaTable(path).file_uris()


class IcebergSink(LakeSink):
    """Iceberg tables `ledger.rebalances` and so on, of a catalog in SQLite, `FOLDER/catalog.db`."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark)
        catalogs = imported("pyiceberg.catalog.sql", "iceberg", "Iceberg tables")
        if "://" in folder:
            raise SteelyardError(f"--format iceberg needs a folder of this machine, not {folder!r}")
        path = Path(folder).absolute()
        path.mkdir(parents=True, exist_ok=True)
        self._catalog: Any = catalogs.SqlCatalog(
            "steelyard", uri=f"sqlite:///{path}/catalog.db", warehouse=path.as_uri()
        )
        self._catalog.create_namespace_if_not_exists("ledger")

    def _open_rows(self, name: str, schema: pa.Schema) -> pa.Table:
        if not self._catalog.table_exists(f"ledger.{name}"):
            with (
                self._catalog.create_table_transaction(f"ledger.{name}", schema) as making,
                making.update_spec() as spec,
            ):
                spec.add_identity("day")
                spec.add_identity("batch")
        table = self._catalog.load_table(f"ledger.{name}")
        found: pa.Table = table.scan(row_filter=f"batch = '{OPEN}'").to_arrow()
        return found.cast(schema)

    def _replace(self, name: str, rows: pa.Table, batches: Sequence[str]) -> None:
        chosen = ", ".join(f"'{one}'" for one in batches)
        table = self._catalog.load_table(f"ledger.{name}")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            table.overwrite(rows, overwrite_filter=f"batch IN ({chosen})")

    def _files(self, name: str) -> tuple[str, list[str]]:
        if not self._catalog.table_exists(f"ledger.{name}"):
            return "", []
        table = self._catalog.load_table(f"ledger.{name}")
        return f"{table.location()}/data", [one.file.file_path for one in table.scan().plan_files()]
