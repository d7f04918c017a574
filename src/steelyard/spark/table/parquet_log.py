"""A folder of Parquet files and the list of those that count.

The list is a log as Spark's own file sink writes it, `_spark_metadata/N.compact`: a line `v1`, then
a line of JSON for each file. `spark.read.parquet` reads the latest list and nothing else in the
folder, so that Spark's readers see each micro-batch, and each compaction, at once or not at all.
Every change writes the whole list under the next number; a link that fails if the name exists
decides between two who change it at once. Lines have two fields more than Spark's: `rows`, and
`batches`, the last micro-batch of each query in the file.

Source: org.apache.spark.sql.execution.streaming (FileStreamSinkLog, CompactibleFileStreamLog).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from steelyard.errors import ConfigError
from steelyard.spark.table.files import DataFile

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LOG = "_spark_metadata"
SUFFIX = ".compact"
NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null in the name of a folder."""
LISTS_KEPT = 10
"""Older lists are deleted; a reader needs a list only while it opens it."""

Entry = dict[str, Any]


class ParquetLog:
    """The log of a table in a folder."""

    time_zone = ""

    def __init__(self, folder: Path) -> None:
        self.data = folder
        self._log = folder / LOG

    def batch(self, query: str) -> int:
        """Return the number of the last micro-batch of a query that has files here, or -1."""
        return max((entry["batches"].get(query, -1) for entry in self._read()[1]), default=-1)

    def files(self) -> list[DataFile]:
        """Return the files of the table now."""
        return [self._file(entry) for entry in self._read()[1]]

    def append(self, added: Sequence[DataFile], schema: StructType, query: str, batch: int) -> None:
        """Add the files of a micro-batch."""
        new = [_entry(one, {query: batch}) for one in added]
        while True:
            number, entries = self._read()
            if self._write(number + 1, entries + new):
                return

    def replace(self, removed: Sequence[DataFile], added: DataFile, schema: StructType) -> bool:
        """Put one file in the place of others; False if they are no longer in the table."""
        gone = {one.path.as_uri() for one in removed}
        while True:
            number, entries = self._read()
            old = [entry for entry in entries if entry["path"] in gone]
            if len(old) < len(gone):
                return False
            batches: dict[str, int] = {}
            for entry in old:
                for query, batch in entry["batches"].items():
                    batches[query] = max(batch, batches.get(query, -1))
            rest = [entry for entry in entries if entry["path"] not in gone]
            if self._write(number + 1, [*rest, _entry(added, batches)]):
                return True

    def _numbers(self) -> list[int]:
        if not self._log.is_dir():
            return []
        names = [name for name in os.listdir(self._log) if not name.startswith(".")]
        if any(not name.endswith(SUFFIX) for name in names):
            raise ConfigError(
                f"{self.data} was written by another query of Spark; choose another folder"
            )
        return sorted(int(name.removesuffix(SUFFIX)) for name in names)

    def _read(self) -> tuple[int, list[Entry]]:
        while True:
            numbers = self._numbers()
            if not numbers:
                return -1, []
            try:
                text = (self._log / f"{numbers[-1]}{SUFFIX}").read_text()
            except FileNotFoundError:
                continue  # meanwhile there are so many newer ones that it was deleted
            return numbers[-1], [json.loads(line) for line in text.splitlines()[1:]]

    def _write(self, number: int, entries: list[Entry]) -> bool:
        """Store the list under a number; False if another one has it."""
        self._log.mkdir(parents=True, exist_ok=True)
        draft = self._log / f".{number}.{uuid.uuid4().hex}.tmp"
        with draft.open("w") as file:
            file.write("\n".join(["v1", *(json.dumps(entry) for entry in entries)]))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._log / f"{number}{SUFFIX}")
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        for old in self._numbers()[:-LISTS_KEPT]:
            (self._log / f"{old}{SUFFIX}").unlink(missing_ok=True)
        return True

    def _file(self, entry: Entry) -> DataFile:
        path = Path(unquote(urlsplit(entry["path"]).path))
        partition = partition_of(path.relative_to(self.data).parent)
        return DataFile(path, entry["size"], entry["rows"], entry["modificationTime"], partition)


def partition_of(folder: Path) -> dict[str, str | None]:
    """Return the values in the names of folders that Spark made, `day=2026-11-23/tags=a`."""
    pairs = (part.partition("=") for part in folder.parts)
    return {name: None if value == NULL else unquote(value) for name, _, value in pairs}


def _entry(file: DataFile, batches: Mapping[str, int]) -> Entry:
    return {
        "path": file.path.as_uri(),
        "size": file.size_bytes,
        "isDir": False,
        "modificationTime": file.modified_ms,
        "blockReplication": 1,
        "blockSize": 32 << 20,
        "action": "add",
        "rows": file.rows,
        "batches": dict(batches),
    }
