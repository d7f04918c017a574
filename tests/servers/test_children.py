"""What a supervisor takes from the pipes of a server process."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest
from tests.waiting import until

from steelyard.servers import children
from steelyard.servers.children import LINE_MAX, Child, how_it_ended, report_line


def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> tuple[Child, list[bytes], int]:
    """A child that is this program instead of `steelyard`, until it has ended; the lines it passed on, its exit code."""
    script = tmp_path / "program"
    script.write_text(f"#!{sys.executable}\nimport os, sys\n{program}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    passed: list[bytes] = []
    child = Child("it", ["broker", "--data", "a folder"], passed.append)
    child.start()
    while (code := child.poll()) is None:
        for pipe in child.pipes:
            child.read(pipe)
        time.sleep(0.001)
    child.finish()
    return child, passed, code


def test_addresses_and_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = report_line(address="a:1", kafka="k:2")
    program = f"print({report!r}, flush=True)\nprint('one\\n\\ntwo\\n\\nthr', end='', file=sys.stderr)\nsys.exit(3)"
    child, passed, code = run(monkeypatch, tmp_path, program)
    assert (child.address, child.kafka, child.error) == ("a:1", "k:2", "")
    assert passed == [b"one\n", b"\n", b"two\n", b"\n", b"thr\n"]
    assert (child.last_words, code) == ("thr", 3)
    assert not child.is_running


def test_an_old_line_says_nothing_of_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(children, "LAST_WORDS_SECONDS", 0)
    child, _, _ = run(monkeypatch, tmp_path, "print('long ago', file=sys.stderr)")
    assert (child.last_line, child.last_words) == ("long ago", "")


def test_the_next_process_has_reported_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = report_line(address="a:1", kafka="k:2")
    child, _, _ = run(monkeypatch, tmp_path, f"print({report!r}, flush=True)")
    child.start()
    assert (child.address, child.kafka) == ("", "")
    child.kill()
    until(lambda: child.poll() is not None, "it has ended")
    child.finish()


def test_an_error_that_is_reported_is_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = report_line(error="the port is in use")
    child, _, code = run(monkeypatch, tmp_path, f"print({report!r})\nsys.stderr.write('x\\n')")
    assert (child.error, child.last_words, code) == (
        "the port is in use",
        "the port is in use",
        0,
    )


def test_what_is_no_report_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child, passed, _ = run(monkeypatch, tmp_path, "print('hello')\nprint('[1]')\nprint('{}')")
    assert passed == [b"hello\n", b"[1]\n", b"{}\n"]
    assert child.last_words == "{}"


def test_an_endless_line_comes_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child, passed, _ = run(monkeypatch, tmp_path, f"os.write(2, b'x' * {3 * LINE_MAX})")
    assert sum(len(line) - 1 for line in passed) == 3 * LINE_MAX
    assert max(map(len, passed)) <= 2 * LINE_MAX + 1
    assert len(child.last_words) == 500


def test_the_command_by_hand_is_quoted() -> None:
    child = Child("it", ["broker", "--data", "a folder", "--kafka-set=a=b;c"], lambda line: None)
    assert child.by_hand == "steelyard broker --data 'a folder' '--kafka-set=a=b;c'"
    assert shlex.split(child.by_hand)[1:] == child.arguments


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (2, "exit code 2"), (-9, "signal 9, SIGKILL"), (-99, "signal 99")],
)
def test_how_it_ended(code: int, text: str) -> None:
    assert how_it_ended(code) == text
