"""The benches of Spark run, in miniature, and fill every cell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_sources(tmp_path: Path) -> None:
    run("bench/spark_sources.py", "--tiny", "--out", str(tmp_path))
    lines = (tmp_path / "SPARK.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "100 B |" in line]
    assert [row[:2] for row in rows] == [
        [f"{born}, 100 B", source]
        for born in ("RocketMQ", "Kafka")
        for source in ("rocketmq", "rocketmq, same columns")
    ]
    assert all(float(row[4]) > 0 for row in rows)


def test_latency() -> None:
    printed = run("bench/spark_latency.py", "--rounds", "1", "--seconds", "12", "--warm-up", "5")
    (cells,) = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| 1 |")]
    messages, p50, p90, least = map(int, cells[1:5])
    assert messages
    assert 0 < least <= p50 <= p90


@pytest.mark.parametrize("to", ["parquet", "delta", "iceberg"])
def test_freshness(to: str, tmp_path: Path) -> None:
    """It fails itself unless every message is in the table once."""
    pytest.importorskip({"parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg"}[to])
    size = ("--rate", "1000", "--seconds", "10", "--warm-up", "1")
    more = ("--sink-options=--interval 1", "--schema", "raw" if to == "parquet" else "json")
    run("bench/freshness.py", "--to", to, *size, *more, "--out", str(tmp_path))
    lines = (tmp_path / "FRESHNESS.md").read_text().splitlines()
    fresh, costs = (
        [cell.strip() for cell in line.split("|")[2:-1]]
        for line in lines
        if line.startswith(f"| {to} |")
    )
    assert 900 < int(fresh[0].replace(",", "")) < 1_100
    own, same = (float(cell.split("/")[1]) for cell in fresh[1:3])
    assert abs(own - same) < 1, "the sink says what a reader sees"
    p50, p99, slowest = map(float, fresh[3:])
    assert 0 < p50 <= p99 <= slowest
    assert int(costs[0]) > 0
