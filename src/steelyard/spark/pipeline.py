"""The Spark job that computes the cost of each rebalance from the ledger.

    steelyard pipeline ledger -n 127.0.0.1:9876 --out out/ledger

The columns of the tables are declared in `ledger.tables` and listed in docs/LEDGER.md. The
functions of `ledger.cost` do the work, with one call per consumer group on the records of all
brokers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from steelyard.errors import SteelyardError
from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, Record
from steelyard.ledger.tables import Costs, Handoff, Rebalance
from steelyard.printable import printable
from steelyard.spark.tables import Row, collected, ddl, to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, GroupedData, SparkSession

SHOWN_MAX = 1_000
"""Maximum rows of a table that are printed."""
OURS = "steelyard.errors."


class LedgerTables(NamedTuple):
    """Both tables, as read back from their Parquet files."""

    handoffs: DataFrame
    rebalances: DataFrame

    def collect(self) -> Costs:
        """Collect the rows in the order of `ledger.cost`."""
        moved = self.handoffs.orderBy("group", "first_delivery_ms", "broker", "topic", "queue")
        paid = self.rebalances.orderBy("group", "started_at")
        return Costs(collected(moved, Handoff), collected(paid, Rebalance))


def read_topic(spark: SparkSession, nameservers: str, topic: str) -> DataFrame:
    """Read all messages of a topic. `nameservers`: `host:port`, several by `;`."""
    reader = spark.read.format("rocketmq").option("nameservers", nameservers)
    return reader.option("topic", topic).load()


# -- the ledger ------------------------------------------------------------------------------------


def ledger_tables(
    spark: SparkSession, nameservers: str, out_dir: str | Path, *, topic: str = LEDGER_TOPIC
) -> LedgerTables:
    """Read the ledger of all live brokers; write `handoffs` and `rebalances` to `out_dir`.

    Tables of an earlier run are replaced. `topic`: the topic of the ledger's records, if they were
    copied elsewhere.
    """
    folder = Path(out_dir)
    noted = ledger_records(read_topic(spark, nameservers, topic)).persist()
    try:
        by_group = with_broker_records(noted).groupBy("group")
        _write(by_group, Handoff, cost.handoffs, str(folder / "handoffs"))
        _write(by_group, Rebalance, cost.rebalances, str(folder / "rebalances"))
    finally:
        noted.unpersist()
    handoffs, rebalances = (spark.read.parquet(str(folder / n)) for n in ("handoffs", "rebalances"))
    return LedgerTables(handoffs, rebalances)


def _write(
    by_group: GroupedData,
    table: type[Row],
    rows: Callable[[list[Record]], list[Row]],
    path: str,
) -> None:
    made = by_group.applyInArrow(_to_table(table, rows), ddl(table))
    in_order = made.coalesce(1).sortWithinPartitions("group", "rebalance")
    in_order.write.mode("overwrite").parquet(path)


def read_ledger(
    spark: SparkSession, nameservers: str, *, topic: str = LEDGER_TOPIC
) -> list[Record]:
    """Collect all records on the driver: for charts of one run, not for the ledger of a year."""
    bodies = read_topic(spark, nameservers, topic).select("body").collect()
    return [record for row in bodies for record in ledger.decode(bytes(row.body))]


def ledger_records(messages: DataFrame) -> DataFrame:
    """Convert the ledger's messages to rows (group, record as JSON).

    No group for broker records.
    """
    return messages.select("body").mapInArrow(_split_records, "group string, record binary")


def with_broker_records(noted: DataFrame) -> DataFrame:
    """Add the records about brokers to every group: a broker's start concerns all of them."""
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
    table: type[Row], rows: Callable[[list[Record]], list[Row]]
) -> Callable[[pa.Table], pa.Table]:
    """Return a function for `applyInArrow`: from the records of one group to rows of the table."""
    converted = to_arrow(table)

    def run(noted: pa.Table) -> pa.Table:
        bodies = noted.column("record").to_pylist()
        return converted(rows([one for body in bodies for one in ledger.decode(body)]))

    return run


# -- command line ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run `steelyard pipeline …`; return 0 on success, 2 after an error line on stderr."""
    parser = argparse.ArgumentParser("steelyard pipeline", description="Spark jobs over topics.")
    jobs = parser.add_subparsers(dest="job", required=True)
    costs = jobs.add_parser("ledger", help="what each rebalance cost, as Parquet")
    costs.add_argument("--out", required=True, help="folder for the tables")
    costs.add_argument("-n", "--nameservers", required=True, help="host:port, several by ;")
    costs.add_argument(
        "-t", "--topic", default=LEDGER_TOPIC, help="topic of the ledger; default: %(default)s"
    )
    costs.add_argument(
        "--report",
        metavar="FILE",
        help="also write an HTML report with charts of the busiest group",
    )
    options = parser.parse_args(argv)

    from pyspark.errors import PySparkException

    try:
        return _run(options)
    except SteelyardError as error:
        words = str(error)
    except PySparkException as error:
        # One of our errors, raised in a worker, arrives as a text with a traceback in it.
        ours = [line for line in str(error).splitlines() if line.startswith(OURS)]
        if not ours:
            raise
        words = ours[-1].partition(": ")[2]
    print(f"steelyard pipeline: {printable(words)}", file=sys.stderr)
    return 2


def _run(options: argparse.Namespace) -> int:
    from steelyard.spark.session import session

    spark = session()  # ends with the process
    tables = ledger_tables(spark, options.nameservers, options.out, topic=options.topic)
    tables.rebalances.orderBy("started_at").show(SHOWN_MAX, truncate=False)
    print(f"hand-offs: {tables.handoffs.count()}; tables in {options.out}")
    if options.report:
        from steelyard.spark.report import write_report

        held = read_ledger(spark, options.nameservers, topic=options.topic)
        print(f"report: {write_report(options.report, held=held, costs=tables.collect())}")
    return 0
