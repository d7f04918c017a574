"""The benchmark runs, in miniature, and fills every cell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tiny_grid(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "run.py"), "--tiny", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text())
    assert len(result["cells"]) == 8
    for name, cell in result["cells"].items():
        (figures,) = cell["steelyard"]
        assert figures["messages"] > 0, name
        assert figures["failures"] == 0, name
        assert figures["broker_cpu_us_per_message"] >= 0, name
    assert 0 < result["startup_s"]["steelyard"][0] < 30
    assert result["memory"]["steelyard"]["after load"]["resident_mib"] > 1
    assert {client["messages"] >= 640 for client in result["clients"].values()} == {True}
    table = (tmp_path / "README.md").read_text()
    assert all(name in table for name in result["cells"])
