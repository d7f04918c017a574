"""What `steelyard pipeline ledger` shows of its progress: on a terminal a line that is written anew, elsewhere a line from time to time."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.ledger.records import got, joined
from tests.spark.conftest import Peer

from steelyard.ledger import events as ledger
from steelyard.ledger.events import LEDGER_TOPIC, BrokerStarted, Record

pytestmark = [pytest.mark.spark_long, pytest.mark.timeout(600)]

RECORDS: list[Record] = [
    BrokerStarted(at=500, broker="a"),
    joined(1_000, "A", "A"),
    *(got(2_000 + number, "A", number, number + 1) for number in range(10)),
    joined(20_000, "B", "AB"),
    got(21_000, "B", 8, 20),
]
PROGRESS = "messages read"
LOGGED = re.compile(r"\d+ messages? read(, \d+ to go)?|reading; no micro-batch is done yet")
COLUMNS = 20
"""Fewer than a line of progress has."""
WIDE = os.environ | {"COLUMNS": "100"}
"""The tables are to be the same on the terminal and elsewhere."""
ESCAPE = re.compile(r"\x1b\[([?\d]*)([A-Za-z])")


class Terminal:
    """Rows of `COLUMNS` characters, as many as it takes. `seen`: what the last row was, one after the other."""

    def __init__(self) -> None:
        self.rows = [""]
        self.seen: list[str] = []
        self._column = 0
        self._wraps = True

    def feed(self, text: str) -> None:
        while text:
            match = ESCAPE.match(text)
            if match:
                self._obey(match[1] + match[2])
            else:
                self._write(text[0])
            text = text[match.end() if match else 1 :]
            self.seen.append(self.rows[-1])

    def _obey(self, sequence: str) -> None:
        if sequence == "K":
            self.rows[-1] = self.rows[-1][: self._column]
        else:
            assert sequence in ("?7l", "?7h")
            self._wraps = sequence == "?7h"

    def _write(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self.rows.append("")
        else:
            if self._column == COLUMNS and self._wraps:
                self._write("\n")
                self._column = 0
            self._column = min(self._column, COLUMNS - 1)
            row = self.rows[-1].ljust(self._column)
            self.rows[-1] = row[: self._column] + character + row[self._column + 1 :]
            self._column += 1


def run_on(terminal: Terminal, command: Sequence[str]) -> int:
    """Run a program on a pseudo-terminal; return its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=WIDE) as process, open(ours, "rb", 0) as output:  # fmt: skip
        os.close(theirs)
        try:
            while data := output.read(65_536):
                terminal.feed(decoder.decode(data))
        except OSError:  # EIO: the last process that had it has ended
            pass
    return process.returncode


def test_a_line_on_a_terminal_and_lines_elsewhere(peer: Peer, tmp_path: Path) -> None:
    peer.put(LEDGER_TOPIC, *(ledger.encode([record]) for record in RECORDS))
    command = [sys.executable, "-m", "steelyard", "pipeline", "ledger", "-n", peer.address]
    command += ["--messages-max", "3", "--out"]

    terminal = Terminal()
    out = str(tmp_path / "one")
    assert run_on(terminal, [*command, out]) == 0
    counts = {row.partition(" ")[0] for row in terminal.seen if PROGRESS in row}
    assert len(counts) > 1, "written anew"

    out = str(tmp_path / "two")
    done = subprocess.run([*command, out], capture_output=True, text=True, check=True, env=WIDE)
    assert PROGRESS not in done.stdout
    # How many there are depends on how long it takes.
    assert all(LOGGED.fullmatch(line) for line in done.stderr.splitlines()), done.stderr

    shown = Terminal()
    shown.feed(done.stdout.replace(out, str(tmp_path / "one")).replace("\n", "\r\n"))
    assert terminal.rows == shown.rows, "nothing of the line is left"
