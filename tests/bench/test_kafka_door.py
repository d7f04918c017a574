"""The benches of the Kafka listener run, in miniature, and fill every cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "report", "rows"),
    [
        ("run.py", "KAFKA.md", ("end to end", "start to first", "memory idle")),
        ("tls.py", "KAFKA_TLS.md", ("end to end at 1,000/s, 100 B: p99", "steelyard, TLS")),
    ],
)
def test_tiny_grid(tmp_path: Path, program: str, report: str, rows: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, f"bench/kafka_door/{program}", "--tiny", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / report).read_text()
    for row in ("produce, 100 B", "consume, 1024 B", *rows):
        assert row in table
