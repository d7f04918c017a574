"""The data files of a table, and what all logs of tables can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STAGING = "_staging"
"""The folder in which Spark writes; readers of folders leave out names that begin with `_`."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table. `path` is complete; `partition`: its values as texts.

    `has_deletes`: the table has a note that some of its rows are deleted (Iceberg).
    """

    path: Path
    size_bytes: int
    rows: int
    modified_ms: int
    partition: Mapping[str, str | None] = field(default_factory=dict)
    has_deletes: bool = False


class TableLog(Protocol):
    """What a table consists of: atomic changes of a list of files."""

    data: Path
    """The folder for data files."""
    time_zone: str
    """That of times in the names of folders; empty: the session's."""

    def batch(self, query: str) -> int:
        """Return the number of the last micro-batch of a query that has files here, or -1."""

    def files(self) -> list[DataFile]:
        """Return the files of the table now."""

    def append(self, added: Sequence[DataFile], schema: StructType, query: str, batch: int) -> None:
        """Add files, and note whose micro-batch they are."""

    def replace(self, removed: Sequence[DataFile], added: DataFile, schema: StructType) -> bool:
        """Put one file in the place of others; False if they are no longer in the table.

        The files that are replaced stay on the disk, for those who are reading them.
        """


def found_file(path: Path, partition: Mapping[str, str | None]) -> DataFile:
    """Describe a file by what its footer and the file system say."""
    import pyarrow.parquet as pq

    status = path.stat()
    rows = pq.read_metadata(path).num_rows
    return DataFile(path, status.st_size, rows, int(status.st_mtime * 1000), partition)


def spark_path(path: Path) -> str:
    """Return the path as Spark takes it; a URI would be taken literally, with `%3D` for `=`."""
    return f"file:{path}"
