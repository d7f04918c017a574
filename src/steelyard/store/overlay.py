"""A disk whose changes are kept in memory: it shows another disk as it would be after them."""

from __future__ import annotations

from steelyard.store.disk import Disk, File
from steelyard.store.memory import MemoryRange
from steelyard.types import FileRange


class _Change:
    """The change of one file: how much of the original remains, and the writes since, in order."""

    def __init__(self, size: int) -> None:
        self.original = size
        self.size = size
        self.patches: list[tuple[int, bytes]] = []


class OverlayFile:
    """A file of an `Overlay`. `original`: None if the disk does not have the file."""

    def __init__(self, original: File | None, change: _Change) -> None:
        self._original = original
        self._change = change

    def size(self) -> int:
        return self._change.size

    def read(self, position: int, size: int, /) -> bytes:
        change = self._change
        size = max(0, min(size, change.size - position))
        upto = max(0, min(size, change.original - position))
        data = b"" if self._original is None else self._original.read(position, upto)
        if len(data) < size or change.patches:
            patched = bytearray(data.ljust(size, b"\0"))
            for start, piece in change.patches:
                first, last = max(start, position), min(start + len(piece), position + size)
                if first < last:
                    patched[first - position : last - position] = piece[
                        first - start : last - start
                    ]
            data = bytes(patched)
        return data

    def lend(self, position: int, size: int, /) -> FileRange:
        return MemoryRange(self, position, size)

    def write(self, position: int, data: bytes, /) -> None:
        self._change.patches.append((position, data))
        self._change.size = max(self._change.size, position + len(data))

    def truncate(self, size: int, /) -> None:
        change = self._change
        change.original = min(change.original, size)
        change.patches = [(start, piece[: max(0, size - start)]) for start, piece in change.patches]
        change.size = size

    def sync(self) -> None:
        """Do nothing: changes stay in memory."""

    def close(self) -> None:
        if self._original is not None:
            self._original.close()


class Overlay:
    """A `Disk` on which files created, changed, renamed and removed affect memory only."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._changes: dict[str, _Change] = {}
        self._gone: set[str] = set()

    def open(self, path: str) -> OverlayFile:
        file = self.open_existing(path)
        if file is None:
            self._gone.discard(path)
            self._changes[path] = _Change(0)
            file = OverlayFile(None, self._changes[path])
        return file

    def open_existing(self, path: str) -> OverlayFile | None:
        original = None if path in self._gone else self._disk.open_existing(path)
        change = self._changes.get(path)
        if change is None:
            if original is None:
                return None
            change = self._changes[path] = _Change(original.size())
        return OverlayFile(original, change)

    def list(self, folder: str) -> list[str]:
        made = {
            name
            for parent, _, name in (path.rpartition("/") for path in self._changes)
            if parent == folder
        }
        kept = {
            name
            for name in self._disk.list(folder)
            if (f"{folder}/{name}" if folder else name) not in self._gone
        }
        return sorted(made | kept)

    def remove(self, path: str) -> None:
        self._changes.pop(path, None)
        self._gone.add(path)

    def rename(self, old: str, new: str) -> None:
        file = self.open(old)
        data = file.read(0, file.size())
        self.remove(old)
        self.remove(new)
        self.open(new).write(0, data)

    def exists(self, path: str) -> bool:
        return path in self._changes or (path not in self._gone and self._disk.exists(path))

    def make_folder(self, path: str) -> None:
        """Do nothing: folders need not exist."""

    def space(self) -> tuple[int, int]:
        """Return the space of the underlying disk."""
        return self._disk.space()

    def sync_folder(self, path: str) -> None:
        """Do nothing: changes stay in memory."""
