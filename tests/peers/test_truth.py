"""What the ledger tells of groups with members of other makes, and of deaths and stops, beside the logs of their listeners.

`tests/bench/test_truth.py` has the scenarios with Steelyard's members that join and leave. Times are compared by `./dev bench truth`
alone: on a busy machine a listener gets its messages late.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bench.test_truth import figures

pytestmark = pytest.mark.peer

TIMELESS = ("queues moved", "reprocessed")


@pytest.mark.parametrize(
    ("case", "moves"),
    [
        ("Java", 3),
        ("range", 3),
        ("cooperative", 3),
        ("KIP-848", 3),
        ("SIGKILL of a member", 1),
        ("stop and return of a broker", 0),
    ],
)
@pytest.mark.usefixtures("maven")
def test_ledger_and_listeners_agree(case: str, moves: int, tmp_path: Path) -> None:
    """`moves`: in how many stages at least queues move."""
    rows = figures(tmp_path, case)
    wrong = [row for row in rows if row[1] in TIMELESS and row[-1] != "yes"]
    assert wrong == []
    moved = [row for row in rows if row[1] == "queues moved" and row[2] != "0"]
    assert len(moved) >= moves
