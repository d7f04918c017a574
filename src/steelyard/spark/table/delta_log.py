"""A Delta table: its transaction log, written by delta-rs.

The files of a micro-batch are added with a transaction identifier (`txn`: the query and the number
of the micro-batch), as Delta's own sink does. There is no release of Delta's jars for Spark 4.3;
delta-rs writes the same log, for every reader of Delta tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from steelyard.spark.extras import imported
from steelyard.spark.table.files import DataFile
from steelyard.spark.table.parquet_log import partition_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DeltaLog:
    """The log of a Delta table in a folder."""

    time_zone = "UTC"  # as the protocol of Delta says

    def __init__(self, folder: Path, partition_by: Sequence[str]) -> None:
        self._deltalake = imported("deltalake", "delta", "Delta tables")
        self.data = folder
        self._partition_by = list(partition_by)

    def _table(self) -> Any | None:
        if not self._deltalake.DeltaTable.is_deltatable(str(self.data)):
            return None
        return self._deltalake.DeltaTable(str(self.data))

    def batch(self, query: str) -> int:
        """Return the number of the last micro-batch of a query that has files here, or -1."""
        table = self._table()
        number = None if table is None else table.transaction_version(query)
        return -1 if number is None else int(number)

    def files(self) -> list[DataFile]:
        """Return the files of the table now."""
        table = self._table()
        if table is None:
            return []
        import pyarrow as pa

        found = []
        for row in pa.table(table.get_add_actions()).to_pylist():
            path = self.data / unquote(row["path"])  # as in a URI
            partition = partition_of(path.relative_to(self.data).parent)
            found.append(
                DataFile(
                    path,
                    row["size_bytes"],
                    row["num_records"],
                    row["modification_time"],
                    partition,
                )
            )
        return found

    def append(self, added: Sequence[DataFile], schema: StructType, query: str, batch: int) -> None:
        """Add the files of a micro-batch."""
        arrow = _arrow(schema)
        table = self._table()
        if table is None:
            table = self._deltalake.DeltaTable.create(
                str(self.data), arrow, partition_by=self._partition_by
            )
        noted = self._deltalake.CommitProperties(
            app_transactions=[self._deltalake.Transaction(query, batch)]
        )
        self._commit(table, [self._add(one, True) for one in added], arrow, noted)

    def replace(self, removed: Sequence[DataFile], added: DataFile, schema: StructType) -> bool:
        """Put one file in the place of others; False if they are no longer in the table."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import RemoveAction

        table = self._table()
        if table is None or {one.path for one in removed} - {one.path for one in self.files()}:
            return False
        gone = [
            RemoveAction(
                path=str(one.path.relative_to(self.data)),
                partition_values=dict(one.partition),
                size=one.size_bytes,
                data_change=False,
                deletion_timestamp=added.modified_ms,
            )
            for one in removed
        ]
        try:
            self._commit(table, [*gone, self._add(added, False)], None, None)
        except CommitFailedError:
            return False
        return True

    def _commit(self, table: Any, actions: list[Any], schema: Any, noted: Any) -> None:
        table.create_write_transaction(
            actions,
            mode="append",
            schema=table.schema() if schema is None else schema,
            partition_by=self._partition_by,
            commit_properties=noted,
        )

    def _add(self, file: DataFile, is_new: bool) -> Any:
        from deltalake.transaction import AddAction

        return AddAction(
            path=str(file.path.relative_to(self.data)),
            size=file.size_bytes,
            partition_values=dict(file.partition),
            modification_time=file.modified_ms,
            data_change=is_new,
            stats=json.dumps({"numRecords": file.rows}),
        )


def _arrow(schema: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
