"""`steelyard pipeline incident` on Apache Kafka: what was done to a group is what the command tells.

The command reads a copy of the broker's folder, with its log and without, and the running broker.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow.parquet as parquet
import pytest
from tests.incident.truth import Truth, compare
from tests.peers.kafka import builds
from tests.peers.kafka.incidents import (
    PACE_S,
    Incidents,
    everybody_waits,
    injected,
    modern,
    restarts,
    short_set,
)
from tests.peers.kafka.members import JAVA, Client

from steelyard.incident.tables import IncidentHandoff, IncidentRebalance
from steelyard.spark import pipeline

pytestmark = pytest.mark.peer

Row = TypeVar("Row", bound=msgspec.Struct)

INTERVAL_MS = int(PACE_S * 1000)
"""Members commit after each poll that got something."""


def incident(out: Path, *words: object) -> tuple[list[IncidentRebalance], list[IncidentHandoff]]:
    """Run the command; the rows of its tables."""
    assert pipeline.main(["incident", "--out", str(out), "-g", "incident", *map(str, words)]) == 0
    return _rows(out, "rebalances", IncidentRebalance), _rows(out, "handoffs", IncidentHandoff)


def _rows(out: Path, name: str, kind: type[Row]) -> list[Row]:
    rows = parquet.read_table(out / f"{name}.parquet").to_pylist()
    for row in rows:
        if "started_at" in row:
            row["started_at"] = round(row["started_at"].timestamp() * 1000)
    return [msgspec.convert(row, kind) for row in rows]


def find(folder: Path, version: str, client: Client, inject: Callable[[Incidents], None]) -> None:
    """Let that happen to a group, and compare what the command tells of it."""
    place = folder / "broker"
    with injected(place, version, client, inject) as (running, found):
        live = incident(folder / "live", "--kafka", running.bootstrap)
        shutil.copytree(place / "data", folder / "copy")
        logs = folder / "logs"
        logs.mkdir()
        shutil.copy(place / "server.out", logs)
    truth = [Truth(*one) for one in found.done]
    copied = incident(folder / "dump", "--dump", folder / "copy")
    told = incident(folder / "told", "--dump", folder / "copy", "--logs", logs)
    for rebalances, handoffs in (live, copied, told):
        has_log = rebalances is told[0]
        compare(rebalances, handoffs, truth, INTERVAL_MS, has_log=has_log)
    left = {row.confidence for row in told[0] if row.trigger.startswith("left (un")}
    assert left <= {"high"}


@pytest.mark.parametrize("version", [builds.SERVER, builds.OLD])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_eight_incidents(tmp_path: Path, version: str, protocol: str) -> None:
    find(tmp_path, version, JAVA if protocol == "classic" else modern(version), short_set)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_restarts(tmp_path: Path, protocol: str) -> None:
    client = JAVA if protocol == "classic" else modern(builds.SERVER)
    find(tmp_path, builds.SERVER, client, restarts)


def test_an_eager_assignor(tmp_path: Path) -> None:
    find(tmp_path, builds.SERVER, JAVA.using("range"), everybody_waits)
