"""A progress line for jobs that run in a terminal."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

INTERVAL_S = 0.2
"""Shortest time between two updates."""
CLEAR = "\r\x1b[K"
CUT, WRAP = "\x1b[?7l", "\x1b[?7h"
"""What is longer than a row is cut off by the terminal, or goes on in the next row (DECAWM)."""


class ProgressLine:
    """A progress line on stderr, overwritten in place; does nothing unless stderr is a terminal.

    Any number of threads may use it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.visible = self._stream.isatty()
        self._next_at = 0.0
        self._shown = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Show what a job does now, unless the last update was a moment ago."""
        if not self.visible:
            return
        with self._lock:
            now = time.monotonic()
            if now >= self._next_at:
                self._next_at = now + INTERVAL_S
                self._shown = True
                self._stream.write(f"{CLEAR}{CUT}{text}{WRAP}")
                self._stream.flush()

    def clear(self) -> None:
        """Remove the line, before something else is printed."""
        with self._lock:
            if self._shown:
                self._stream.write(CLEAR)
                self._stream.flush()
                self._shown = False
