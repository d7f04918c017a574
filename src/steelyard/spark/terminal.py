"""The progress of jobs: a line that is written anew on terminals, else a line from time to time."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

INTERVAL_S = 0.2
"""Shortest time between two updates on a terminal."""
LOG_INTERVAL_S = 10.0
"""The same elsewhere, and the time until the first line there."""
CLEAR = "\r\x1b[K"
CUT, WRAP = "\x1b[?7l", "\x1b[?7h"
"""What is longer than a row is cut off by the terminal, or goes on in the next row (DECAWM)."""


class ProgressLine:
    """The progress on stderr: overwritten in place on a terminal, else as lines that remain.

    There only what is new is written. Any number of threads may use it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._last = ""
        self._next_at = 0.0 if self._is_terminal else time.monotonic() + LOG_INTERVAL_S
        self._shown = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Show what a job does now, unless the last update was a moment ago."""
        with self._lock:
            now = time.monotonic()
            if now < self._next_at:
                return
            if self._is_terminal:
                self._next_at = now + INTERVAL_S
                self._shown = True
                self._stream.write(f"{CLEAR}{CUT}{text}{WRAP}")
            else:
                self._next_at = now + LOG_INTERVAL_S
                if text == self._last:
                    return
                self._last = text
                self._stream.write(f"{text}\n")
            self._stream.flush()

    @property
    def is_due(self) -> bool:
        """Return whether the next update would be shown, for callers to whom it is costly."""
        return time.monotonic() >= self._next_at

    def clear(self) -> None:
        """Remove the line, before something else is printed."""
        with self._lock:
            if self._shown:
                self._stream.write(CLEAR)
                self._stream.flush()
                self._shown = False
