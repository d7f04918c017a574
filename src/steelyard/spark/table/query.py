"""The streaming query from a topic to a table and its dead letters.

Both tables get each micro-batch by its number (`writing`), the table first. If the driver is killed
between the two, the micro-batch is repeated from the same offsets: the table has it, the dead
letters are added.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from steelyard.errors import ConfigError
from steelyard.spark.schema import SCHEMA
from steelyard.spark.table.compaction import compact
from steelyard.spark.table.files import TableLog, spark_path
from steelyard.spark.table.payloads import Payload
from steelyard.spark.table.writing import HIDDEN, TableWriter
from steelyard.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DAY = "day"
"""The partition made of the day (UTC) on which the broker stored the message."""
METADATA = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "keys", "tags")
"""Columns of the source that go with the fields of a body."""
PLACE = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")

logger = logging.getLogger(__name__)


class BatchReport(msgspec.Struct, frozen=True):
    """What a micro-batch brought: times in milliseconds.

    Freshness is the time from storing a message at the broker to the moment when it was in a table;
    half of the messages (p50), and 99 of 100 (p99), are at least that fresh.
    """

    batch: int
    rows: int
    dead_letters: int
    freshness_p50_ms: int
    freshness_p99_ms: int
    duration_ms: int
    committed_at_ms: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch}: {counted(self.rows, 'row')},"
            f" {counted(self.dead_letters, 'dead letter')} in"
            f" {self.duration_ms / 1000:.1f} s; fresh within {self.freshness_p50_ms / 1000:.1f} s"
            f" (p50), {self.freshness_p99_ms / 1000:.1f} s (p99)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Where rows go, and how. `dead_letters` is None for `raw`, which has none.

    `copies_partitions`: columns by which files are divided stay in them (Iceberg).
    """

    log: TableLog
    dead_letters: TableLog | None
    payload: Payload | None
    prefix: str
    partition_by: Sequence[str]
    copies_partitions: bool = False


def source_columns(payload: Payload | None) -> list[str]:
    """Return the columns that the source must read."""
    return [*SCHEMA.names] if payload is None else [*METADATA, "body"]


def table_columns(payload: Payload | None, prefix: str, partition_by: Sequence[str]) -> list[str]:
    """Return the names of the table's columns. Raises ConfigError for two of one name."""
    if payload is None:
        names = [*SCHEMA.names]
    else:
        names = [prefix + name for name in METADATA] + payload.fields.names
    if DAY in partition_by:
        names.append(DAY)
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise ConfigError(
                f"two columns of the table would be named {name!r}; choose another --prefix, or"
                " another --partition-by if it is 'day'"
            )
        seen.add(name.lower())
    for name in partition_by:
        if name not in names:
            raise ConfigError(
                f"there is no column {name!r} to partition by; there are: {', '.join(names)}"
            )
    if {*names} == {*partition_by}:
        raise ConfigError("--partition-by has every column; files need one at least")
    return names


def start(
    spark: SparkSession,
    source: dict[str, str],
    target: SinkSettings,
    query: str,
    checkpoint: Path,
    *,
    interval_s: float | None,
    compaction: Compaction,
    told: Callable[[BatchReport], object],
) -> StreamingQuery:
    """Start the query; `interval_s`: of micro-batches, None to end when all is read.

    `query`: its name in the logs of the tables. `told` is called after each micro-batch.
    """
    columns = ",".join(source_columns(target.payload))
    reader = spark.readStream.format("rocketmq").options(**source).option("columns", columns)
    sink = _Sink(target, query, compaction, told)
    writer = reader.load().writeStream.foreachBatch(sink.write)
    writer = writer.option("checkpointLocation", spark_path(checkpoint))
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds").start()


class Compaction:
    """Merges small files in a thread after every so many micro-batches; 0: never.

    Their numbers are counted, which go on from run to run: jobs of a scheduler have few each.
    """

    def __init__(
        self, spark: SparkSession, logs: Sequence[TableLog], every: int, **limits: Any
    ) -> None:
        self._spark = spark
        self._logs = logs
        self._every = every
        self._limits = limits
        self._thread: threading.Thread | None = None
        self._is_due = False

    def batch_done(self, batch: int) -> None:
        """Start it if it is due; one that still runs is not joined by a second one."""
        self._is_due |= bool(self._every) and batch % self._every == 0
        is_running = self._thread is not None and self._thread.is_alive()
        if self._is_due and not is_running:
            self._is_due = False
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for the one that runs."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        for log in self._logs:
            try:
                logger.info("%s: %s", log.data, compact(self._spark, log, **self._limits))
            except Exception:  # the table is as it was; the next one tries again
                logger.warning("%s: small files were not merged", log.data, exc_info=True)


