"""A table: a small durable map from text to bytes, for topics, groups and committed offsets.

The file is a log of records; the last record of a key counts. When the log has grown to several
times the size of the current data, it is atomically replaced by a snapshot. The data is also kept
in memory. `table_records` defines the format, and distinguishes torn writes from damage.
"""

from __future__ import annotations

import zlib
from collections.abc import ItemsView, Iterable
from contextlib import suppress

from steelyard.errors import StorageError
from steelyard.store.files import Files
from steelyard.store.recovery import TableDamage, TableRecovery
from steelyard.store.table_records import Entry, decode, encode, encoded_size

GROWTH_MAX = 4
"""The log is replaced when it is this many times larger than a snapshot would be."""

SNAPSHOT_BYTES_MIN = 64 * 1024
"""Size below which the log is not replaced."""


class Table:
    """A table, created by `Store.table`. Iterates in the order in which keys were first set."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._values: dict[str, bytes] = {}
        self._size = 0
        self._crc = 0
        self._live_bytes = 0
        self._snapshot_above = SNAPSHOT_BYTES_MIN
        self._tracked: dict[str, None] | None = None

    def track(self) -> dict[str, None]:
        """Return a map to which the keys of all later changes are added, for one caller.

        It has them in the order of their first change; the caller removes them.
        """
        assert self._tracked is None, f"{self._path} is tracked already"
        self._tracked = {}
        return self._tracked

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def items(self) -> ItemsView[str, bytes]:
        """Return all pairs; do not change the table while iterating."""
        return self._values.items()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def put(self, key: str, value: bytes) -> None:
        """Set a value with one write; on StorageError nothing has changed."""
        self.put_many(((key, value),))

    def delete(self, key: str) -> None:
        """Remove a key, which need not exist, with one write."""
        if key in self._values:
            self.put_many(((key, None),))

    def put_many(self, pairs: Iterable[tuple[str, bytes | None]]) -> None:
        """Set values, and delete the keys that come with None, in order and in one write.

        A kill in the middle of the write keeps a prefix of the pairs.
        """
        pairs = list(pairs)
        data = b"".join([encode(key, value) for key, value in pairs])
        if not data:
            return
        if not self._size:
            self._files.create(self._path)
        self._files.write(self._path, self._size, data)
        self._size += len(data)
        self._crc = zlib.crc32(data, self._crc)
        for key, value in pairs:
            self._set(key, value)
        if self._tracked is not None:
            self._tracked.update((key, None) for key, _ in pairs)
        if self._size > self._snapshot_above:
            self._shrink()

    def _set(self, key: str, value: bytes | None) -> None:
        old = self._values.get(key)
        if old is not None:
            self._live_bytes -= encoded_size(key, old)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
            self._live_bytes += encoded_size(key, value)

    def _shrink(self) -> None:
        if self._size > GROWTH_MAX * self._live_bytes:
            # The log is intact, only longer than necessary; this is tried again when it has
            # doubled.
            with suppress(StorageError):
                self._write_snapshot()
        self._snapshot_above = max(SNAPSHOT_BYTES_MIN, 2 * self._size)

    def _write_snapshot(self) -> None:
        """Replace the log.

        Synced before the rename, so that a power cut cannot leave an empty table.
        """
        data = b"".join([encode(key, value) for key, value in self._values.items()])
        new = self._path + ".new"
        self._files.remove(new)
        self._files.create(new)
        self._files.write(new, 0, data)
        self._files.sync(new)
        self._files.rename(new, self._path)
        self._size = len(data)
        self._crc = zlib.crc32(data)

    @property
    def end(self) -> tuple[int, int]:
        """Size and CRC-32 of the file, as it should be."""
        return self._size, self._crc

    def recover(self, name: str, end: tuple[int, int] | None = None) -> TableRecovery:
        """Read the file, if there is one; cut a torn write at its end.

        If it is damaged, change nothing.

        `end`: size and CRC-32 of the file at the last clean stop, if known.
        """
        if not self._files.disk.exists(self._path):
            return TableRecovery(name, 0)
        self._files.suspect(self._path)
        data = self._files.read(self._path, 0, self._files.size(self._path))
        records = torn = 0
        damage: list[TableDamage] = []
        for found in decode(data):
            if isinstance(found, Entry):
                self._set(found.key, found.value)
                records += 1
            elif found.torn and end is None:
                torn = found.size
            else:
                damage.append(TableDamage(self._path, found.position, found.size, found.key))
        self._size = len(data) - torn
        self._crc = zlib.crc32(memoryview(data)[: self._size])
        if end is not None and self.end != end and not damage:
            problem = (
                f"is not as the last clean stop left it: {self._size} bytes in place of {end[0]}"
            )
            damage.append(TableDamage(self._path, 0, self._size, problem=problem))
        if torn and not damage:
            self._files.truncate(self._path, self._size)
        cut_at = self._size if torn else 0
        return TableRecovery(name, records, torn, cut_at, tuple(damage))
