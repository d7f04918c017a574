"""The disk interface of the store.

`driver/disk.py` implements it with files, `sim/disk.py` with faults, `memory` for tests. Paths are
relative to the data directory, joined by `/`; the empty path is the data directory itself.

One process at a time may use a data directory: a `Disk` whose folder others can reach locks it when
it is made, and raises StorageError when another process holds it. The store relies on that.

Failures raise `OSError` or `StorageError`: for a full disk, `OSError` with ENOSPC or EDQUOT, or
`DiskFullError`; for a process without free file descriptors, `OSError` with EMFILE or ENFILE from
calls that open something (`open`, `open_existing`, `list`, `sync_folder`), which is transient. A
failed call may have done part of its work; `Files` cleans up.

Threads: the store makes all calls from one thread, except that `Unsynced.sync` calls `exists`,
`open_existing`, `sync_folder`, and `sync` and `close` on files of its own, from another.
"""

from __future__ import annotations

from typing import Protocol

from steelyard.types import FileRange


class File(Protocol):
    """An open file, read and written at positions. It has no cursor and no buffer."""

    def size(self) -> int: ...

    def read(self, position: int, size: int, /) -> bytes:
        """Read `size` bytes from `position`; fewer only at the end of the file."""

    def lend(self, position: int, size: int, /) -> FileRange:
        """Return `size` existing bytes from `position` without reading them: see `FileRange`.

        `close` does not invalidate the range.
        """

    def write(self, position: int, data: bytes, /) -> None:
        """Write `data`.

        On return the kernel has all of it: it survives the process, not the machine.
        """

    def truncate(self, size: int, /) -> None: ...

    def sync(self) -> None:
        """Make everything written to the file, through any handle, survive the machine."""

    def close(self) -> None:
        """Free the handle without syncing."""


class Disk(Protocol):
    """The files below one data directory."""

    def open(self, path: str, /) -> File:
        """Open a file, created if it is missing; its folder must exist."""

    def open_existing(self, path: str, /) -> File | None:
        """Open a file, or return None if it is missing; another thread may remove it meanwhile."""

    def list(self, folder: str, /) -> list[str]:
        """Return the names in a folder, sorted; none if it is missing."""

    def remove(self, path: str, /) -> None:
        """Remove a file, or an empty folder."""

    def rename(self, old: str, new: str, /) -> None:
        """Replace `new` with the file `old`, atomically."""

    def exists(self, path: str, /) -> bool: ...

    def make_folder(self, path: str, /) -> None:
        """Create a folder and its parents if they are missing."""

    def space(self) -> tuple[int, int]:
        """Return (writable bytes, total bytes) of the disk that holds the data directory."""

    def sync_folder(self, path: str, /) -> None:
        """Make names created, renamed and removed in the folder survive the machine."""
