"""A simulated disk with the kernel's and the platter's contents, and kills during writes.

- A completed `write` is in the kernel: it survives the process, not the machine.
- `File.sync` puts a file's bytes on the platter, `sync_folder` the folder's entries.
- `cut_write(n)` arms a process kill inside the n-th write from now: a prefix of that write gets
  through, then `Killed` rises through the node as a SIGKILL would: nothing after it happens.
- `lose_power()` drops what is not on the platter, except that the kernel may have written back a
  prefix of a file's unsynced growth, and the first few of the unsynced folder operations.
- With `exhausted` nothing can be opened (EMFILE); open files still work.
- `flip` and `flip_bit` damage a file at rest.
- `room` bytes are left; of a write beyond them a prefix may get through before DiskFullError.

Left out: unsynced overwrites surviving in part (our files only grow or are replaced).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from steelyard.errors import DiskFullError, StorageError
from steelyard.store.memory import DISK_BYTES, Killed, MemoryRange


class _Inode:
    """The bytes of one file: `data` in the kernel, of which `synced` is on the platter."""

    __slots__ = ("data", "synced")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = b""


class SimDisk:
    """The disk of one host.

    Mount it again for each process: handles of a dead process are invalid.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._names: dict[str, _Inode] = {}
        self._platter: dict[str, _Inode] = {}
        self._journal: list[Callable[[dict[str, _Inode]], None]] = []
        self._generation = 0
        self._writes_until_kill: int | None = None
        self.room: int | None = None
        self.exhausted = False
        self.writes = 0
        self.torn = 0

    # -- what the operator and the fates do --------------------------------------------------------

    def remount(self) -> Mount:
        """Return a mount for a new process; all earlier ones become invalid."""
        self._generation += 1
        self._writes_until_kill = None
        return Mount(self, self._generation)

    def unmount(self) -> None:
        """Invalidate the handles of a dead process."""
        self._generation += 1
        self._writes_until_kill = None

    def cut_write(self, count: int) -> None:
        """Kill the process during its `count`-th write from now (1 = the next)."""
        assert count >= 1
        self._writes_until_kill = count

    def flip_bit(self, suffix: str) -> bool:
        """Flip a bit, also on the platter, in some file with this suffix.

        Return False if there is none.
        """
        names = sorted(name for name in self._names if name.endswith(suffix))
        names = [name for name in names if self._names[name].data]
        if not names:
            return False
        name = self._rng.choice(names)
        position = self._rng.randrange(len(self._names[name].data))
        self.flip(name, position, self._rng.randrange(8))
        return True

    def flip(self, name: str, position: int, bit: int) -> None:
        """Flip a bit in a byte of a file, also on the platter."""
        inode, mask = self._names[name], 1 << bit
        inode.data[position] ^= mask
        if position < len(inode.synced):
            synced = bytearray(inode.synced)
            synced[position] ^= mask
            inode.synced = bytes(synced)

    def lose_power(self) -> None:
        """Keep what the platter has, and what the kernel happened to have written back."""
        kept = self._rng.randrange(len(self._journal) + 1)
        for operation in self._journal[:kept]:
            operation(self._platter)
        self._journal.clear()
        self._names = dict(self._platter)
        seen: set[int] = set()
        for path in sorted(self._names):
            inode = self._names[path]
            if id(inode) in seen:
                continue
            seen.add(id(inode))
            self._forget(inode)
        self.unmount()

    def _forget(self, inode: _Inode) -> None:
        data, synced = bytes(inode.data), inode.synced
        if data[: len(synced)] == synced:
            grown = self._rng.randrange(len(data) - len(synced) + 1)
            data = data[: len(synced) + grown]
        else:
            data = synced
        inode.data = bytearray(data)
        inode.synced = data

    @contextmanager
    def looked_at(self) -> Iterator[Mount]:
        """Look into the files of a running process from outside.

        This needs no file descriptor of the process, and repairs during reads are not writes of the
        process.
        """
        exhausted, self.exhausted = self.exhausted, False
        until_kill, self._writes_until_kill = self._writes_until_kill, None
        try:
            yield Mount(self, self._generation)
        finally:
            self.exhausted = exhausted
            self._writes_until_kill = until_kill

    # -- what a mount asks -------------------------------------------------------------------------

    def _check(self, generation: int) -> None:
        if generation != self._generation:
            raise Killed("a dead process touched the disk")

    def _need_descriptor(self) -> None:
        if self.exhausted:
            raise OSError(errno.EMFILE, "Too many open files")

    def _change(self, operation: Callable[[dict[str, _Inode]], None]) -> None:
        operation(self._names)
        self._journal.append(operation)

    def _write(self, inode: _Inode, position: int, data: bytes) -> None:
        self.writes += 1
        if self.room is not None and self.room < len(data):
            got = self._rng.randrange(self.room + 1)
            self.room -= got
            _splice(inode.data, position, data[:got])
            raise DiskFullError("no space left on the simulated disk")
        if self._writes_until_kill is not None:
            self._writes_until_kill -= 1
            if self._writes_until_kill == 0:
                _splice(inode.data, position, data[: self._rng.randrange(len(data) + 1)])
                self.torn += 1
                self.unmount()
                raise Killed("killed inside a write")
        if self.room is not None:
            self.room -= len(data)
        _splice(inode.data, position, data)


