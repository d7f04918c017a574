"""The Spark jobs: what each rebalance cost, from the ledger; delay per carrier, from a topic of flights.

    steelyard pipeline ledger -n 127.0.0.1:9876 --out out/ledger
    steelyard pipeline delays -n 127.0.0.1:9876 --topic flights

What the columns of the ledger's tables mean is defined in `ledger.cost`, whose functions do the work:
one call per consumer group, with the records of all brokers. Times are milliseconds since the epoch
where the name ends in `_ms`; `started_at` is a timestamp.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from steelyard.errors import SteelyardError
from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, Record
from steelyard.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

HANDOFFS = """
    group string, topic string, broker string, queue int, from_client string, to_client string,
    last_delivery_ms bigint, first_delivery_ms bigint, pause_ms bigint, duplicates bigint,
    rebalance string
"""
REBALANCES = """
    group string, rebalance string, started_at timestamp, trigger string,
    members_before array<string>, members_after array<string>, queues_moved int,
    pause_p50_ms bigint, pause_p99_ms bigint, pause_max_ms bigint, duplicates bigint,
    spike double, drain_ms bigint
"""
SHOWN_MAX = 1_000
"""Rows of a table printed at most."""
OURS = "steelyard.errors."
FLIGHT = "carrier string, dep_delay double, arr_delay double"


class LedgerTables(NamedTuple):
    """Both tables, as read back from their Parquet files."""

    handoffs: DataFrame
    rebalances: DataFrame

    def collect(self) -> cost.Costs:
        """The rows, in the order of `ledger.cost`."""
        moved = self.handoffs.orderBy("group", "first_delivery_ms", "broker", "topic", "queue")
        paid = self.rebalances.selectExpr(
            "* except (started_at)", "unix_millis(started_at) as started_at"
        )
        return cost.Costs(
            [msgspec.convert(row.asDict(), cost.Handoff) for row in moved.collect()],
            [
                msgspec.convert(row.asDict(), cost.Rebalance)
                for row in paid.orderBy("group", "started_at").collect()
            ],
        )


def read_topic(spark: SparkSession, nameservers: str, topic: str) -> DataFrame:
    """All messages of a topic. `nameservers`: `host:port`, several by `;`."""
    reader = spark.read.format("rocketmq").option("nameservers", nameservers)
    return reader.option("topic", topic).load()


# -- the ledger -------------------------------------------------------------------------------------


def ledger_tables(spark: SparkSession, nameservers: str, out_dir: str | Path) -> LedgerTables:
    """Read the ledger of all brokers that are up, and write `handoffs` and `rebalances` under `out_dir` as Parquet.

    Tables of an earlier run are replaced.
    """
    folder = Path(out_dir)
    noted = ledger_records(read_topic(spark, nameservers, LEDGER_TOPIC)).persist()
    try:
        by_group = with_broker_records(noted).groupBy("group")
        for name, columns, rows in (
            ("handoffs", HANDOFFS, _handoff_rows),
            ("rebalances", REBALANCES, _rebalance_rows),
        ):
            table = by_group.applyInArrow(_to_table(rows, columns), columns)
            in_order = table.coalesce(1).sortWithinPartitions("group", "rebalance")
            in_order.write.mode("overwrite").parquet(str(folder / name))
    finally:
        noted.unpersist()
    handoffs, rebalances = (spark.read.parquet(str(folder / n)) for n in ("handoffs", "rebalances"))
    return LedgerTables(handoffs, rebalances)


def read_ledger(spark: SparkSession, nameservers: str) -> list[Record]:
    """All records, on the driver: for charts of one run, not for the ledger of a year."""
    bodies = read_topic(spark, nameservers, LEDGER_TOPIC).select("body").collect()
    return [record for row in bodies for record in ledger.decode(bytes(row.body))]


def ledger_records(messages: DataFrame) -> DataFrame:
    """Messages of the ledger as rows (group, record as JSON); `group` is empty where it is about a broker."""
    return messages.select("body").mapInArrow(_split_records, "group string, record binary")


def with_broker_records(noted: DataFrame) -> DataFrame:
    """The records about brokers go to every group: a broker that starts is news to all of them."""
    about_groups = noted.where("group != ''")
    about_brokers = noted.where("group = ''").drop("group")
    groups = about_groups.select("group").distinct()
    return about_groups.unionByName(groups.crossJoin(about_brokers))


def _split_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        records = [one for body in batch.column(0).to_pylist() for one in ledger.decode(body)]
        groups = [getattr(record, "group", "") for record in records]
        encoded = [ledger.encode([record]) for record in records]
        yield pa.record_batch(
            [pa.array(groups, pa.string()), pa.array(encoded, pa.binary())], ["group", "record"]
        )


def _to_table(
    rows: Callable[[list[Record]], list[dict[str, object]]], columns: str
) -> Callable[[pa.Table], pa.Table]:
    """A function for `applyInArrow`: the records of one group in, rows of `columns` out."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    declared = StructType.fromDDL(columns)
    assert isinstance(declared, StructType)
    schema = to_arrow_schema(declared, timezone="UTC")

    def run(noted: pa.Table) -> pa.Table:
        import pyarrow as pa

        bodies = noted.column("record").to_pylist()
        records = [one for body in bodies for one in ledger.decode(body)]
        return pa.Table.from_pylist(rows(records), schema)

    return run