class _Sink:
    """The function for `foreachBatch`."""

    def __init__(
        self,
        target: SinkSettings,
        query: str,
        compaction: Compaction,
        told: Callable[[BatchReport], object],
    ) -> None:
        self._target = target
        divided = [HIDDEN + one if target.copies_partitions else one for one in target.partition_by]
        self._table = TableWriter(target.log, query, divided)
        self._dead_letters = None
        if target.dead_letters is not None:
            by_day = HIDDEN + DAY if target.copies_partitions else DAY
            self._dead_letters = TableWriter(target.dead_letters, query, [by_day])
        self._compaction = compaction
        self._told = told

    def write(self, messages: DataFrame, batch: int) -> None:
        """Write a micro-batch."""
        began = time.monotonic()
        decoded = self._decoded(messages)
        if self._dead_letters is not None:
            decoded.persist()
        try:
            counts = self._write(decoded, batch)
        finally:
            decoded.unpersist()
        if counts["messages"]:
            self._report(counts, batch, began)
            self._compaction.batch_done(batch)

    def _decoded(self, messages: DataFrame) -> DataFrame:
        """Add the columns `value` and `reason`; of good ones the body is no longer needed."""
        from pyspark.sql import functions as f

        payload = self._target.payload
        if payload is None:
            return messages
        decoded = messages.withColumn("decoded", payload.decoded(messages.body))
        is_bad = decoded.decoded.reason.isNotNull()
        return decoded.withColumn("body", f.when(is_bad, decoded.body))

    def _write(self, decoded: DataFrame, batch: int) -> dict[str, Any]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        stored = f.unix_millis(decoded.storeTimestamp)
        is_bad = f.lit(False) if self._dead_letters is None else decoded.decoded.reason.isNotNull()
        observed = decoded.observe(
            seen,
            f.count(f.lit(1)).alias("messages"),
            f.count_if(is_bad).alias("dead_letters"),
            # Those that were stored early are the least fresh.
            f.percentile_approx(stored, [0.5, 0.01]).alias("stored"),
        )
        if not self._table.write(self._rows(observed), batch):
            observed.write.format("noop").mode("overwrite").save()
        counts = seen.get
        if self._dead_letters is not None and counts["dead_letters"]:
            self._dead_letters.write(self._bad_rows(decoded), batch)
        return counts

    def _rows(self, decoded: DataFrame) -> DataFrame:
        target = self._target
        if target.payload is None:
            rows = decoded
        else:
            prefixed = [decoded[name].alias(target.prefix + name) for name in METADATA]
            fields = [
                decoded.decoded.value[name].alias(name) for name in target.payload.fields.names
            ]
            good = decoded.where(decoded.decoded.reason.isNull())
            rows = good.select(*prefixed, *fields, decoded.storeTimestamp.alias(_STORED))
        return self._divided(rows, target.partition_by).drop(_STORED)

    def _bad_rows(self, decoded: DataFrame) -> DataFrame:
        bad = decoded.where(decoded.decoded.reason.isNotNull())
        rows = bad.select(*PLACE, "body", decoded.decoded.reason.alias("reason"))
        return self._divided(rows, [DAY])

    def _divided(self, rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
        """Add the columns by which files are divided."""
        stored = rows[_STORED] if _STORED in rows.columns else rows.storeTimestamp
        for name in partition_by:
            column = day_of(stored) if name == DAY else rows[name]
            if self._target.copies_partitions:
                rows = rows.withColumn(HIDDEN + name, column)
            elif name == DAY:
                rows = rows.withColumn(name, column)
        return rows

    def _report(self, counts: dict[str, Any], batch: int, began: float) -> None:
        now = int(time.time() * 1000)
        median, early = counts["stored"]
        self._told(
            BatchReport(
                batch=batch,
                rows=counts["messages"] - counts["dead_letters"],
                dead_letters=counts["dead_letters"],
                freshness_p50_ms=now - median,
                freshness_p99_ms=now - early,
                duration_ms=round((time.monotonic() - began) * 1000),
                committed_at_ms=now,
            )
        )


_STORED = "_steelyard_stored"


def day_of(stored: Column) -> Column:
    """Return the day of a time in UTC, whatever the time zone of the session."""
    from pyspark.sql import functions as f

    days = f.floor(f.unix_millis(stored) / f.lit(86_400_000)).cast("int")
    return f.date_from_unix_date(days)
