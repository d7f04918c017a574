"""Every Python example of docs/TESTING.md, run as its readers run it; what it prints must be the block that follows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.embedded.guide import Example, examples
from tests.embedded.test_plugin import PLUGIN
from tests.waiting import PATIENCE_S

EXAMPLES = examples("python")


def test_the_examples_are_found() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"line {example.line}")
def test_example(example: Example, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(example.code)
    command = [sys.executable, "test_example.py"]
    if "unittest" in example.code:
        command = [sys.executable, "-m", "unittest", "test_example"]
    elif "def test_" in example.code:
        command = [sys.executable, "-m", "pytest", *PLUGIN, "-c", os.devnull, "test_example.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if example.output is not None:
        assert done.stdout == example.output
