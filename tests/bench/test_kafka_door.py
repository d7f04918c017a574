"""The bench of the Kafka listener runs, in miniature, and fills every cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tiny_grid(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "bench/kafka_door/run.py", "--tiny", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "KAFKA.md").read_text()
    for row in ("produce, 100 B", "consume, 1024 B", "end to end", "start to first", "memory idle"):
        assert row in table
