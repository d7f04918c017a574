"""The report of a run as an HTML page: charts, tables and the check line.

    write_report("out/report.html", held=records, costs=costs(records))

The page needs no network: the library of the charts is written beside it. The text chart for the
terminal is `ownership_chart`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from steelyard.ledger.columns import Column, ColumnKind, columns
from steelyard.ledger.events import RebalanceEnded, Record
from steelyard.ledger.measures import percentile
from steelyard.ledger.tables import Costs, Handoff, Rebalance
from steelyard.spark import charts
from steelyard.spark.charts import AnyRebalance
from steelyard.spark.ownership import (
    DeliverySpan,
    busiest_group,
    clock,
    holdings,
    letters,
    ownership_chart,
)
from steelyard.spark.tables import headed, is_numeric, shown

if TYPE_CHECKING:
    import plotly.graph_objects as plots

__all__ = ["Section", "Totals", "ownership_chart", "write_report"]

PLOTLY = "plotly.min.js"
"""The library of the charts, beside the page."""
REBALANCES_MAX = 300
"""Maximum rebalances in charts and in their table, the latest ones; the Parquet table has all."""
HANDOFFS_MAX = 300
"""Maximum rows of the table of hand-offs, the longest pauses; the Parquet table has all."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a run, counted by its publisher and its consumers.

    `sent_again` are messages with the content of another one, because the publisher did not know
    whether a broker had stored it; `reprocessed` counts how often a consumer was given a message
    that one of them had been given before.
    """

    published: int
    consumed: int
    lost: int
    sent_again: int
    reprocessed: int

    def line(self) -> str:
        return (
            f"published {self.published:,}, consumed {self.consumed:,} distinct,"
            f" lost {self.lost:,}, sent again {self.sent_again:,}, reprocessed {self.reprocessed:,}"
        )


class Section(NamedTuple):
    """An additional chart of the report."""

    heading: str
    note: str
    figure: plots.Figure


def write_report(
    path: str | Path,
    *,
    held: Iterable[Record],
    costs: Costs,
    totals: Totals | None = None,
    sections: Sequence[Section] = (),
    group: str | None = None,
    title: str = "Steelyard: what the rebalances cost",
) -> Path:
    """Write the report and return its path; creates the folder, and `plotly.min.js` in it.

    `held`: the records of the ledger; `costs`: the tables computed from them; `totals`: the counts
    of the run's publisher and consumers; `sections`: additional charts. Shows one group, by default
    the busiest.
    """
    records = list(held)
    group = busiest_group(records) if group is None else group
    mine = [row for row in costs.rebalances if row.group == group]
    moved = sorted(
        (row for row in costs.handoffs if row.group == group), key=lambda row: -row.pause_ms
    )
    longest = max((row.pause_ms for row in moved), default=0)
    cards = [
        ("rebalances", f"{len(mine):,}"),
        ("queues moved", f"{sum(row.queues_moved for row in mine):,}"),
        ("queues stalled", f"{sum(row.queues_stalled for row in mine):,}"),
        ("longest pause", shown(columns(Handoff)["pause_ms"], longest)),
        ("reprocessed", _between(*reprocessed(mine))),
    ]
    latest = mine[-REBALANCES_MAX:]
    return write_page(
        path,
        Page(title, group, holdings(records, group), latest, Rebalance, moved, Handoff, cards),
        held_note="A bar is a member that received the messages of a queue; a gap is a time when"
        " nobody did. Dashed lines are rebalances, with their numbers in the table below.",
        totals=totals,
        over_time=_over_time(records, group, latest),
        by_rebalance=_by_rebalance(latest),
        causes=causes(mine, moved, records),
        sections=sections,
    )


def _over_time(
    records: Sequence[Record], group: str, rebalances: Sequence[Rebalance]
) -> list[Section]:
    return [
        Section(
            "Backlog of the group",
            "Messages that were not delivered yet, in all queues together, and the trend of that.",
            charts.backlog(records, group, rebalances),
        ),
        Section(
            "Latency",
            "How long messages waited in their queues until they were delivered: percentiles over"
            " the first messages of all deliveries.",
            charts.latency(records, group, rebalances),
        ),
    ]


def _by_rebalance(rebalances: Sequence[Rebalance]) -> list[Section]:
    return [
        Section(
            "Pauses",
            "How long the queues of each rebalance stood still while messages waited.",
            charts.pauses(rebalances),
        ),
        Section(
            "Duplicates",
            "Messages that were delivered again after each rebalance, and those of them that an"
            " application saw twice.",
            charts.repeats(rebalances),
        ),
    ]


class Page(NamedTuple):
    """What every report has: a group, who held which queue when, and two tables with their types.

    `cards`: names and values of the figures at its head.
    """

    title: str
    group: str
    spans: Sequence[DeliverySpan]
    rebalances: Sequence[AnyRebalance]
    rebalance_table: type[msgspec.Struct]
    handoffs: Sequence[msgspec.Struct]
    handoff_table: type[msgspec.Struct]
    cards: Sequence[tuple[str, str]]


def write_page(
    path: str | Path,
    page: Page,
    *,
    held_note: str,
    totals: Totals | None = None,
    over_time: Sequence[Section] = (),
    by_rebalance: Sequence[Section] = (),
    causes: Sequence[CauseTotals] = (),
    sections: Sequence[Section] = (),
) -> Path:
    """Write a report and return its path; creates the folder, and `plotly.min.js` in it.

    `held_note`: what the bars mean; `over_time`, `by_rebalance` and `sections`: further charts,
    before the tables, side by side, and after the tables.
    """
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    names = letters(page.spans)
    colours = {client: charts.COLOURS[n % len(charts.COLOURS)] for n, client in enumerate(names)}
    latest = page.rebalances[-REBALANCES_MAX:]
    template = Environment(autoescape=True).from_string(
        Path(__file__).with_name("report.html.j2").read_text("utf-8")
    )
    owners = Section(
        "Who held which queue when", held_note, charts.owners(page.spans, names, colours, latest)
    )
    text = template.render(
        title=page.title,
        group=page.group,
        began=clock(min((span.start for span in page.spans), default=0)),
        ended=clock(max((span.end for span in page.spans), default=0)),
        totals=totals,
        cards=[("members", f"{len(names):,}"), *page.cards],
        names=names,
        colours=colours,
        rebalance_columns=_headings(page.rebalance_table),
        rebalances=[_cells(row) for row in latest],
        handoff_columns=_headings(page.handoff_table),
        handoffs=[_cells(row) for row in page.handoffs[:HANDOFFS_MAX]],
        handoffs_count=len(page.handoffs),
        causes=causes,
        over_time=[owners, *over_time],
        by_rebalance=by_rebalance,
        sections=sections,
        to_html=charts.to_html,
        plotly=PLOTLY,
    )
    out = Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")
    out.with_name(PLOTLY).write_text(get_plotlyjs(), "utf-8")
    return out


# -- words and numbers -----------------------------------------------------------------------------


def reprocessed(rebalances: Iterable[Rebalance]) -> tuple[int, int]:
    """Sum up how many messages were processed again, at least and at most."""
    rows = list(rebalances)
    return sum(row.reprocessed_min for row in rows), sum(row.reprocessed_max for row in rows)


def _between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _headings(table: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    """Return heading, meaning and style class of each column that is shown."""
    return [
        (one.heading, one.meaning.replace("`", ""), _style(one)) for one in headed(table).values()
    ]


def _style(column: Column) -> str:
    if is_numeric(column):
        return "n"
    return "words" if column.kind is ColumnKind.TEXT else ""


def _cells(row: msgspec.Struct) -> list[str | list[str]]:
    """Format a row of a table as texts; columns of members as lists of texts."""
    cells: list[str | list[str]] = []
    for name, column in headed(type(row)).items():
        value = getattr(row, name)
        match column.kind:
            case ColumnKind.CLIENT:
                cells.append([value] if value else [])
            case ColumnKind.CLIENTS:
                cells.append([*value])
            case _:
                cells.append(shown(column, value))
    return cells


# -- by trigger and strategy -----------------------------------------------------------------------


class CauseTotals(NamedTuple):
    """The rebalances with one trigger and strategy. Pauses are of queues, in ms."""

    trigger: str
    strategy: str
    """The assignor of a Kafka group; "" of a RocketMQ group, whose brokers do not know it."""
    rebalances: int
    queues: int
    pause_p50_ms: int
    pause_p90_ms: int
    pause_p99_ms: int
    pause_max_ms: int
    reprocessed: str


def causes(
    rebalances: Sequence[Rebalance], handoffs: Iterable[Handoff], records: Iterable[Record]
) -> list[CauseTotals]:
    """Sum up a group's rebalances by trigger and strategy, the most frequent first."""
    starts = [row.started_at for row in rebalances]
    strategies = dict.fromkeys(range(len(rebalances)), "")
    groups = {row.group for row in rebalances}
    for one in records:
        if isinstance(one, RebalanceEnded) and one.group in groups and one.protocol:
            strategies[bisect_right(starts, one.at) - 1] = one.protocol
    pauses: dict[str, list[int]] = {}
    for row in handoffs:
        pauses.setdefault(row.rebalance, []).append(row.pause_ms)
    found: dict[tuple[str, str], list[Rebalance]] = {}
    for number, rebalance in enumerate(rebalances):
        found.setdefault((rebalance.trigger, strategies[number]), []).append(rebalance)
    return [
        _cause(*key, rows, [pause for row in rows for pause in pauses.get(row.rebalance, ())])
        for key, rows in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _cause(
    trigger: str, strategy: str, rows: Sequence[Rebalance], pauses: Sequence[int]
) -> CauseTotals:
    p50, p90, p99, longest = (percentile(pauses, share) for share in (0.5, 0.9, 0.99, 1))
    repeats = _between(*reprocessed(rows))
    return CauseTotals(trigger, strategy, len(rows), len(pauses), p50, p90, p99, longest, repeats)