def _splice(target: bytearray, position: int, data: bytes) -> None:
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


class SimFile:
    """An open file of a `Mount`."""

    def __init__(self, disk: SimDisk, generation: int, inode: _Inode) -> None:
        self._disk = disk
        self._generation = generation
        self._inode = inode

    def size(self) -> int:
        self._disk._check(self._generation)
        return len(self._inode.data)

    def read(self, position: int, size: int) -> bytes:
        self._disk._check(self._generation)
        return bytes(self._inode.data[position : position + size])

    def lend(self, position: int, size: int) -> MemoryRange:
        self._disk._check(self._generation)
        return MemoryRange(self, position, size)

    def write(self, position: int, data: bytes) -> None:
        self._disk._check(self._generation)
        self._disk._write(self._inode, position, bytes(data))

    def truncate(self, size: int) -> None:
        self._disk._check(self._generation)
        data = self._inode.data
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))

    def sync(self) -> None:
        self._disk._check(self._generation)
        self._inode.synced = bytes(self._inode.data)

    def close(self) -> None:
        """Close without sync, like the real thing."""


class Mount:
    """The `store.disk.Disk` of one process."""

    def __init__(self, disk: SimDisk, generation: int) -> None:
        self._disk = disk
        self._generation = generation

    def open(self, path: str) -> SimFile:
        disk = self._disk
        disk._check(self._generation)
        disk._need_descriptor()
        if path not in disk._names:
            inode = _Inode()

            def enter(names: dict[str, _Inode]) -> None:
                names[path] = inode

            disk._change(enter)
        return SimFile(disk, self._generation, disk._names[path])

    def open_existing(self, path: str) -> SimFile | None:
        self._disk._check(self._generation)
        self._disk._need_descriptor()
        return self.open(path) if path in self._disk._names else None

    def list(self, folder: str) -> list[str]:
        """Return the names directly in `folder` (files and non-empty folders), sorted."""
        self._disk._check(self._generation)
        self._disk._need_descriptor()
        prefix = f"{folder}/" if folder else ""
        inside = [path[len(prefix) :] for path in self._disk._names if path.startswith(prefix)]
        return sorted({path.split("/", 1)[0] for path in inside})

    def exists(self, path: str) -> bool:
        self._disk._check(self._generation)
        return path in self._disk._names or any(
            name.startswith(f"{path}/") for name in self._disk._names
        )

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder, which is nothing here."""
        disk = self._disk
        disk._check(self._generation)
        if path not in disk._names:
            if self.exists(path):
                raise StorageError(f"folder {path} is not empty")
            return

        def leave(names: dict[str, _Inode]) -> None:
            names.pop(path, None)

        disk._change(leave)

    def rename(self, old: str, new: str) -> None:
        disk = self._disk
        disk._check(self._generation)
        if old not in disk._names:
            raise StorageError(f"no file {old}")

        def move(names: dict[str, _Inode]) -> None:
            inode = names.pop(old, None)
            if inode is not None:
                names[new] = inode

        disk._change(move)

    def make_folder(self, path: str) -> None:
        """Folders are the prefixes of paths here: nothing to do."""
        self._disk._check(self._generation)

    def space(self) -> tuple[int, int]:
        """Of a disk of a terabyte."""
        self._disk._check(self._generation)
        room = self._disk.room
        return DISK_BYTES if room is None else room, DISK_BYTES

    def sync_folder(self, path: str) -> None:
        """All folder operations so far are on the platter (of every folder: one journal)."""
        disk = self._disk
        disk._check(self._generation)
        disk._need_descriptor()
        for operation in disk._journal:
            operation(disk._platter)
        disk._journal.clear()
