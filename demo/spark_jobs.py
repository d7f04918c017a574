"""The Spark part: the ledger's tables, the delays per carrier, the charts and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.table import Table

from steelyard.spark.pipeline import carrier_delays, ledger_tables, read_ledger
from steelyard.spark.report import Totals, ownership_chart, write_report
from steelyard.spark.session import session


@dataclass(frozen=True)
class Outcome:
    """What the jobs found, ready to print."""

    chart: str
    rebalances: Table
    delays: Table
    report: Path


def run_jobs(
    nameserver: str,
    group: str,
    topic: str,
    out: Path,
    totals: Totals,
    say: Callable[[str], None],
) -> Outcome:
    """Everything that Spark does here. `say` is told what is being done."""
    spark = session()
    try:
        say("Spark turns the ledger into the tables handoffs and rebalances")
        costs = ledger_tables(spark, nameserver, out / "tables").collect()
        records = read_ledger(spark, nameserver)
        say(f"Spark computes the delay per carrier from the topic {topic}")
        delays = [row.asDict() for row in carrier_delays(spark, nameserver, topic).collect()]
    finally:
        spark.stop()
    report = write_report(
        out / "report.html",
        held=records,
        rebalances=costs.rebalances,
        handoffs=costs.handoffs,
        delays=delays,
        totals=totals,
        group=group,
    )
    mine = [msgspec.structs.asdict(row) for row in costs.rebalances if row.group == group]
    return Outcome(
        chart=ownership_chart(records, group),
        rebalances=_table(mine, REBALANCE_COLUMNS),
        delays=_table(delays, DELAY_COLUMNS),
        report=report,
    )


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%H:%M:%S}"


def _members(clients: Sequence[str]) -> str:
    """Their numbers are enough in a table."""
    return " ".join(client.rpartition("-")[2] for client in clients) or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


Column = tuple[str, Callable[..., str]]
"""Title, and how a value is shown."""

REBALANCE_COLUMNS: Mapping[str, Column] = {
    "started_at": ("at (UTC)", _time),
    "trigger": ("trigger", str),
    "members_before": ("members", _members),
    "members_after": ("then", _members),
    "queues_moved": ("moved", _number),
    "pause_p50_ms": ("pause p50 ms", _number),
    "pause_p99_ms": ("p99", _number),
    "pause_max_ms": ("max", _number),
    "duplicates": ("duplicates", _number),
    "spike": ("spike", _number),
    "drain_ms": ("drain ms", _number),
}

DELAY_COLUMNS: Mapping[str, Column] = {
    "carrier": ("carrier", str),
    "flights": ("flights", _number),
    "dep_delay_mean": ("departure mean", _number),
    "dep_delay_p50": ("p50", _number),
    "dep_delay_p95": ("p95", _number),
    "arr_delay_mean": ("arrival mean", _number),
    "arr_delay_p50": ("p50", _number),
    "arr_delay_p95": ("p95", _number),
}


def _table(rows: Iterable[Mapping[str, object]], columns: Mapping[str, Column]) -> Table:
    """A table for the terminal, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    for title, show in columns.values():
        table.add_column(title, justify="right" if show is _number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(show(row[name]) for name, (_, show) in columns.items()))
    return table
