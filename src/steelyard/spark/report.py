"""The report of a run as a self-contained HTML file: charts, tables and the check line.

    write_report("out/report.html", held=records, costs=costs(records))

The text chart for the terminal is `ownership_chart`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from steelyard.ledger.backlog import backlogs
from steelyard.ledger.columns import ColumnKind, columns
from steelyard.ledger.events import Record
from steelyard.ledger.tables import Costs, Handoff, Rebalance
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

__all__ = ["Section", "Totals", "new_figure", "ownership_chart", "write_report"]

COLOURS = (
    "#2f6db5",
    "#d1772b",
    "#3b9a5a",
    "#8a56ac",
    "#c2413b",
    "#2a9d9d",
    "#b58a1f",
    "#c65a9b",
    "#5d6d7e",
    "#7a8f2a",
)
MOMENTS_MAX = 1_500
"""Maximum points of a line; peaks are kept. More would only make the file larger."""
HANDOFFS_MAX = 1_000
"""Maximum rows of the table of hand-offs; the Parquet table has all."""


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
    """Write the report and return its path; creates the folder.

    `held`: the records of the ledger; `costs`: the tables computed from them; `totals`: the counts
    of the run's publisher and consumers; `sections`: additional charts. Shows one group, by default
    the busiest.
    """
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    records = list(held)
    group = busiest_group(records) if group is None else group
    spans = holdings(records, group)
    names = letters(spans)
    colours = {client: COLOURS[n % len(COLOURS)] for n, client in enumerate(names)}
    mine = [row for row in costs.rebalances if row.group == group]
    moved = sorted(
        (row for row in costs.handoffs if row.group == group), key=lambda row: -row.pause_ms
    )
    template = Environment(autoescape=True).from_string(
        Path(__file__).with_name("report.html.j2").read_text("utf-8")
    )
    page = template.render(
        title=title,
        group=group,
        began=clock(min((span.start for span in spans), default=0)),
        ended=clock(max((span.end for span in spans), default=0)),
        totals=totals,
        cards=_cards(mine, moved, names),
        names=names,
        colours=colours,
        rebalance_columns=_headings(Rebalance),
        rebalances=[_cells(row) for row in mine],
        handoff_columns=_headings(Handoff),
        handoffs=[_cells(row) for row in moved[:HANDOFFS_MAX]],
        held_plot=_html(_held_plot(spans, names, colours, mine)),
        backlog_plot=_html(_backlog_plot(records, group, mine)),
        sections=[(one.heading, one.note, _html(one.figure)) for one in sections],
        plotly_js=get_plotlyjs(),
    )
    out = Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, "utf-8")
    return out


# -- words and numbers -----------------------------------------------------------------------------


def _cards(
    rebalances: Sequence[Rebalance], handoffs: Sequence[Handoff], names: Mapping[str, str]
) -> list[tuple[str, str]]:
    longest = max((row.pause_ms for row in handoffs), default=0)
    return [
        ("members", f"{len(names):,}"),
        ("rebalances", f"{len(rebalances):,}"),
        ("queues moved", f"{len(handoffs):,}"),
        ("longest pause", shown(columns(Handoff)["pause_ms"], longest)),
        ("reprocessed", _between(*reprocessed(rebalances))),
    ]


def reprocessed(rebalances: Iterable[Rebalance]) -> tuple[int, int]:
    """Sum up how many messages were processed again, at least and at most."""
    rows = list(rebalances)
    return sum(row.reprocessed_min for row in rows), sum(row.reprocessed_max for row in rows)


def _between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _headings(table: type[msgspec.Struct]) -> list[tuple[str, str, bool]]:
    """Return heading, meaning, and whether the values are right-aligned."""
    return [
        (one.heading, one.meaning.replace("`", ""), is_numeric(one))
        for one in headed(table).values()
    ]


def _cells(row: msgspec.Struct) -> list[str | list[str]]:
    """Format a row of a table as texts; columns of members as lists of texts."""
    cells: list[str | list[str]] = []
    for name, column in headed(type(row)).items():
        value = getattr(row, name)
        match column.kind:
            case ColumnKind.CLIENT:
                cells.append([value])
            case ColumnKind.CLIENTS:
                cells.append([*value])
            case _:
                cells.append(shown(column, value))
    return cells


# -- charts ----------------------------------------------------------------------------------------


def _html(figure: plots.Figure) -> str:
    html: str = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False}
    )
    return html


def _moment(at: int) -> datetime:
    # Without a zone, because plotly writes zones out and the page says UTC.
    return datetime.fromtimestamp(at / 1000, UTC).replace(tzinfo=None)


def new_figure(height: int, **layout: object) -> plots.Figure:
    """Create an empty figure in the style of the report."""
    import plotly.graph_objects as plots

    margin = {"l": 10, "r": 10, "t": 30, "b": 10}
    figure = plots.Figure()
    figure.update_layout(template="plotly_white", height=height, margin=margin, **layout)
    return figure


def _mark_rebalances(figure: plots.Figure, rebalances: Sequence[Rebalance]) -> None:
    for row in rebalances:
        figure.add_vline(
            x=_moment(row.started_at), line_dash="dash", line_color="#9aa4b0", line_width=1
        )
        figure.add_annotation(
            x=_moment(row.started_at),
            y=1,
            yref="paper",
            yanchor="bottom",
            text=row.trigger,
            showarrow=False,
            font={"size": 10, "color": "#5b6675"},
        )


def _held_plot(
    spans: Sequence[DeliverySpan],
    names: Mapping[str, str],
    colours: Mapping[str, str],
    rebalances: Sequence[Rebalance],
) -> plots.Figure:
    queues = list(dict.fromkeys(span.queue for span in spans))
    figure = new_figure(90 + 24 * len(queues), barmode="overlay", legend_title_text="member")
    for client, letter in names.items():
        mine = [span for span in spans if span.client == client]
        figure.add_bar(
            orientation="h",
            name=letter,
            y=[span.queue for span in mine],
            base=[_moment(span.start) for span in mine],
            # A bar must be wide enough to be visible.
            x=[max(span.end - span.start, 1) for span in mine],
            marker_color=colours[client],
            customdata=[[client, clock(span.start), clock(span.end)] for span in mine],
            hovertemplate=(
                "%{y}<br>%{customdata[0]}<br>%{customdata[1]} to %{customdata[2]}<extra></extra>"
            ),
        )
    figure.update_xaxes(type="date")
    figure.update_yaxes(categoryorder="array", categoryarray=queues[::-1], type="category")
    _mark_rebalances(figure, rebalances)
    return figure


def _backlog_plot(
    records: Sequence[Record], group: str, rebalances: Sequence[Rebalance]
) -> plots.Figure:
    times, totals = backlogs(records, group)
    step = max(1, -(-len(times) // MOMENTS_MAX))
    figure = new_figure(300, showlegend=False)
    figure.add_scatter(
        x=[_moment(at) for at in times[::step]],
        y=[max(totals[n : n + step]) for n in range(0, len(totals), step)],
        line_shape="hv",
        fill="tozeroy",
        line_color=COLOURS[0],
        hovertemplate="%{x|%H:%M:%S}: %{y:,} messages<extra></extra>",
    )
    figure.update_yaxes(title_text="messages", rangemode="tozero")
    _mark_rebalances(figure, rebalances)
    return figure
