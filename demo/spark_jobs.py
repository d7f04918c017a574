"""The Spark part: the ledger's tables, the delays per carrier, the charts and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.table import Table

from demo.delays import carrier_delays, delay_section
from demo.story import CLIENT_HOST
from steelyard.ledger.tables import Rebalance
from steelyard.spark.pipeline import ledger_tables, read_ledger
from steelyard.spark.report import Totals, ownership_chart, reprocessed, write_report
from steelyard.spark.session import session
from steelyard.spark.tables import headed, is_numeric, shown


@dataclass(frozen=True)
class Outcome:
    """What the jobs found, ready to print."""

    chart: str
    rebalances: Table
    delays: Table
    report: Path
    reprocessed: tuple[int, int]
    """Messages, at least and at most."""


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
        costs=costs,
        totals=totals,
        sections=[delay_section(delays)],
        group=group,
    )
    paid = [
        msgspec.structs.replace(row, reason=row.reason.replace(CLIENT_HOST, ""))
        for row in costs.rebalances
        if row.group == group
    ]
    mine = [msgspec.structs.asdict(row) for row in paid]
    return Outcome(
        chart=ownership_chart(records, group),
        rebalances=_table(mine, REBALANCE_COLUMNS),
        reprocessed=reprocessed(paid),
        delays=_table(delays, DELAY_COLUMNS),
        report=report,
    )


class Shown(NamedTuple):
    """A column of a table for the terminal."""

    title: str
    is_numeric: bool
    show: Callable[[Any], str]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


REBALANCE_COLUMNS = {
    name: Shown(column.heading, is_numeric(column), partial(shown, column))
    for name, column in headed(Rebalance).items()
    if name
    in (
        "started_at",
        "reason",
        "detect_ms",
        "rebalance_ms",
        "first_fetch_ms",
        "queues_moved",
        "queues_stalled",
        "pause_max_ms",
        "reprocessed_max",
        "drain_ms",
    )
}

DELAY_COLUMNS = {
    "carrier": Shown("carrier", False, str),
    "flights": Shown("flights", True, _number),
    "dep_delay_mean": Shown("departure mean", True, _number),
    "dep_delay_p50": Shown("p50", True, _number),
    "dep_delay_p95": Shown("p95", True, _number),
    "arr_delay_mean": Shown("arrival mean", True, _number),
    "arr_delay_p50": Shown("p50", True, _number),
    "arr_delay_p95": Shown("p95", True, _number),
}


def _table(rows: Iterable[Mapping[str, object]], columns: Mapping[str, Shown]) -> Table:
    """A table for the terminal, numbers to the right."""
    table = Table(box=None, pad_edge=False)
    for column in columns.values():
        table.add_column(
            column.title, justify="right" if column.is_numeric else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(column.show(row[name]) for name, column in columns.items()))
    return table
