"""The benchmark of members that join one after the other runs, in miniature."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tiny_grid() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "storms.py"), "--tiny"],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tables = done.stdout.split("\n\n")
    each, together = [line.split(" | ") for line in tables[0].splitlines()[2:]]
    assert each[:3] == ["| 8, 8, 20 ms", "0 ms", "8"]
    assert together[:3] == ["| 8, 8, 20 ms", "1000 ms", "2"]
    each, together = [line.split(" | ") for line in tables[1].splitlines()[2:]]
    assert each[:3] == ["| 8, 20 ms", "0 ms", "8"]
    assert together[:3] == ["| 8, 20 ms", "1000 ms", "2"]
