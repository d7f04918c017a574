"""A data directory for `store.backup`: files that are only read, without the directory's lock."""

from __future__ import annotations

import os

from steelyard.driver.ranges import read_at
from steelyard.store.backup import Mark


class LiveSourceFile:
    """One file, open for reading."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __enter__(self) -> LiveSourceFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._number)

    def mark(self) -> Mark:
        found = os.fstat(self._number)
        return Mark(found.st_ino, found.st_size)

    def read(self, position: int, size: int) -> bytes:
        """Read `size` bytes from `position`; fewer only at the end of the file."""
        return read_at(self._number, position, size)


class LiveSource:
    """The files under `root`, which may belong to a running broker; nothing is changed."""

    def __init__(self, root: str) -> None:
        self._root = root

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if it does not exist."""
        try:
            return sorted(os.listdir(self._path(folder)))
        except FileNotFoundError:
            return []

    def mark(self, path: str) -> Mark | None:
        """Return inode and size of the file that has this name now; None if none has."""
        try:
            found = os.stat(self._path(path))
        except FileNotFoundError:
            return None
        return Mark(found.st_ino, found.st_size)

    def open(self, path: str) -> LiveSourceFile | None:
        """Open a file for reading; None if it is missing."""
        try:
            return LiveSourceFile(os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root
