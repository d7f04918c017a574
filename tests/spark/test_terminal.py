"""The line of progress: for terminals, and for nothing else."""

from __future__ import annotations

import io

import pytest

from steelyard.spark import terminal
from steelyard.spark.terminal import CLEAR, CUT, WRAP, ProgressLine


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_line_that_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    line = ProgressLine(screen)
    line.show("1 of 3")
    line.show("2 of 3")  # too soon
    monkeypatch.setattr(terminal, "INTERVAL_S", 0)
    line = ProgressLine(screen)
    line.show("2 of 3")
    line.show("3 of 3")
    line.clear()
    line.clear()
    shown = "".join(f"{CLEAR}{CUT}{text}{WRAP}" for text in ("1 of 3", "2 of 3", "3 of 3"))
    assert screen.getvalue() == shown + CLEAR


def test_a_file_gets_nothing() -> None:
    file = io.StringIO()
    line = ProgressLine(file)
    line.show("1 of 3")
    line.clear()
    assert file.getvalue() == ""
