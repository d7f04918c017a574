"""The server processes of a supervisor, and the pipes to each.

A server reports over its standard output, in one line of JSON, its addresses or its error
(`report_line`). It stops when its standard input ends, so that none outlives the supervisor. The
supervisor forwards its standard error and remembers the last line.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from steelyard.driver.log_lines import message_in

LINE_MAX = 64 * 1024
"""Maximum bytes of a line of output; a longer one is forwarded in pieces."""

WORDS_MAX = 500
"""Characters quoted of a server's last line."""

LAST_WORDS_SECONDS = 5.0
"""An older line is taken to have nothing to do with the end of a server."""

READ_BYTES = 64 * 1024


def report_line(*, address: str = "", kafka: str = "", error: str = "") -> str:
    """Format a server process's report to its supervisor: its addresses, or its error."""
    return json.dumps({"address": address, "kafka": kafka, "error": error})


class Child:
    """One server across its processes. Call `start`, then `read` when `pipes` are ready."""

    def __init__(
        self, name: str, arguments: list[str], pass_on: Callable[[bytes], None], listener: int = -1
    ) -> None:
        """`arguments`: those of `steelyard`. `pass_on` gets whole lines of standard error.

        `listener`: descriptor of a listening socket for the process.
        """
        self.name = name
        self.arguments = arguments
        self._pass_on = pass_on
        self._listener = listener
        self._process: subprocess.Popen[bytes] | None = None
        self._reports = -1
        self._partial: dict[int, bytes] = {}
        """The unfinished line of each pipe."""
        self.address = ""
        """As its latest process has reported it; empty before."""
        self.kafka = ""
        self.error = ""
        """The error that it reported."""
        self.last_line = ""
        """The last line of its standard error; of a line of JSON, the message."""
        self._said_at = 0.0

    @property
    def by_hand(self) -> str:
        """The command that starts this server without the supervisor, quoted for a shell."""
        return shlex.join(["steelyard", *self.arguments])

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pipes(self) -> list[int]:
        """The descriptors to read from while it runs."""
        return list(self._partial)

    def start(self) -> None:
        """Start a process. Raises OSError."""
        self.address = self.kafka = self.error = self.last_line = ""
        command = [sys.executable, "-m", "steelyard", *self.arguments, "--supervised"]
        passed = []
        if self._listener >= 0:
            command += ["--listener", str(self._listener)]
            passed.append(self._listener)
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=passed,
            # a terminal's Ctrl-C is for the supervisor, which stops them in order
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._reports = process, process.stdout.fileno()
        self._partial = {self._reports: b"", process.stderr.fileno(): b""}
        for pipe in self._partial:
            os.set_blocking(pipe, False)

    def read(self, pipe: int) -> bool:
        """Read available output; return False at its end."""
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return True
        self._take(pipe, data)
        return bool(data)

    def _take(self, pipe: int, data: bytes) -> None:
        *lines, rest = (self._partial[pipe] + data).split(b"\n")
        if rest and (not data or len(rest) > LINE_MAX):
            lines.append(rest)
            rest = b""
        self._partial[pipe] = rest
        for line in lines:
            if pipe == self._reports:
                self._reported(line)
            else:
                self._said(line)

    def poll(self) -> int | None:
        """Return the exit code if the process has ended (call `finish` then).

        None while it runs.
        """
        return None if self._process is None else self._process.poll()

    def wait(self) -> int:
        """Wait until the process has ended; return its exit code. Call `finish` then."""
        assert self._process is not None
        return self._process.wait()

    def finish(self) -> None:
        """Read the remaining output of the ended process, and close the pipes."""
        process, self._process = self._process, None
        assert process is not None
        for pipe in self._partial:
            try:
                while data := os.read(pipe, READ_BYTES):
                    self._take(pipe, data)
            except BlockingIOError:
                pass  # another process that it started still holds the pipe
            self._take(pipe, b"")
        self._partial.clear()
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()

    def _reported(self, line: bytes) -> None:
        try:
            report = json.loads(line)
            address, kafka, error = report["address"], report["kafka"], report["error"]
        except (ValueError, KeyError, TypeError):
            self._said(line)  # printed by a library
            return
        if error:
            self.error = error
        else:
            self.address, self.kafka = address, kafka

    def _said(self, line: bytes) -> None:
        self._pass_on(line + b"\n")
        text = line.decode(errors="replace").strip()
        if text:
            self.last_line, self._said_at = message_in(text), time.monotonic()

    def ask_to_stop(self) -> None:
        """Ask it to stop cleanly."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def last_words(self) -> str:
        """The error that it reported, or what it logged last, if that was just now."""
        is_new = time.monotonic() - self._said_at < LAST_WORDS_SECONDS
        return (self.error or (self.last_line if is_new else ""))[:WORDS_MAX]


def how_it_ended(code: int) -> str:
    """Format as `exit code 1`, or `signal 9, SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
