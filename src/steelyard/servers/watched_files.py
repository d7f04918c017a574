"""A small text file that is looked at again and again, because it may change."""

from __future__ import annotations

import os

from steelyard.errors import ConfigError

LOOK_SECONDS = 1.0
"""Interval of the look at a file."""

FILE_BYTES_MAX = 4 * 1024 * 1024


class WatchedFile:
    """A file in UTF-8. `where`: the setting that names it, and the path, for errors."""

    def __init__(self, path: str, setting: str) -> None:
        self._path = path
        self.where = f"{setting} {path}"
        self._seen = self._state()

    def has_changed(self) -> bool:
        """Return whether it was written or replaced since the last time."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        return True

    def read(self) -> str:
        """Return the text. Raises ConfigError."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(f"{self.where}: {error.strerror}") from None
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{self.where} has more than {FILE_BYTES_MAX} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{self.where} is not UTF-8") from None

    def _state(self) -> object:
        try:
            found = os.stat(self._path)
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_size, found.st_mtime_ns
