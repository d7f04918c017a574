"""What the store asks of a disk. `driver/disk.py` is the real one, `sim/disk.py` a faulty one, `memory` one for tests.

Paths are relative to the data directory, joined by `/`; the empty path is the data directory itself.

One process at a time may use a data directory: a `Disk` whose folder others can reach locks it when it
is made, and raises StorageError when another process holds it. The store relies on that.

Failures are `OSError` or `StorageError`; a full disk is `OSError` with ENOSPC or EDQUOT, or
`DiskFullError`; a process without a file descriptor left is `OSError` with EMFILE or ENFILE, from what opens
something (`open`, `open_existing`, `list`, `sync_folder`), and passes. A call that failed may have done part of its work: `Files` sees to the rest.

Threads: the store calls everything from one thread, but for `Unsynced.sync`, which calls `exists`,
`open_existing`, `sync_folder`, and on files of its own `sync` and `close`, from another.
"""

from __future__ import annotations

from typing import Protocol

from steelyard.types import FileRange


class File(Protocol):
    """An open file, read and written at positions. It has no cursor and no buffer of its own."""

    def size(self) -> int: ...

    def read(self, position: int, size: int, /) -> bytes:
        """`size` bytes from `position`; fewer only where the file ends."""

    def lend(self, position: int, size: int, /) -> FileRange:
        """The `size` bytes from `position`, not read: see `FileRange`. They are there; `close` leaves them so."""

    def write(self, position: int, data: bytes, /) -> None:
        """All of `data` is with the kernel when this returns. It outlives the process, not the machine."""

    def truncate(self, size: int, /) -> None: ...

    def sync(self) -> None:
        """What was written to the file, through any handle, outlives the machine."""

    def close(self) -> None:
        """Free the handle. Nothing is synced."""


class Disk(Protocol):
    """The files below one data directory."""

    def open(self, path: str, /) -> File:
        """Open a file, made if it is missing; its folder must be there."""

    def open_existing(self, path: str, /) -> File | None:
        """Open a file; None if it is missing. Never makes one: another thread may remove it meanwhile."""

    def list(self, folder: str, /) -> list[str]:
        """The names in a folder, sorted; none if it is missing."""

    def remove(self, path: str, /) -> None:
        """Remove a file, or an empty folder."""

    def rename(self, old: str, new: str, /) -> None:
        """Put file `old` in the place of `new`, in one step."""

    def exists(self, path: str, /) -> bool: ...

    def make_folder(self, path: str, /) -> None:
        """Make a folder and those above it, where they are missing."""

    def space(self) -> tuple[int, int]:
        """(bytes that can still be written, bytes in all) of the disk that the data directory is on."""

    def sync_folder(self, path: str, /) -> None:
        """Names made, renamed and removed in the folder outlive the machine."""
