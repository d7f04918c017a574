"""The formats of tables, and the log of a table by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steelyard.errors import ConfigError
from steelyard.spark.table.delta_log import DeltaLog
from steelyard.spark.table.files import TableLog
from steelyard.spark.table.iceberg_log import IcebergLog
from steelyard.spark.table.parquet_log import ParquetLog

FORMATS = ("parquet", "delta", "iceberg")


def open_log(to: str, name: str, partition_by: Sequence[str], stored: str) -> TableLog:
    """Return the log of a table, which need not exist. Raises ConfigError for a wrong name.

    `stored`: the column with the store time, of which Iceberg takes the day.
    """
    if to == "iceberg":
        return IcebergLog(name, partition_by, stored)
    if "://" in name:
        raise ConfigError(
            f"{name!r} is a URL; the folder of a table must be a path that this machine and all"
            " executors reach"
        )
    folder = Path(name).absolute()
    return ParquetLog(folder) if to == "parquet" else DeltaLog(folder, partition_by)
