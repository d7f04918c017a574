"""The ledger's tables as Parquet files, written by two runs at once."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from steelyard.ledger.tables import MemberLoad
from steelyard.spark.ledger import sinks
from steelyard.spark.ledger.micro_batch import MicroBatch
from steelyard.spark.ledger.query import Drops

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOAD = MemberLoad(group="g", minute=1_795_467_600_000, client="c", queues=1, delivered=2)


def test_two_runs_write_the_same_micro_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler starts the job again while it runs, and Spark repeats what it is at work on.

    The second run writes all of the micro-batch while the first one has staged a file.
    """
    folder = str(tmp_path)
    row = msgspec.msgpack.encode(LOAD)
    rows = pa.table(
        {
            "group": ["g"],
            "table": ["balance"],
            "day": [date(2026, 11, 23)],
            "row": [row],
            "batch": ["1"],
        }
    )
    batch = MicroBatch(1, rows, frozenset({"g"}), Drops())
    other = [sinks.ParquetSink(spark, folder)]

    class Overtaken(sinks.HadoopFiles):
        def delete(self, path: str) -> None:
            if other:
                other.pop().write(batch)
            super().delete(path)

    monkeypatch.setattr(sinks, "HadoopFiles", Overtaken)
    sink = sinks.ParquetSink(spark, folder)
    sink.write(batch)
    assert not other
    (found,) = sink.read("balance").collect()
    assert (found.client, found.batch) == ("c", "1")
