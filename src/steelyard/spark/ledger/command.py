"""`steelyard pipeline ledger`."""

from __future__ import annotations

import argparse
import threading
from typing import Any

from steelyard.arguments import seconds, whole_number
from steelyard.errors import ConfigError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.ledger.stream import DELAY_MS
from steelyard.ledger.tables import Rebalance
from steelyard.spark.ledger.job import (
    MESSAGES_MAX,
    SINKS,
    LedgerTables,
    follow_ledger,
    read_ledger,
    tables_in,
)
from steelyard.spark.options.reading import read_options
from steelyard.spark.printing import known_groups, printed_rebalances, terminal_width
from steelyard.spark.reading.planning import check_names
from steelyard.spark.session import MakeSession
from steelyard.spark.tables import collected
from steelyard.spark.terminal import ProgressLine
from steelyard.spark.waiting import noting_signals, wait_for
from steelyard.wording import counted

COUNT_MAX = 1_000_000
SHOWN_MAX = 1_000
"""Maximum rebalances that are printed, the latest ones."""

SHOWN = (
    "started_at",
    "queues_moved",
    "queues_stalled",
    "pause_max_ms",
    "reprocessed_max",
    "drain_ms",
    "reason",
)
"""Columns of the rebalances that are printed."""


def add_ledger(jobs: Any, session: MakeSession) -> argparse.ArgumentParser:
    """Add the parser of `steelyard pipeline ledger`."""
    parser: argparse.ArgumentParser = jobs.add_parser(
        "ledger", help="what each rebalance cost, as Parquet"
    )
    parser.set_defaults(run=lambda options: _run(options, session))
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="folder for the tables; on a cluster one that all executors reach, e.g. hdfs://…",
    )
    parser.add_argument("-n", "--nameservers", required=True, help="host:port, separated by ;")
    parser.add_argument(
        "-t", "--topic", default=LEDGER_TOPIC, help="topic of the ledger; default: %(default)s"
    )
    parser.add_argument(
        "-g",
        "--group",
        help="print one group, and report on it; default: print all, report on the busiest",
    )
    parser.add_argument(
        "--format",
        choices=[*SINKS],
        default="parquet",
        dest="table_format",
        help="of tables; delta and iceberg need the extras of these names; default: %(default)s",
    )
    parser.add_argument(
        "--follow", action="store_true", help="go on until interrupted; default: up to now"
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=10,
        metavar="SECONDS",
        help="with --follow, between two micro-batches; default: %(default)s",
    )
    parser.add_argument(
        "--delay",
        type=seconds,
        default=DELAY_MS // 1000,
        metavar="SECONDS",
        help="how late records may be; default: %(default)s",
    )
    parser.add_argument(
        "--messages-max",
        type=whole_number(1, COUNT_MAX),
        default=MESSAGES_MAX,
        metavar="N",
        help="messages of the ledger in a micro-batch; default: %(default)s",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="also write an HTML report with charts of --group, or of the busiest one",
    )
    return parser


def _run(options: argparse.Namespace, session: MakeSession) -> int:
    source = {"nameservers": options.nameservers, "topic": options.topic}
    check_names(read_options(source, "stream"))  # before Spark, which takes seconds, is started
    spark = session(options)  # ends with the process
    query = follow_ledger(
        spark,
        options.nameservers,
        options.out,
        topic=options.topic,
        delay_ms=round(options.delay * 1000),
        messages_max=options.messages_max,
        table_format=options.table_format,
        interval_s=options.interval if options.follow else None,
    )
    line, ended = ProgressLine(), threading.Event()
    with noting_signals(ended):
        wait_for(query, line, ended)
    tables = tables_in(spark, options.out, table_format=options.table_format)
    _print(tables, options.group, options.out)
    if options.report:
        from steelyard.spark.report import write_report

        line.show("reading the records of the ledger for the report")
        held = read_ledger(spark, options.nameservers, topic=options.topic)
        path = write_report(options.report, held=held, costs=tables.collect(), group=options.group)
        line.clear()
        print(f"report: {path}")
    return 0


def _print(tables: LedgerTables, group: str | None, out: str) -> None:
    """Print the rebalances of one group, or of all. Raises ConfigError for an unknown group."""
    paid, moved = tables.rebalances, tables.handoffs
    if group is not None:
        events = tables.events
        known = {
            row.group
            for row in paid.select("group").union(events.select("group")).distinct().collect()
        } - {""}
        if group not in known:
            raise ConfigError(f"no group {group!r} in the ledger; {known_groups(known)}")
        paid, moved = paid.where(paid.group == group), moved.where(moved.group == group)
    latest = collected(paid.orderBy(paid.started_at.desc()).limit(SHOWN_MAX + 1), Rebalance)
    rows = latest[:SHOWN_MAX][::-1]
    print(printed_rebalances(rows, SHOWN, terminal_width()) or "no rebalances")
    if len(latest) > SHOWN_MAX:
        print(f"\nonly the latest {counted(SHOWN_MAX, 'rebalance')}; the tables have all")
    print(f"\nhand-offs: {moved.count():,}; tables in {out}")
