"""The rebalance benchmark runs, in miniature: one scenario, nothing lost, nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tiny_grid(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "rebalance.py"), "--tiny", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results").iterdir()
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["scenario"], row["client"], row["brokers"]) == (
        "scale-out 1→2→4",
        "steelyard",
        "steelyard",
    )
    assert [(stage["event"], stage["settled"], len(stage["moves"])) for stage in row["stages"]] == [
        ("start m1", True, 2),
        ("start m2 m3", True, 3),
    ]
    assert (row["lost"], row["duplicates"]) == (0, 0)
    assert row["deliveries"] >= row["messages"] > 0
    assert (
        "| scale-out 1→2→4 | steelyard | steelyard | 5 |" in (tmp_path / "REBALANCE.md").read_text()
    )
