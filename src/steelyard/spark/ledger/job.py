"""The Spark job that computes the cost of each rebalance from the ledger.

    tables = ledger_tables(session(), "127.0.0.1:9876", "out/ledger")

The columns of the tables are declared in `ledger.tables` and listed in docs/LEDGER.md.
`query` is the streaming query that computes them, `sinks` and `lakes` keep them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from steelyard.errors import ConfigError
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, Record
from steelyard.ledger.stream import DELAY_MS
from steelyard.ledger.tables import TABLES, Costs, Handoff, Rebalance
from steelyard.spark.ledger.lakes import DeltaSink, IcebergSink
from steelyard.spark.ledger.micro_batch import micro_batch
from steelyard.spark.ledger.query import Drops, made_rows
from steelyard.spark.ledger.sinks import ParquetSink, Sink
from steelyard.spark.tables import collected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "_checkpoint"
"""The folder beside the tables with the query's progress and state."""

MESSAGES_MAX = 12_000
"""Messages of the ledger in a micro-batch, by default; a message has at most 500 records.

A micro-batch costs seconds of processor time whatever is in it, and sorts its messages in memory.
"""

SINKS: Mapping[str, Callable[[SparkSession, str], Sink]] = {
    "parquet": ParquetSink,
    "delta": DeltaSink,
    "iceberg": IcebergSink,
}
"""The formats of tables."""

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

logger = logging.getLogger(__name__)


class LedgerTables(NamedTuple):
    """The tables, as DataFrames with all rows that are there when they are read."""

    events: DataFrame
    handoffs: DataFrame
    rebalances: DataFrame
    balance: DataFrame
    lag: DataFrame

    def collect(self) -> Costs:
        """Collect what rebalances cost, in the order of `ledger.cost`."""
        moved = self.handoffs.orderBy("group", "first_delivery_ms", "broker", "topic", "queue")
        paid = self.rebalances.orderBy("group", "started_at")
        return Costs(collected(moved, Handoff), collected(paid, Rebalance))


def ledger_tables(
    spark: SparkSession,
    nameservers: str,
    out_dir: str | Path,
    *,
    topic: str = LEDGER_TOPIC,
    delay_ms: int = DELAY_MS,
    messages_max: int = MESSAGES_MAX,
    table_format: str = "parquet",
) -> LedgerTables:
    """Bring the tables in `out_dir` up to date with the ledger of all live brokers.

    What was read by an earlier call is not read again: its progress is stored in the folder
    `_checkpoint` there. `topic`: the topic of the ledger's records, if they were copied elsewhere.
    `delay_ms`: how long records may come after records of a later time; what comes even later is
    dropped, with a warning. `messages_max`: messages in a micro-batch. `table_format`: parquet,
    delta or iceberg; always the same for one folder.
    """
    query = follow_ledger(
        spark,
        nameservers,
        out_dir,
        topic=topic,
        delay_ms=delay_ms,
        messages_max=messages_max,
        table_format=table_format,
        interval_s=None,
    )
    query.awaitTermination()
    return tables_in(spark, out_dir, table_format=table_format)


def tables_in(
    spark: SparkSession, out_dir: str | Path, *, table_format: str = "parquet"
) -> LedgerTables:
    """Return the tables that `ledger_tables` or `follow_ledger` keeps in a folder."""
    sink = _sink(spark, _folder(out_dir), table_format)
    return LedgerTables(**{table: sink.read(table) for table in TABLES})


def follow_ledger(
    spark: SparkSession,
    nameservers: str,
    out_dir: str | Path,
    *,
    topic: str = LEDGER_TOPIC,
    delay_ms: int = DELAY_MS,
    messages_max: int = MESSAGES_MAX,
    table_format: str = "parquet",
    interval_s: float | None = 10,
) -> StreamingQuery:
    """Start the query that keeps the tables up to date, every `interval_s`; None: once.

    For the other parameters see `ledger_tables`.
    """
    folder = _folder(out_dir)
    sink = _sink(spark, folder, table_format)

    def write(made: DataFrame, number: int) -> None:
        batch = micro_batch(made, number)
        if batch is not None:
            sink.write(batch)
            if batch.drops != Drops():
                logger.warning("batch %d: left out %s", number, batch.drops)

    options = {
        "nameservers": nameservers,
        "topic": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": str(messages_max),
        "alignByTime": "true",
    }
    writer = made_rows(spark, options, delay_ms).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", f"{folder}/{CHECKPOINT}")
    if interval_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_s} seconds")
    with _setting_of(spark, "spark.sql.streaming.stateStore.providerClass", STATE_STORE):
        return writer.start()


def _sink(spark: SparkSession, folder: str, table_format: str) -> Sink:
    if table_format not in SINKS:
        raise ConfigError(
            f"{table_format!r} is no format of tables; it must be parquet, delta or iceberg"
        )
    return SINKS[table_format](spark, folder)


def _folder(out_dir: str | Path) -> str:
    return str(out_dir).rstrip("/")  # maybe a URL, which Path would damage


@contextmanager
def _setting_of(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Change a setting of a session for a while; a query keeps what it was started with."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def read_ledger(
    spark: SparkSession, nameservers: str, *, topic: str = LEDGER_TOPIC
) -> list[Record]:
    """Collect all records on the driver: for charts of one run, not for the ledger of a year."""
    options = {"nameservers": nameservers, "topic": topic, "columns": "body"}
    bodies = spark.read.format("rocketmq").options(**options).load().collect()
    return [record for row in bodies for record in ledger.decode(bytes(row.body))]
