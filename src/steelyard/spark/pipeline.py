"""The Spark job that computes the cost of each rebalance from the ledger.

    steelyard pipeline ledger -n 127.0.0.1:9876 --out out/ledger

The columns of the tables are declared in `ledger.tables` and listed in docs/LEDGER.md. The
functions of `ledger.cost` do the work, with one call per consumer group on the records of all
brokers.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from steelyard.arguments import OneLineParser
from steelyard.errors import SteelyardError
from steelyard.ledger import cost
from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, Record
from steelyard.ledger.tables import Costs, Handoff, Rebalance
from steelyard.printable import printable
from steelyard.spark.session import MASTERS_EXPLAINED, session
from steelyard.spark.shipping import NOT_IMPORTED
from steelyard.spark.tables import Row, collected, ddl, to_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, GroupedData, SparkSession

SHOWN_MAX = 1_000
"""Maximum rows of a table that are printed."""


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
    folder = str(out_dir).rstrip("/")  # maybe a URL, which Path would damage
    noted = ledger_records(read_topic(spark, nameservers, topic)).persist()
    try:
        by_group = with_broker_records(noted).groupBy("group")
        _write(by_group, Handoff, cost.handoffs, f"{folder}/handoffs")
        _write(by_group, Rebalance, cost.rebalances, f"{folder}/rebalances")
    finally:
        noted.unpersist()
    handoffs, rebalances = (spark.read.parquet(f"{folder}/{n}") for n in ("handoffs", "rebalances"))
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
    options = build_parser().parse_args(argv)

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except SteelyardError as error:
        words = str(error)
    except (PySparkException, Py4JError) as error:
        found = reason_in(str(error))
        if found is None:
            raise
        words = found
    print(f"steelyard pipeline: {printable(words)}", file=sys.stderr)
    return 2


def build_parser() -> OneLineParser:
    """Build the parser; each job sets `run`, a function from options to an exit code."""
    parser = OneLineParser("steelyard pipeline", description="Spark jobs over topics.")
    jobs = parser.add_subparsers(dest="job", required=True)
    costs = jobs.add_parser("ledger", help="what each rebalance cost, as Parquet")
    costs.set_defaults(run=_run_ledger)
    costs.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder for the tables; on a cluster one that all executors reach, e.g. hdfs://…",
    )
    costs.add_argument("-n", "--nameservers", required=True, help="host:port, several by ;")
    costs.add_argument(
        "-t", "--topic", default=LEDGER_TOPIC, help="topic of the ledger; default: %(default)s"
    )
    costs.add_argument(
        "--report",
        metavar="FILE",
        help="also write an HTML report with charts of the busiest group",
    )
    _add_spark_options(costs)
    packing = jobs.add_parser(
        "archive",
        help="what executors need, for --archives or --py-files of Spark",
        description="Writes what Spark's Python workers need: FILE.tar.gz, for --archives, has"
        " Steelyard with its dependencies as they are installed here, for the same platform and"
        " version of Python; FILE.zip, for --py-files, has Steelyard alone.",
    )
    packing.set_defaults(run=_run_archive)
    packing.add_argument("--out", required=True, metavar="FILE", help="FILE.tar.gz or FILE.zip")
    packing.add_argument(
        "--with",
        action="append",
        default=[],
        dest="added",
        metavar="NAME",
        help="another installed package, with its dependencies, e.g. pandas; repeatable",
    )
    packing.add_argument(
        "--without",
        action="append",
        default=[],
        dest="left_out",
        metavar="NAME",
        help="a package that executors have, e.g. pyarrow, numpy; repeatable",
    )
    return parser


def _add_spark_options(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group(
        "Spark", "Default: a local Spark of two cores, or the one that SPARK_HOME sets up."
    )
    options.add_argument("--master", metavar="URL", help=f"where Spark runs: {MASTERS_EXPLAINED}")
    options.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of Spark; repeatable",
    )
    options.add_argument(
        "--packages",
        type=_packages,
        metavar="LIST",
        help="Maven coordinates group:artifact:version, separated by commas",
    )
    options.add_argument(
        "--jars", type=_jars, metavar="LIST", help="jar files or URLs, separated by commas"
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark.") or name.endswith("."):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=VALUE with a name that begins with 'spark.'"
        )
    return name, value


def _packages(text: str) -> str:
    for one in text.split(","):
        if not re.fullmatch(r"[^:\s]+:[^:\s]+:[^:\s]+", one):
            raise argparse.ArgumentTypeError(f"{one!r} is not group:artifact:version")
    return text


def _jars(text: str) -> str:
    for one in text.split(","):
        if "://" not in one and not Path(one).is_file():
            raise argparse.ArgumentTypeError(f"there is no file {one!r}")
    return text


def settings_of(options: argparse.Namespace) -> dict[str, str]:
    """Return Spark's settings; options of their own take precedence over --spark-conf."""
    settings = dict(options.spark_conf)
    own = {
        "spark.master": options.master,
        "spark.jars.packages": options.packages,
        "spark.jars": options.jars,
    }
    return settings | {name: text for name, text in own.items() if text is not None}


def _session(settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return session(settings)
    except (PySparkException, Py4JError) as error:
        # Of an exception in Java the second line has the words, after a colon.
        lines = [line.removeprefix(": ") for line in str(error).splitlines()]
        words = lines[1] if lines[0].startswith("An error occurred while") else lines[0]
        raise SteelyardError(f"Spark does not start: {words}") from error


def reason_in(text: str) -> str | None:
    """Return the line that a user can act on in Spark's message; None: there is no such line.

    One of our errors, raised in a worker, arrives as a text with a traceback in it.
    """
    for line in reversed(text.splitlines()):
        if line.startswith(("steelyard.errors.", NOT_IMPORTED)):
            return line.partition(": ")[2]
    missing = re.search(r"No module named '(steelyard|msgspec|numpy|pyarrow)'", text)
    if missing:
        return f"the executors have no {missing[1]}; see `steelyard pipeline archive --help`"
    return None


def _run_ledger(options: argparse.Namespace) -> int:
    spark = _session(settings_of(options))  # ends with the process
    tables = ledger_tables(spark, options.nameservers, options.out, topic=options.topic)
    tables.rebalances.orderBy("started_at").show(SHOWN_MAX, truncate=False)
    print(f"hand-offs: {tables.handoffs.count()}; tables in {options.out}")
    if options.report:
        from steelyard.spark.report import write_report

        held = read_ledger(spark, options.nameservers, topic=options.topic)
        print(f"report: {write_report(options.report, held=held, costs=tables.collect())}")
    return 0


def _run_archive(options: argparse.Namespace) -> int:
    from steelyard.spark.archive import write_archive

    size = write_archive(options.out, added=options.added, left_out=options.left_out)
    print(f"{options.out}: {size / 1e6:.1f} MB")
    return 0
