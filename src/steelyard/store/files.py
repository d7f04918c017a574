"""The open files of one store: opened when needed, bounded in number; and its unsynced changes."""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

from steelyard.errors import DescriptorsError, DiskFullError, StorageError
from steelyard.store.disk import Disk, File
from steelyard.types import FileRange

T = TypeVar("T")

OPEN_FILES_MAX = 256
"""Handles kept open, unless the process's own limit allows fewer."""

FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))


def storage_error(action: str, path: str, error: OSError) -> StorageError:
    """Return the error that callers of the store get for an error of the disk."""
    kind = DiskFullError if error.errno in FULL else StorageError
    if error.errno in NO_DESCRIPTOR:
        kind = DescriptorsError
    return kind(f"cannot {action} {path}: {error.strerror or error}")


class Unsynced(msgspec.Struct, frozen=True):
    """Files and folders with changes that the kernel has but the disk may not have yet."""

    disk: Disk
    paths: tuple[str, ...]
    folders: tuple[str, ...]

    def sync(self) -> None:
        """Sync them to disk. May run in any thread, because it opens its own handles.

        Files deleted meanwhile are skipped. Raises StorageError if the disk refuses; then its
        contents are unknown, and nothing that waits for this may be acknowledged. DescriptorsError
        is transient: call again until it returns or raises something else.
        """
        for path in self.paths:
            try:
                file = self.disk.open_existing(path)
                if file is None:
                    continue
                try:
                    file.sync()
                finally:
                    file.close()
            except OSError as error:
                if self.disk.exists(path):
                    raise storage_error("sync", path, error) from error
        for folder in self.folders:
            try:
                self.disk.sync_folder(folder)
            except OSError as error:
                if self.disk.exists(folder):
                    raise storage_error("sync", folder, error) from error


