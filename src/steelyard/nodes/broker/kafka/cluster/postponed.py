"""Writes of facts that hold even while the disk refuses to store them.

They are repeated until the disk takes them. Otherwise a restart, much later, would bring back what
was on the disk before: a topic whose creation was refused, or offsets of a deleted one. What is
still postponed when the process ends is lost.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.errors import StorageError

RETRY_MS = 1_000
WRITES_MAX = 100_000
"""Most writes to postpone; further ones are tried once."""


class PostponedWrites:
    """The writes to repeat; see the module docstring."""

    def __init__(self) -> None:
        self._writes: dict[str, Callable[[], None]] = {}
        """By what they are about: only the latest write of each counts."""
        self._retry_at = 0
        self.fault = ""
        """Why the disk refused a write; empty again once that was logged."""

    def __len__(self) -> int:
        return len(self._writes)

    def do(self, about: str, write: Callable[[], None]) -> None:
        """Write, or postpone it if the disk refuses. `write` may raise StorageError."""
        self.cancel(about)
        try:
            write()
        except StorageError as error:
            self.fault = str(error)
            if len(self._writes) < WRITES_MAX:
                self._writes[about] = write

    def cancel(self, about: str) -> None:
        """Drop the postponed write, because another one has succeeded."""
        self._writes.pop(about, None)

    def retry(self, now: int) -> None:
        """Repeat the writes, in order, up to one that is refused; at most every RETRY_MS."""
        if not self._writes or now < self._retry_at:
            return
        self._retry_at = now + RETRY_MS
        for about, write in list(self._writes.items()):
            try:
                write()
            except StorageError as error:
                self.fault = str(error)
                return
            self.cancel(about)
