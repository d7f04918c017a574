"""Small files of a table merged into larger ones.

A merged file takes the place of its sources in the log of the table in one step. The sources stay
on the disk for a while, for those who are reading them: what may be deleted, and from when, is
written to the folder `_retired` before that step, so that a crash leaves nothing behind for ever.
"""

from __future__ import annotations

import fcntl
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from steelyard.spark.table.files import STAGING, DataFile, TableLog, spark_path
from steelyard.spark.table.writing import published, write_files
from steelyard.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETIRED = "_retired"
TARGET_BYTES = 128 << 20
"""Size that merged files have at most; files of more than half of it are left alone."""
RETAIN_S = 600.0
"""How long files that were merged are kept."""


class Compacted(NamedTuple):
    """How many files were merged into how many, and how many old ones were deleted."""

    merged: int
    made: int
    deleted: int

    def __str__(self) -> str:
        return (
            f"{counted(self.merged, 'file')} merged into {self.made:,},"
            f" {counted(self.deleted, 'old file')} deleted"
        )


def compact(
    spark: SparkSession,
    log: TableLog,
    *,
    target_bytes: int = TARGET_BYTES,
    retain_s: float = RETAIN_S,
) -> Compacted:
    """Merge small files of each partition, and delete files that were merged before.

    Waits for another compaction of the table to end.
    """
    merged = made = 0
    with _alone(log):
        for bundle in bundles(log.files(), target_bytes):
            if _merge(spark, log, bundle):
                merged += len(bundle)
                made += 1
        return Compacted(merged, made, _clean(log, retain_s))


@contextmanager
def _alone(log: TableLog) -> Iterator[None]:
    """Hold a lock, which ends with the process: the files of a merge must not be cleaned up."""
    folder = log.data / RETIRED
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def bundles(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Yield the files to merge with each other: of one folder, in order of time.

    A file with deleted rows is left alone: merged, it would have them again.
    """
    folders: dict[Path, list[DataFile]] = {}
    for file in sorted(files, key=lambda one: (one.modified_ms, one.path)):
        if file.size_bytes <= target_bytes // 2 and not file.has_deletes:
            folders.setdefault(file.path.parent, []).append(file)
    for small in folders.values():
        bundle: list[DataFile] = []
        size = 0
        for file in small:
            if size + file.size_bytes > target_bytes:
                if len(bundle) > 1:
                    yield bundle
                bundle, size = [], 0
            bundle.append(file)
            size += file.size_bytes
        if len(bundle) > 1:
            yield bundle


def _merge(spark: SparkSession, log: TableLog, bundle: list[DataFile]) -> bool:
    name = f"merged-{uuid.uuid4().hex}"
    folder = bundle[0].path.parent.relative_to(log.data)
    stage = log.data / STAGING / name
    rows = spark.newSession().read.parquet(*(spark_path(file.path) for file in bundle)).coalesce(1)
    write_files(rows, stage / folder, ())
    target = log.data / folder / f"{name}-0.parquet"
    _retire(log, name, [*(file.path for file in bundle), target])
    (file,) = published(stage, log.data, name)
    return log.replace(bundle, file, rows.schema)


def _retire(log: TableLog, name: str, paths: Sequence[Path]) -> None:
    """Note files of which those may be deleted later that are not in the table then."""
    folder = log.data / RETIRED
    draft = folder / f".{name}"
    draft.write_text(json.dumps([str(path.relative_to(log.data)) for path in paths]))
    draft.rename(folder / f"{name}.json")


def _clean(log: TableLog, retain_s: float) -> int:
    """Delete what was merged that long ago; return the number of files."""
    folder = log.data / RETIRED
    until = time.time() - retain_s
    notes = [note for note in folder.glob("*.json") if note.stat().st_mtime <= until]
    used = {file.path for file in log.files()} if notes else set()
    deleted = 0
    for note in notes:
        for path in (log.data / name for name in json.loads(note.read_text())):
            if path not in used and path.exists():
                path.unlink()
                deleted += 1
        note.unlink()
    return deleted
