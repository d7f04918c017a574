"""The tables of incidents as Parquet files, as an HTML report, and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from steelyard.errors import ConfigError
from steelyard.incident.tables import IncidentHandoff, IncidentLag, IncidentRebalance
from steelyard.ledger.columns import columns
from steelyard.spark.incidents.tables import TABLES, Tables
from steelyard.spark.ownership import DeliverySpan
from steelyard.spark.printing import printed, text_table
from steelyard.spark.tables import headed, is_numeric, shown

SHOWN = (
    "started_at",
    "queues_moved",
    "queues_stalled",
    "pause_max_ms",
    "pause_error_ms",
    "confidence",
    "reason",
)
"""Columns of the rebalances that are printed."""


def write_tables(made: Tables, out: Path) -> None:
    """Write the tables as Parquet files to a folder. Raises ConfigError."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from steelyard.spark.tables import arrow_schema

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, kind in TABLES.items():
            rows = [msgspec.structs.asdict(row) for row in getattr(made, name)]
            table = pa.Table.from_pylist(rows, arrow_schema(kind))
            parquet.write_table(table, out / f"{name}.parquet")
    except OSError as error:
        raise ConfigError(f"the tables cannot be written to {out}: {error.strerror}") from error


def write_incident_report(path: Path, made: Tables, group: str | None) -> Path:
    """Write the HTML report of one group, by default of the one with the most rebalances."""
    from steelyard.spark.report import Page, write_page

    counts = Counter(row.group for row in made.rebalances)
    group = group or min(made.holdings, key=lambda name: (-counts[name], name), default="")
    spans = [
        DeliverySpan(
            f"{f'{one.topic} {one.broker}'.rstrip()}:{one.queue}", one.client, one.start, one.end
        )
        for one in made.holdings.get(group, [])
    ]
    rebalances = [row for row in made.rebalances if row.group == group]
    moved = [row for row in made.handoffs if row.group == group]
    moved.sort(key=lambda row: -(row.pause_ms or 0))
    pause = columns(IncidentHandoff)["pause_ms"]
    longest = shown(pause, moved[0].pause_ms if moved else None)
    if moved and moved[0].pause_error_ms is not None:
        longest += f" ± {shown(pause, moved[0].pause_error_ms)}"
    cards = [
        ("rebalances", f"{len(rebalances):,}"),
        ("queues moved", f"{sum(row.queues_moved for row in rebalances):,}"),
        ("longest pause", longest),
    ]
    if stalled := [row.queues_stalled for row in rebalances if row.queues_stalled is not None]:
        cards.insert(2, ("queues stalled", f"{sum(stalled):,}"))
    title = "Steelyard: what happened in a group"
    page = Page(title, group, spans, rebalances, IncidentRebalance, moved, IncidentHandoff, cards)
    note = "A bar is a member that had a queue. Dashed lines are rebalances."
    try:
        return write_page(path, page, held_note=note)
    except OSError as error:
        raise ConfigError(f"the report cannot be written to {path}: {error.strerror}") from error


def printed_lag(rows: Sequence[IncidentLag], width: int) -> str:
    """Return how far groups were behind, as a table."""
    names = [*headed(IncidentLag)]
    heads, texts = printed(rows, names)
    right = [is_numeric(column) for column in headed(IncidentLag).values()]
    return text_table(heads, texts, right, width)
