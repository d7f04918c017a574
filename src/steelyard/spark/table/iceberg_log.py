"""An Iceberg table: its snapshots, written by PyIceberg.

The files of a micro-batch are added in one snapshot, whose summary names the query and the number
of the micro-batch, as that of Iceberg's own sink does. There is no release of Iceberg's jar for
Spark 4.3; PyIceberg writes the same metadata, for every reader of Iceberg tables.

Files are divided by hidden partitions: the day of the store time, or values of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import ConfigError
from steelyard.spark.extras import imported
from steelyard.spark.table.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DAY = "day"
QUERY = "steelyard.query"
BATCH = "steelyard.batch"
COMMITS_MAX = 10
"""How often a change is tried when others change the table at the same time."""


class IcebergLog:
    """The log of a table `CATALOG.NAMESPACE.TABLE`; PyIceberg's settings say where a catalog is."""

    time_zone = ""

    def __init__(self, name: str, partition_by: Sequence[str], stored: str) -> None:
        catalogs = imported("pyiceberg.catalog", "iceberg", "Iceberg tables")
        from pyiceberg.exceptions import NoSuchNamespaceError

        catalog, _, self._name = name.partition(".")
        namespace, _, table = self._name.rpartition(".")
        if not catalog or not namespace or not table:
            raise ConfigError(f"{name!r} is not CATALOG.NAMESPACE.TABLE")
        self._partition_by = partition_by
        self._stored = stored
        try:
            self._catalog = catalogs.load_catalog(catalog)
            location = self._catalog.load_namespace_properties(namespace).get("location")
        except NoSuchNamespaceError:
            raise ConfigError(f"catalog {catalog!r} has no namespace {namespace!r}") from None
        except Exception as error:  # of PyIceberg and its catalogs, which have no common class
            raise ConfigError(f"catalog {catalog!r} cannot be used: {error}") from None
        self.data = self._folder(location)

    def _folder(self, location: str | None) -> Path:
        table = self._table()
        if table is not None:
            place = table.location()
        else:
            namespace, _, name = self._name.rpartition(".")
            within = location or f"{self._catalog.properties.get('warehouse', '')}/{namespace}"
            place = f"{within.rstrip('/')}/{name}"
        path = _path(place)
        if not path.is_absolute():
            raise ConfigError(
                f"table {self._name!r} is at {place!r}; it must be a folder that this machine and"
                " all executors reach"
            )
        return path / "data"

    def _table(self) -> Any | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def batch(self, query: str) -> int:
        """Return the number of the last micro-batch of a query that has files here, or -1."""
        table = self._table()
        snapshots = [] if table is None else table.metadata.snapshots
        found = -1
        for snapshot in snapshots:
            noted = snapshot.summary
            if noted is not None and noted.additional_properties.get(QUERY) == query:
                found = max(found, int(noted.additional_properties[BATCH]))
        return found

    def files(self) -> list[DataFile]:
        """Return the files that micro-batches and merges have here now."""
        table = self._table()
        if table is None:
            return []
        found = []
        for task in table.scan().plan_files():
            path = _path(task.file.file_path)
            if path.is_relative_to(self.data):
                size, rows = task.file.file_size_in_bytes, task.file.record_count
                modified_ms = int(path.stat().st_mtime * 1000)
                has_deletes = bool(task.delete_files)
                found.append(DataFile(path, size, rows, modified_ms, has_deletes=has_deletes))
        return found

    def append(self, added: Sequence[DataFile], schema: StructType, query: str, batch: int) -> None:
        """Add the files of a micro-batch."""
        if self._table() is None:
            self._create(schema)

        def change(transaction: Any) -> None:
            paths = [_location(one.path) for one in added]
            transaction.add_files(paths, {QUERY: query, BATCH: str(batch)})

        self._change(change)

    def replace(self, removed: Sequence[DataFile], added: DataFile, schema: StructType) -> bool:
        """Put one file in the place of others; False if they are no longer whole in the table."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        gone = {_location(one.path) for one in removed}
        done = False

        def change(transaction: Any) -> None:
            nonlocal done
            table = transaction._table
            old = [
                task.file
                for task in table.scan().plan_files()
                if task.file.file_path in gone and not task.delete_files
            ]
            done = len(old) == len(gone)
            if done:
                new = parquet_file_to_data_file(table.io, table.metadata, _location(added.path))
                with transaction.update_snapshot().overwrite() as snapshot:
                    for file in old:
                        snapshot.delete_data_file(file)
                    snapshot.append_data_file(new)

        self._change(change)
        return done

    def _change(self, change: Any) -> None:
        """Change the table in one step, again if another change came first."""
        from pyiceberg.exceptions import CommitFailedException

        for again in reversed(range(COMMITS_MAX)):
            table = self._catalog.load_table(self._name)
            try:
                with table.transaction() as transaction:
                    change(transaction)
            except CommitFailedException:
                if not again:
                    raise
            else:
                return

    def _create(self, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(schema, timezone="UTC")
        table = self._catalog.create_table(self._name, arrow, location=_location(self.data.parent))
        with table.update_spec() as spec:
            for name in self._partition_by:
                if name == DAY:
                    spec.add_field(self._stored, "day", "day")
                else:
                    spec.add_identity(name)


def _location(path: Path) -> str:
    """Return a path as Iceberg writes it: a text that is compared, and never decoded as a URI."""
    return f"file://{path}"


def _path(location: str) -> Path:
    return Path(location.removeprefix("file:").replace("///", "/", 1))
