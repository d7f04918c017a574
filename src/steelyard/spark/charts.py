"""The charts of the report, as plotly figures that follow the page's width and colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from steelyard.incident.tables import IncidentRebalance
from steelyard.ledger.backlog import backlogs
from steelyard.ledger.events import Delivered, Record
from steelyard.ledger.measures import percentile
from steelyard.ledger.tables import Rebalance
from steelyard.spark.ownership import DeliverySpan, clock, deliveries_of

if TYPE_CHECKING:
    import plotly.graph_objects as plots

AnyRebalance = Rebalance | IncidentRebalance

COLOURS = (
    "#2f7fd1",
    "#e08a3c",
    "#3fa866",
    "#a06cc8",
    "#d9564e",
    "#2ea8a8",
    "#c09a2c",
    "#d26ba9",
    "#7d8fa3",
    "#8fa53a",
)
"""Distinct on a light and on a dark page."""

PALE = "#9db8d6"

MOMENTS_MAX = 1_000
"""Maximum points of a line; peaks are kept. More would only make the file larger."""

SPANS_MAX = 2_000
"""Maximum bars in the chart of owners, the latest ones."""

BARS_MAX = 200
"""A bar is at least one of so many parts of the time, so that one delivery is visible, too."""

LATENCY_POINTS = 200
"""Periods into which the time is divided for percentiles."""

MARK = {"dash": "dash", "color": "#9aa4b0", "width": 1}
MARKS_MAX = 200
"""Maximum rebalances that are marked in a chart, the latest ones."""

LABELS_MAX = 20
"""Maximum of their labels, so that they do not overlap."""

TREND_MS = 30_000
"""The trend of the backlog is its median over so long."""


def new_figure(height: int, **layout: object) -> plots.Figure:
    """Create an empty figure in the style of the report."""
    import plotly.graph_objects as plots

    figure = plots.Figure()
    figure.update_layout(
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=height,
        margin={"l": 10, "r": 24, "t": 26, "b": 70},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        hoverlabel={"bgcolor": "#1d2530", "font": {"color": "#ffffff"}},
        **layout,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True, fixedrange=True)
    return figure


def to_html(figure: plots.Figure) -> str:
    """Return the figure as a part of a page that has loaded plotly."""
    config = {"displayModeBar": False, "responsive": True}
    html: str = figure.to_html(full_html=False, include_plotlyjs=False, config=config)
    return html


# -- over time -------------------------------------------------------------------------------------


def owners(
    spans: Sequence[DeliverySpan],
    names: Mapping[str, str],
    colours: Mapping[str, str],
    rebalances: Sequence[AnyRebalance],
) -> plots.Figure:
    """Draw which member received the messages of which queue when."""
    queues = list(dict.fromkeys(span.queue for span in spans))
    latest = sorted(spans, key=lambda span: span.start)[-SPANS_MAX:]
    shown = max((s.end for s in latest), default=0) - min((s.start for s in latest), default=0)
    least = max(1, shown // BARS_MAX)
    figure = new_figure(120 + 24 * len(queues), barmode="overlay")
    for client, letter in names.items():
        mine = [span for span in latest if span.client == client]
        figure.add_bar(
            orientation="h",
            name=letter,
            y=[span.queue for span in mine],
            base=[_moment(span.start) for span in mine],
            x=[max(span.end - span.start, least) for span in mine],
            marker_color=colours[client],
            customdata=[[client, clock(span.start), clock(span.end)] for span in mine],
            hovertemplate=(
                "%{y}<br>%{customdata[0]}<br>%{customdata[1]} to %{customdata[2]}<extra></extra>"
            ),
        )
    figure.update_xaxes(type="date")
    figure.update_yaxes(categoryorder="array", categoryarray=queues[::-1], type="category")
    _mark(figure, rebalances)
    return figure


def backlog(records: Sequence[Record], group: str, rebalances: Sequence[Rebalance]) -> plots.Figure:
    """Draw what waited for the group, and the trend of it."""
    times, totals = backlogs(records, group).total()
    step = max(1, -(-len(times) // MOMENTS_MAX))
    shown = times[::step]
    figure = new_figure(320)
    figure.add_scatter(
        name="backlog",
        x=[_moment(at) for at in shown],
        y=[max(totals[n : n + step]) for n in range(0, len(totals), step)],
        line_shape="hv",
        fill="tozeroy",
        line_color=COLOURS[0],
        hovertemplate="%{x|%H:%M:%S}: %{y:,} messages<extra></extra>",
    )
    figure.add_scatter(
        name=f"trend (median of {TREND_MS // 1000} s)",
        x=[_moment(at) for at in shown],
        y=_trend(times, totals, shown),
        line_color=COLOURS[1],
        hovertemplate="%{x|%H:%M:%S}: %{y:,.0f} messages, trend<extra></extra>",
    )
    figure.update_yaxes(title_text="messages", rangemode="tozero")
    _mark(figure, rebalances)
    return figure


def _trend(times: Sequence[int], totals: Sequence[float], shown: Sequence[int]) -> list[float]:
    """Return the median of the totals in the TREND_MS up to each moment in `shown`."""
    trend = []
    first = last = 0
    for at in shown:
        while last < len(times) and times[last] <= at:
            last += 1
        while times[first] < at - TREND_MS:
            first += 1
        trend.append(median(totals[first:last]))
    return trend


def latency(records: Iterable[Record], group: str, rebalances: Sequence[Rebalance]) -> plots.Figure:
    """Draw percentiles of how long messages waited until they were delivered."""
    periods = latencies(deliveries_of(records, group))
    figure = new_figure(320)
    for name, share, colour in (
        ("p50", 0.5, COLOURS[2]),
        ("p99", 0.99, COLOURS[1]),
        ("longest", 1, COLOURS[4]),
    ):
        figure.add_scatter(
            name=name,
            x=[_moment(at) for at in periods],
            y=[percentile(waited, share) if waited else None for waited in periods.values()],
            mode="lines+markers",
            marker_size=4,
            line_color=colour,
            hovertemplate=f"%{{x|%H:%M:%S}}: {name} %{{y:,}} ms<extra></extra>",
        )
    figure.update_yaxes(title_text="ms", rangemode="tozero")
    _mark(figure, rebalances)
    return figure


def latencies(deliveries: Iterable[Delivered]) -> dict[int, list[int]]:
    """Return how long the first messages of deliveries had waited, in ms, by start of a period.

    The time from the first to the last delivery is divided into up to LATENCY_POINTS periods of at
    least a second; some may have no delivery.
    """
    waited = sorted((one.at, max(0, one.at - one.stored)) for one in deliveries)
    if not waited:
        return {}
    first, last = waited[0][0], waited[-1][0]
    period = max(1_000, -(-(last - first + 1) // LATENCY_POINTS))
    periods: dict[int, list[int]] = {at: [] for at in range(first, last + 1, period)}
    for at, waited_ms in waited:
        periods[at - (at - first) % period].append(waited_ms)
    return periods


# -- by rebalance ----------------------------------------------------------------------------------


def pauses(rebalances: Sequence[Rebalance]) -> plots.Figure:
    """Draw the longest pause of each rebalance, and the median of its queues."""
    figure = new_figure(320, barmode="overlay")
    _bars(figure, rebalances, "longest", [row.pause_max_ms for row in rebalances], PALE, "ms")
    _bars(figure, rebalances, "p50", [row.pause_p50_ms for row in rebalances], COLOURS[0], "ms")
    figure.update_yaxes(title_text="ms", rangemode="tozero")
    return figure


def repeats(rebalances: Sequence[Rebalance]) -> plots.Figure:
    """Draw what was delivered again after each rebalance, and what an application saw twice."""
    figure = new_figure(320, barmode="group")
    for name, counts, colour in (
        ("redelivered", [row.redelivered for row in rebalances], PALE),
        ("reprocessed, at most", [row.reprocessed_max for row in rebalances], COLOURS[1]),
        ("reprocessed, at least", [row.reprocessed_min for row in rebalances], COLOURS[4]),
    ):
        _bars(figure, rebalances, name, counts, colour, "messages")
    figure.update_yaxes(title_text="messages", rangemode="tozero")
    return figure


def _bars(
    figure: plots.Figure,
    rebalances: Sequence[Rebalance],
    name: str,
    values: Sequence[int],
    colour: str,
    unit: str,
) -> None:
    figure.add_bar(
        name=name,
        x=[f"#{number}" for number, _ in enumerate(rebalances, 1)],
        y=values,
        marker_color=colour,
        customdata=[row.reason for row in rebalances],
        hovertemplate=f"%{{x}} %{{customdata}}<br>{name}: %{{y:,}} {unit}<extra></extra>",
    )


def _mark(figure: plots.Figure, rebalances: Sequence[AnyRebalance]) -> None:
    """Mark where the latest rebalances began, with their numbers where there is room."""
    numbered = list(enumerate(rebalances, 1))[-MARKS_MAX:]
    starts = [row.started_at for _, row in numbered]
    room = (max(starts, default=0) - min(starts, default=0)) // LABELS_MAX
    lines, labels = [], []
    labelled = None
    for number, row in numbered:
        at = _moment(row.started_at)
        lines.append({"x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": MARK})
        if labelled is None or row.started_at - labelled >= room:
            labelled = row.started_at
            labels.append(
                {
                    "x": at,
                    "y": 1,
                    "yref": "paper",
                    "yanchor": "bottom",
                    "text": f"#{number}",
                    "hovertext": row.reason,
                    "showarrow": False,
                    "font": {"size": 11},
                }
            )
    figure.update_layout(shapes=lines, annotations=labels)


def _moment(at: int) -> datetime:
    # Without a zone, because plotly writes zones out and the page says UTC.
    return datetime.fromtimestamp(at / 1000, UTC).replace(tzinfo=None)
