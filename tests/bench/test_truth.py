"""The comparison of the ledger with what listeners logged, in miniature: members join and leave, and nothing is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tiny_case(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "truth.py"), "--tiny", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--case", "clean"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "TRUTH.md").read_text()
    rows = [line.split("|")[3:-1] for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in row] for row in rows]
    moved = [row[1:] for row in cells if row[0] == "queues moved"]
    assert moved == [["2", "2", "yes"], ["1", "1", "yes"], ["1", "1", "yes"]] * 2
    again = [row[1:] for row in cells if row[0] == "reprocessed"]
    assert [row[2] for row in again] == ["yes"] * 6
    assert again[:3] == [["0", "0", "yes"]] * 3  # members that hand over cleanly