class Files:
    """Access to files by path, with StorageError and DiskFullError in place of the disk's errors.

    A partial write is undone: the file is truncated to where the write began. If the disk refuses
    even that, it is tried again before every other write and whenever changes are synced, because a
    kill must not find part of what was refused, such as a topic's deletion. Only the next write to
    the file itself waits for it.
    """

    def __init__(self, disk: Disk, open_max: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self._open_max = open_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._unsynced: set[str] = set()
        self._unsynced_folders: set[str] = set()
        self._taken: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        """The files and folders of the last `take`, whose sync may be in progress."""
        self._torn: dict[str, int] = {}

    # -- one file --------------------------------------------------------------------------------

    def create(self, path: str) -> None:
        """Create the file and its folders; their names count as unsynced."""
        folder = path.rpartition("/")[0]
        try:
            self.disk.make_folder(folder)
        except OSError as error:
            raise storage_error("make folder", folder, error) from error
        self._file(path)
        self.suspect(path)

    def suspect(self, path: str) -> None:
        """Count the file and its parent folders as unsynced.

        An earlier process may have been killed before it synced them.
        """
        self._unsynced.add(path)
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            self._unsynced_folders.add(folder)

    def write(self, path: str, position: int, data: bytes, *, can_be_lost: bool = False) -> None:
        """Write at a position, in one call. If it raises, the file counts as unchanged.

        `can_be_lost`: the file need not be synced, because recovery can rebuild it from others.
        """
        if self._torn and not self.mend():
            self._mend(path)
        file = self._file(path)
        if not can_be_lost:
            self._unsynced.add(path)
        try:
            file.write(position, data)
        except (OSError, StorageError) as error:
            self._torn[path] = position
            with suppress(StorageError):  # it is tried again
                self._mend(path)
            if isinstance(error, StorageError):
                raise
            raise storage_error("write", path, error) from error

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Overwrite existing bytes; not undone if it fails, and never synced."""
        try:
            self._file(path).write(position, data)
        except OSError as error:
            raise storage_error("write", path, error) from error

    def read(self, path: str, position: int, size: int) -> bytes:
        """Read `size` bytes; fewer only at the end of the file."""
        file = self._file(path)
        try:
            return file.read(position, size)
        except OSError as error:
            raise storage_error("read", path, error) from error

    def lend(self, path: str, position: int, size: int) -> FileRange:
        """Return a range without reading it; its receiver reads it, or sends it from the file."""
        return self._file(path).lend(position, size)

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""
        try:
            return self._file(path).size()
        except OSError as error:
            raise storage_error("look at", path, error) from error

    def truncate(self, path: str, size: int) -> None:
        """Truncate the file."""
        file = self._file(path)
        self._unsynced.add(path)
        try:
            file.truncate(size)
        except OSError as error:
            raise storage_error("cut", path, error) from error

    def sync(self, path: str) -> None:
        """Sync one file to disk immediately."""
        try:
            self._file(path).sync()
        except OSError as error:
            raise storage_error("sync", path, error) from error
        self._unsynced.discard(path)

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        """Replace a file with one that was synced, atomically, and sync that to disk.

        If it raises, the file was not replaced. If only the sync fails, it is left to the next one;
        so it is without `sync`.
        """
        self.forget(old)
        self.forget(new)
        folder = new.rpartition("/")[0]
        try:
            self.disk.rename(old, new)
        except OSError as error:
            raise storage_error("replace", new, error) from error
        self._unsynced.discard(old)
        if not sync:
            self._unsynced_folders.add(folder)
            return
        try:
            self.sync_folder(folder)
        except StorageError:
            self._unsynced_folders.add(folder)

    def sync_folder(self, folder: str) -> None:
        """Sync the names in a folder to disk immediately; `""`: the root."""
        self._with_descriptor("sync", folder, self.disk.sync_folder)

    def remove(self, path: str) -> None:
        """Delete a file or an empty folder; it need not exist."""
        self.forget(path)
        self._unsynced.discard(path)
        self._unsynced_folders.discard(path)
        self._torn.pop(path, None)
        try:
            if self.disk.exists(path):
                self.disk.remove(path)
        except OSError as error:
            raise storage_error("remove", path, error) from error

    def forget(self, path: str) -> None:
        """Close the handle, if there is one. Unsynced changes are still tracked."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def _file(self, path: str) -> File:
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        file = self._with_descriptor("open", path, self.disk.open)
        self._open[path] = file
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].close()
        return file

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if it is missing."""
        return self._with_descriptor("list", folder, self.disk.list)

    def _with_descriptor(self, action: str, path: str, call: Callable[[str], T]) -> T:
        """Run `call`, which needs a descriptor.

        If there is none, close the least recently used handles.
        """
        while True:
            try:
                return call(path)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._open:
                    raise storage_error(action, path, error) from error
            self._open.popitem(last=False)[1].close()

    def _mend(self, path: str) -> None:
        position = self._torn.get(path)
        if position is not None:
            self.truncate(path, position)
            del self._torn[path]

    def mend(self) -> bool:
        """Undo every partial write that could not be undone yet.

        Return False if one still cannot be.
        """
        for path in list(self._torn):
            with suppress(StorageError):
                self._mend(path)
        return not self._torn

    # -- all files -------------------------------------------------------------------------------

    def dirty(self) -> bool:
        """Return whether anything may not be on disk yet, or has to be undone there."""
        return bool(self._unsynced or self._unsynced_folders or self._torn)

    def take(self, *, again: bool = False) -> Unsynced:
        """Return what is unsynced, and leave syncing it to the caller.

        `again`: together with what was taken last, because syncing that may be still in progress.
        """
        self.mend()
        paths, folders = self._unsynced, self._unsynced_folders
        if again:
            paths, folders = paths | self._taken[0], folders | self._taken[1]
        self._taken = frozenset(paths), frozenset(folders)
        self._unsynced, self._unsynced_folders = set(), set()
        return Unsynced(self.disk, tuple(sorted(paths)), tuple(sorted(folders)))

    def close(self) -> None:
        """Close all handles. They are reopened when needed."""
        for file in self._open.values():
            file.close()
        self._open.clear()
