"""How fast Spark writes rows of 100 B to a topic, and what that costs, beside Spark's own Kafka sink (which is Java).

    python -m bench.spark_write [--rows N] [--rounds N] [--kafka-jars DIR]

One broker of Steelyard with both listeners, one Spark session on two cores; the cells alternate:

    at least once     format("rocketmq"): RocketMQ batches
    exactly once      format("rocketmq"), exactlyOnce: Kafka transactions
    kafka             format("kafka") of Spark, with the jars in DIR, to the Kafka listener of the same broker: at least
                      once, and without UNIQ_KEY

Rows are made by Spark. "noop" is the cost of making them alone, and "python noop" that of handing them to a writer in
Python that does nothing. CPU is user and system time of all processes: Spark's (JVM and Python), and the broker's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import psutil
from bench.servers import tree_cpu_s
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from steelyard import Admin
from steelyard.spark.session import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TOPIC = "Written"
QUEUES = 4
BYTES = 100


class Cell(NamedTuple):
    """One write."""

    rows_s: float
    spark_us: float
    broker_us: float


class NothingWriter(DataSourceArrowWriter):
    """Takes rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NothingSource(DataSource):
    """The format "nothing"."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return NothingWriter()


@contextmanager
def cluster(folder: str) -> Iterator[tuple[psutil.Process, str, str]]:
    """A nameserver and a broker; its process, the nameserver and the Kafka address."""
    command = [sys.executable, "-m", "steelyard", "up", "--json", "--data", folder]
    command += ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield psutil.Process(process.pid), ready["nameserver"], ready["kafka"]
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka-jars", type=Path)
    arguments = parser.parse_args()
    settings = {}
    if arguments.kafka_jars:
        jars = sorted(str(jar) for jar in arguments.kafka_jars.glob("*.jar"))
        settings["spark.jars"] = ",".join(jars)
    folder = tempfile.mkdtemp()
    try:
        with cluster(folder) as (up, nameserver, kafka):
            with Admin(nameserver) as admin:
                admin.create_topic(TOPIC, queues=QUEUES)
            spark = session(settings, optimize=True)
            spark.dataSource.register(NothingSource)
            rows = spark.range(arguments.rows).selectExpr(
                f"cast(rpad(cast(id as string), {BYTES}, 'x') as binary) as value"
            )
            job = iter(range(1_000_000))

            def rocketmq(frame: DataFrame, **more: str) -> None:
                given = {"nameservers": nameserver, "topic": TOPIC} | more
                frame.write.format("rocketmq").options(**given).mode("append").save()

            cells: dict[str, Callable[[DataFrame], None]] = {
                "noop": lambda frame: frame.write.format("noop").mode("append").save(),
                "python noop": lambda frame: frame.write.format("nothing").mode("append").save(),
                "at least once": rocketmq,
                "exactly once": lambda frame: rocketmq(
                    frame, exactlyOnce="true", sinkId=f"bench-{next(job)}"
                ),
            }
            if arguments.kafka_jars:
                cells["kafka"] = lambda frame: (
                    frame.write.format("kafka")
                    .option("kafka.bootstrap.servers", kafka)
                    .option("topic", TOPIC)
                    .save()
                )
            found: dict[str, list[Cell]] = {name: [] for name in cells}
            for round_number in range(arguments.rounds + 1):  # the first one warms up
                for name, write in cells.items():
                    cell = measured(write, rows, arguments.rows, up)
                    print(f"round {round_number}, {name}: {cell}", flush=True)
                    if round_number:
                        found[name].append(cell)
            spark.stop()
        report(found)
    finally:
        shutil.rmtree(folder)


def measured(
    write: Callable[[DataFrame], None], rows: DataFrame, count: int, up: psutil.Process
) -> Cell:
    me = psutil.Process()
    spark, broker, began = tree_cpu_s(me) - tree_cpu_s(up), tree_cpu_s(up), time.perf_counter()
    write(rows)
    seconds = time.perf_counter() - began
    time.sleep(1)  # workers that ended are counted when they are reaped
    broker_us = (tree_cpu_s(up) - broker) / count * 1e6
    spark_us = (tree_cpu_s(me) - tree_cpu_s(up) - spark) / count * 1e6
    return Cell(count / seconds, spark_us, broker_us)


def report(found: dict[str, list[Cell]]) -> None:
    print("\n| rows of 100 B | rows/s | Spark, CPU µs a row | broker, CPU µs a row | both |")
    print("|---|--:|--:|--:|--:|")
    for name, cells in found.items():
        rows_s, spark, broker = (median(each) for each in zip(*cells, strict=True))
        both = median(cell.spark_us + cell.broker_us for cell in cells)
        print(f"| {name} | {rows_s:,.0f} | {spark:.1f} | {broker:.1f} | {both:.1f} |")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"\nLoad averages at the end: {load} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
