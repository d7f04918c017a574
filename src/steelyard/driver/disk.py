"""The real disk under one data directory: the store's `Disk` and `File` by system calls.

Everything is written with `pwrite` at a position, so that a file has no cursor to share. When a
write returns, the kernel has the bytes; when `File.sync` returns, the disk has them. A full disk
raises `OSError` (ENOSPC); a failed write leaves at most what the kernel accepted, and the log's
recovery truncates that.

Two descriptors are reserved for `open_existing` and `sync_folder`, which other threads use to sync:
if the process has none left, these are used, so that acknowledged data still reaches the disk.

One process at a time uses a directory: `LiveDisk` holds a lock on the file `lock` in it, which also
contains the process id.
"""

from __future__ import annotations

import errno
import fcntl
import os

from steelyard.driver.ranges import Descriptor, LiveRange, read_at
from steelyard.errors import StorageError
from steelyard.store.files import NO_DESCRIPTOR

LOCK_NAME = "lock"

SPARES = 2
"""Descriptors reserved for syncs: the flusher's, and that of a concurrent stop."""


class _Spares:
    """Open placeholder descriptors whose numbers can be used when there are no others."""

    def __init__(self) -> None:
        self._placeholder = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._numbers = [os.dup(self._placeholder) for _ in range(SPARES)]
        self._closed = False

    def open(self, path: str, flags: int) -> int:
        """As `os.open`; uses a reserved descriptor if none is free. Pass the number to `close`."""
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            try:
                os.close(self._numbers.pop())  # one step, so that threads do not take the same
            except IndexError:
                raise error from None
        return os.open(path, flags)

    def close(self, number: int) -> None:
        """As `os.close`; but a missing placeholder is replaced, atomically."""
        if len(self._numbers) < SPARES and not self._closed:
            os.dup2(self._placeholder, number, inheritable=False)
            self._numbers.append(number)
        else:
            os.close(number)

    def close_all(self) -> None:
        """Free the reserve; descriptors in use are closed by `close` as usual."""
        self._closed = True
        os.close(self._placeholder)
        while self._numbers:
            os.close(self._numbers.pop())


class LiveFile:
    """One open file. `write` and `read` may run in different threads than `sync`."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str, *, descriptor: Descriptor | None = None) -> None:
        """Open the file, created if it is missing; or use a descriptor that is already open."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_CREAT
        self._descriptor = descriptor or Descriptor(os.open(path, flags, 0o644))

    def size(self) -> int:
        return os.fstat(self._descriptor.number).st_size

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        number = self._descriptor.number
        data = os.pread(number, size, position)
        if len(data) == size or not data:
            return data
        return read_at(number, position, size)

    def lend(self, position: int, size: int) -> LiveRange:
        """Return a range of existing bytes without reading them."""
        return LiveRange(self._descriptor, position, size)

    def write(self, position: int, data: bytes) -> None:
        """Write all of `data`, or raise OSError; after a short write on a full disk, ENOSPC."""
        descriptor = self._descriptor.number
        written = os.pwrite(descriptor, data, position)
        while written < len(data):
            more = os.pwrite(descriptor, memoryview(data)[written:], position + written)
            if not more:
                raise OSError(errno.EIO, "nothing was written")
            written += more

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor.number, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor.number)

    def close(self) -> None:
        """Release the file. It is closed once all of its ranges are gone as well."""
        del self._descriptor


class LiveDisk:
    """The disk under `root`, which is created if it is missing; see the module docstring."""

    def __init__(self, root: str) -> None:
        self._root = root
        try:
            os.makedirs(root, exist_ok=True)
            self._lock = os.open(
                os.path.join(root, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise StorageError(f"data directory {root}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            os.close(self._lock)
            raise StorageError(
                f"data directory {root} is in use by another process"
                + (f" ({owner})" if owner else "")
                + "; stop that first"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self._spares = _Spares()

    def open(self, path: str) -> LiveFile:
        """Open a file, created if it is missing; its folder must exist."""
        return LiveFile(self._path(path))

    def open_existing(self, path: str) -> LiveFile | None:
        """Open a file, or return None if it is missing."""
        try:
            number = self._spares.open(self._path(path), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        return LiveFile(path, descriptor=Descriptor(number, self._spares.close))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._path(path))

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if it does not exist."""
        try:
            names = os.listdir(self._path(folder))
        except FileNotFoundError:
            return []
        return sorted(name for name in names if folder or name != LOCK_NAME)

    def make_folder(self, path: str) -> None:
        os.makedirs(self._path(path), exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        full = self._path(path)
        if os.path.isdir(full):
            os.rmdir(full)
        else:
            os.remove(full)

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        os.replace(self._path(old), self._path(new))

    def space(self) -> tuple[int, int]:
        """Return (bytes free for this user, total bytes)."""
        found = os.statvfs(self._root)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def sync_folder(self, folder: str) -> None:
        """Make new, removed and renamed names in a folder durable."""
        descriptor = self._spares.open(self._path(folder), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            self._spares.close(descriptor)

    def close(self) -> None:
        """Release the directory. Open files stay open."""
        self._spares.close_all()
        os.close(self._lock)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root
