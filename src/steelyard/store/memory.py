"""A disk in memory, for tests and for brokers without persistent storage.

It can fail as a real disk does: `room_bytes` makes it full, `kill_after_bytes` ends the process in
the middle of a write, `lose_power` drops what was not synced.
"""

from __future__ import annotations

import errno

from steelyard.store.disk import File
from steelyard.types import Random


class Killed(BaseException):  # no error: the process is no more
    """The process that wrote died in the middle of the write. Passes every `except Exception`."""


class MemoryRange:
    """A `FileRange` of a file in memory."""

    def __init__(self, file: File, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self) -> bytes:
        data = self._file.read(self._position, self._size)
        assert len(data) == self._size, "the file was cut under a range of it"
        return data


class MemoryFile:
    """A file of a `MemoryDisk`; handles of the same path share it."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.data = bytearray()
        self.synced_bytes = 0

    def size(self) -> int:
        return len(self.data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.data[position : position + size])

    def lend(self, position: int, size: int) -> MemoryRange:
        return MemoryRange(self, position, size)

    def write(self, position: int, data: bytes) -> None:
        alive = self._disk.kill_after_bytes
        if alive is not None:
            self._disk.kill_after_bytes = alive - len(data)
            if alive < len(data):
                self._place(position, data[:alive])
                raise Killed
        growth = position + len(data) - len(self.data)
        room = self._disk.room_bytes
        if room is not None and growth > room:
            written = max(0, len(data) - growth + room)
            self._place(position, data[:written])
            self._disk.room_bytes = 0
            raise OSError(errno.ENOSPC, "no space left on device")
        if room is not None:
            self._disk.room_bytes = room - max(0, growth)
        self._place(position, data)

    def _place(self, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        self.synced_bytes = min(self.synced_bytes, position)

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            if self._disk.room_bytes is not None:
                self._disk.room_bytes += len(self.data) - size
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.synced_bytes = min(self.synced_bytes, size)

    def sync(self) -> None:
        self.synced_bytes = len(self.data)

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


DISK_BYTES = 1 << 40
"""The size of a disk in memory."""


class MemoryDisk:
    """A `Disk` in memory.

    `room_bytes`: how much more can be written, None without a limit. `kill_after_bytes`: how much
    is still written before `Killed` is raised; continue with a `copy` after that.
    """

    def __init__(self) -> None:
        self.files: dict[str, MemoryFile] = {}
        self.folders: set[str] = {""}
        self.room_bytes: int | None = None
        self.kill_after_bytes: int | None = None

    def open(self, path: str) -> MemoryFile:
        file = self.files.get(path)
        if file is None:
            folder = path.rpartition("/")[0]
            if folder not in self.folders:
                raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
            file = self.files[path] = MemoryFile(self)
        return file

    def open_existing(self, path: str) -> MemoryFile | None:
        return self.open(path) if path in self.files else None

    def list(self, folder: str) -> list[str]:
        paths = [*self.files, *(name for name in self.folders if name)]
        return sorted(
            name for parent, _, name in (path.rpartition("/") for path in paths) if parent == folder
        )

    def remove(self, path: str) -> None:
        if path in self.files:
            self.files.pop(path).truncate(0)
        elif path in self.folders and not self.list(path):
            self.folders.remove(path)
        else:
            raise FileNotFoundError(errno.ENOENT, "no such file or empty folder", path)

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def make_folder(self, path: str) -> None:
        while path:
            self.folders.add(path)
            path = path.rpartition("/")[0]

    def space(self) -> tuple[int, int]:
        """Report a disk of a terabyte."""
        return DISK_BYTES if self.room_bytes is None else self.room_bytes, DISK_BYTES

    def sync_folder(self, path: str) -> None:
        """Do nothing: names are durable at once."""
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)

    def copy(self) -> MemoryDisk:
        """Return what another process would find now, after this one was killed."""
        other = MemoryDisk()
        other.folders = set(self.folders)
        other.room_bytes = self.room_bytes
        for path, file in self.files.items():
            twin = other.files[path] = MemoryFile(other)
            twin.data = bytearray(file.data)
            twin.synced_bytes = file.synced_bytes
        return other

    def lose_power(self, rng: Random) -> MemoryDisk:
        """Return what the next process would find after a power cut.

        Each file has what was synced, and some of the rest.
        """
        other = self.copy()
        for _, file in sorted(other.files.items()):
            unsynced = len(file.data) - file.synced_bytes
            del file.data[file.synced_bytes + rng.randrange(unsynced + 1) :]
            file.synced_bytes = len(file.data)
        return other
