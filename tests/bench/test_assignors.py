"""The assignor benchmark runs, in miniature, and leaves other sections of its file alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tiny_grid(tmp_path: Path) -> None:
    report = tmp_path / "ASSIGNORS.md"
    report.write_text("# Assignors\n\n## Client-side assignors\n\nold\n\n## Others\n\nkept\n")
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "bench" / "assignors.py"), "--tiny"),
            *("--rounds", "1", "--out", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    assert text.startswith("# Assignors\n\n## Client-side assignors\n\nWritten by")
    assert text.endswith("\n\n## Others\n\nkept\n")
    assert "old" not in text
    (line,) = [
        line
        for line in text.splitlines()
        if line.startswith("| 3×4, 3 | equal | sticky | Steelyard |")
    ]
    assert line.endswith("| 4 | 3 | 0 |")
    assert "| 3×4, 3 | equal | sticky | kafka-python |" in text
