"""The Spark part: the ledger's tables, the delays per carrier, the charts and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.table import Table

from demo.delays import carrier_delays, delay_section, flights_of
from demo.member import CLIENT_HOST
from steelyard.ledger.events import Record
from steelyard.ledger.tables import Costs, Rebalance
from steelyard.spark.pipeline import follow_ledger, ledger_tables, read_ledger
from steelyard.spark.report import Section, Totals, ownership_chart, reprocessed, write_report
from steelyard.spark.session import session
from steelyard.spark.tables import headed, is_numeric, shown
from steelyard.spark.waiting import end_between_batches

FLIGHTS_EVERY = "2 seconds"
LEDGER_EVERY_S = 5
"""How often micro-batches begin."""
LEDGER_DELAY_MS = 60_000
"""How late records of the ledger may be: a broker that is away for a while brings its own then."""


@dataclass(frozen=True)
class Outcome:
    """What the jobs found, ready to print."""

    chart: str
    rebalances: Table
    delays: Table
    report: Path
    reprocessed: tuple[int, int]
    """Messages, at least and at most."""


class Streams:
    """Two queries that run while flights are published: to a table of them, and of the ledger."""

    def __init__(self, nameserver: str, topic: str, out: Path) -> None:
        self._nameserver = nameserver
        self._out = out
        self._rows: dict[int, int] = {}
        self._spark = session()
        reader = self._spark.readStream.format("rocketmq").option("nameservers", nameserver)
        reader = reader.option("topic", topic).option("startingOffsets", "earliest")
        flights = flights_of(reader.option("columns", "body,properties").load())
        writer = flights.writeStream.format("parquet").trigger(processingTime=FLIGHTS_EVERY)
        writer = writer.option("checkpointLocation", str(out / "flights_checkpoint"))
        self._flights = writer.start(str(out / "flights"))
        self._ledger = follow_ledger(
            self._spark,
            nameserver,
            out / "tables",
            delay_ms=LEDGER_DELAY_MS,
            interval_s=LEDGER_EVERY_S,
        )

    @property
    def rows(self) -> int:
        """Messages in the table of flights so far. Raises what ended a query."""
        for query in (self._flights, self._ledger):
            failed = query.exception()
            if failed is not None:
                raise failed
        for batch in self._flights.recentProgress:
            self._rows[batch["batchId"]] = batch["numInputRows"]
        return sum(self._rows.values())

    def finish(self, say: Callable[[str], None]) -> Computed:
        """Wait until everything is in the tables, end the queries, and read the tables."""
        say("Spark brings the tables up to date")
        self._flights.processAllAvailable()
        for query in (self._flights, self._ledger):
            end_between_batches(query)
        costs = ledger_tables(
            self._spark, self._nameserver, self._out / "tables", delay_ms=LEDGER_DELAY_MS
        ).collect()
        say("Spark computes the delay per carrier")
        flights = self._spark.read.parquet(str(self._out / "flights"))
        return Computed(
            costs=costs,
            records=read_ledger(self._spark, self._nameserver),
            delays=[row.asDict() for row in carrier_delays(flights).collect()],
            messages=flights.count(),
            flights=flights.select("flight_row").distinct().count(),
        )

    def close(self) -> None:
        """End the session."""
        self._spark.stop()


@dataclass(frozen=True)
class Computed:
    """What the tables say. `messages` are in the topic; `flights` are the different ones."""

    costs: Costs
    records: list[Record]
    delays: list[dict[str, Any]]
    messages: int
    flights: int


def outcome_of(
    computed: Computed, group: str, out: Path, totals: Totals, sections: Sequence[Section]
) -> Outcome:
    """Write the report, with these charts as well; return what is printed."""
    costs, records, delays = computed.costs, computed.records, computed.delays
    report = write_report(
        out / "report.html",
        held=records,
        costs=costs,
        totals=totals,
        sections=[*sections, delay_section(delays)],
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
