"""`steelyard pipeline incident --logs` on Apache RocketMQ: what was done to a group is what the logs tell."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.incident.truth import compare
from tests.peers.apache import Missing
from tests.peers.rocketmq_incidents import GROUP, injected, six_incidents

from steelyard.incident.remoting.costs import PERSIST_MS
from steelyard.spark.incidents.sources import read_rocketmq_logs
from steelyard.spark.incidents.tables import rocketmq_tables

pytestmark = pytest.mark.peer


def test_six_incidents(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    try:
        with injected(tmp_path / "run", six_incidents) as found:
            found.copy_logs(logs)
    except Missing as reason:
        pytest.skip(f"no foreign peers: {reason}")
    made = rocketmq_tables(read_rocketmq_logs(logs), GROUP, None, None)
    rows = [
        msgspec.structs.replace(
            row,
            members_before=tuple(name.rpartition("@")[2] for name in row.members_before),
            members_after=tuple(name.rpartition("@")[2] for name in row.members_after),
        )
        for row in made.rebalances
    ]
    compare(rows, made.handoffs, found.done, PERSIST_MS)