def _handoff_rows(records: list[Record]) -> list[dict[str, object]]:
    return [msgspec.structs.asdict(row) for row in cost.handoffs(records)]


def _rebalance_rows(records: list[Record]) -> list[dict[str, object]]:
    rows = [msgspec.structs.asdict(row) for row in cost.rebalances(records)]
    # Arrow takes a bare number for a timestamp in its own unit, microseconds here.
    return [row | {"started_at": row["started_at"] * 1000} for row in rows]


# -- the flights ------------------------------------------------------------------------------------


def carrier_delays(spark: SparkSession, nameservers: str, topic: str) -> DataFrame:
    """Delay per carrier over the flights of a topic, in minutes, sorted by carrier.

    A message's body is a flight as JSON, with `carrier`, `dep_delay` and `arr_delay`; a flight that
    was cancelled has no delays and counts in `flights` only. Columns: carrier, flights, then mean,
    p50 and p95 of both delays.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    flights = read_topic(spark, nameservers, topic).select(
        F.from_json(F.decode("body", "UTF-8"), FLIGHT).alias("flight")
    )
    known = flights.select(
        "flight.carrier",
        # JSON written by Python may hold NaN, which Spark would rank above all numbers.
        *(
            F.when(~F.isnan(f"flight.{name}"), F.col(f"flight.{name}")).alias(name)
            for name in ("dep_delay", "arr_delay")
        ),
    ).where("carrier is not null")
    measures = [F.count("*").alias("flights")]
    for name in ("dep_delay", "arr_delay"):
        measures.append(F.mean(name).alias(f"{name}_mean"))
        measures += [F.percentile(name, n / 100).alias(f"{name}_p{n}") for n in (50, 95)]
    return known.groupBy("carrier").agg(*measures).orderBy("carrier")


# -- command line -----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """`steelyard pipeline …`: 0 when all went well, 2 with a line on stderr when not."""
    parser = argparse.ArgumentParser("steelyard pipeline", description="Spark jobs over topics.")
    jobs = parser.add_subparsers(dest="job", required=True)
    costs = jobs.add_parser("ledger", help="what each rebalance cost, as Parquet")
    costs.add_argument("--out", required=True, help="folder for the tables")
    delays = jobs.add_parser("delays", help="delay per carrier, from a topic of flights")
    delays.add_argument("-t", "--topic", required=True)
    for job in (costs, delays):
        job.add_argument("-n", "--nameservers", required=True, help="host:port, several by ;")
    options = parser.parse_args(argv)

    from pyspark.errors import PySparkException

    try:
        return _run(options)
    except SteelyardError as error:
        words = str(error)
    except PySparkException as error:
        # Ours, raised in a worker, comes as a text with a traceback in it.
        ours = [line for line in str(error).splitlines() if line.startswith(OURS)]
        if not ours:
            raise
        words = ours[-1].partition(": ")[2]
    print(f"steelyard pipeline: {printable(words)}", file=sys.stderr)
    return 2


def _run(options: argparse.Namespace) -> int:
    from steelyard.spark.session import session

    spark = session()  # ends with the process
    if options.job == "delays":
        delays = carrier_delays(spark, options.nameservers, options.topic)
        delays.show(SHOWN_MAX, truncate=False)
    else:
        tables = ledger_tables(spark, options.nameservers, options.out)
        tables.rebalances.orderBy("started_at").show(SHOWN_MAX, truncate=False)
        print(f"hand-offs: {tables.handoffs.count()}; tables in {options.out}")
    return 0
