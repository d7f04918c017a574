"""Queries are waited for, with progress on a terminal, and end between micro-batches."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from tests.spark.test_terminal import Screen

from steelyard.spark.terminal import ProgressLine
from steelyard.spark.waiting import noting_signals, wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_signal_ends_a_query_after_its_micro_batch(spark: SparkSession) -> None:
    ended = threading.Event()
    noted: list[str] = []

    def write(rows: DataFrame, number: int) -> None:
        noted.append(f"batch {number} begun")
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        rows.count()
        noted.append(f"batch {number} done")

    before = signal.getsignal(signal.SIGINT)
    screen = Screen()
    with noting_signals(ended):
        rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
        query = rows.writeStream.foreachBatch(write).start()
        wait_for(query, ProgressLine(screen), ended)
    assert signal.getsignal(signal.SIGINT) == before
    assert not query.isActive
    assert query.exception() is None
    assert noted[-1].endswith("done")
    assert "batch 1 done" in noted
    assert "messages read" in screen.getvalue()
