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


def test_a_file_gets_a_line_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(terminal, "LOG_INTERVAL_S", 10)
    line = ProgressLine(file)
    line.show("1 of 3")  # too soon
    assert not line.is_due
    assert file.getvalue() == ""
    monkeypatch.setattr(terminal, "LOG_INTERVAL_S", 0)
    line = ProgressLine(file)
    for text in ("1 of 3", "1 of 3", "2 of 3"):
        assert line.is_due
        line.show(text)
    line.clear()
    assert file.getvalue() == "1 of 3\n2 of 3\n"


def test_what_is_the_same_is_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LOG_INTERVAL_S", 0)
    line = ProgressLine(io.StringIO())
    line.show("1 of 3")
    monkeypatch.setattr(terminal, "LOG_INTERVAL_S", 10)
    line.show("1 of 3")
    assert not line.is_due
