"""A table: a small durable map from text to bytes, for topics, groups and committed offsets.

The file is a log of records; the last record of a key counts. When the log has grown to several times
the size of what lives, it is replaced by a snapshot, in one step. All of it is in memory as well.

    record: uint32 CRC of the rest, uint32 key size, uint32 value size (0xFFFFFFFF: the key is
            deleted), key in UTF-8, value; big-endian
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import ItemsView, Iterable
from contextlib import suppress

from steelyard.errors import StorageError
from steelyard.store.files import Files
from steelyard.store.recovery import TableRecovery

GROWTH_MAX = 4
"""The log is replaced when it is so many times larger than a snapshot would be."""

SNAPSHOT_BYTES_MIN = 64 * 1024
"""But not while it is smaller than this."""

VALUE_BYTES_MAX = 64 * 1024 * 1024

_HEAD = struct.Struct(">III")
_SIZES = struct.Struct(">II")
_DELETED = 0xFFFFFFFF


class Table:
    """See the module's text. Made by `Store.table`. Iterates in the order in which keys first came."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._values: dict[str, bytes] = {}
        self._size = 0
        self._live_bytes = 0
        self._snapshot_above = SNAPSHOT_BYTES_MIN

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def items(self) -> ItemsView[str, bytes]:
        """All pairs; do not change the table while iterating."""
        return self._values.items()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def put(self, key: str, value: bytes) -> None:
        """Set a value. One write; on StorageError nothing has changed."""
        self.put_many(((key, value),))

    def delete(self, key: str) -> None:
        """Remove a key, which need not be there. One write."""
        if key in self._values:
            self.put_many(((key, None),))

    def put_many(self, pairs: Iterable[tuple[str, bytes | None]]) -> None:
        """Set values, and delete the keys that come with None, in order and in one write.

        A kill in the middle of the write keeps a prefix of the pairs.
        """
        pairs = list(pairs)
        data = b"".join([_record(key, value) for key, value in pairs])
        if not data:
            return
        if not self._size:
            self._files.create(self._path)
        self._files.write(self._path, self._size, data)
        self._size += len(data)
        for key, value in pairs:
            self._set(key, value)
        if self._size > self._snapshot_above:
            self._shrink()

    def _set(self, key: str, value: bytes | None) -> None:
        old = self._values.get(key)
        if old is not None:
            self._live_bytes -= _record_size(key, old)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
            self._live_bytes += _record_size(key, value)

    def _shrink(self) -> None:
        if self._size > GROWTH_MAX * self._live_bytes:
            # The log stands and is only longer than it need be; this is tried again when it has doubled.
            with suppress(StorageError):
                self._write_snapshot()
        self._snapshot_above = max(SNAPSHOT_BYTES_MIN, 2 * self._size)

    def _write_snapshot(self) -> None:
        """Replace the log. Synced before it takes the name, lest a power cut leave an empty table."""
        data = b"".join([_record(key, value) for key, value in self._values.items()])
        new = self._path + ".new"
        self._files.remove(new)
        self._files.create(new)
        self._files.write(new, 0, data)
        self._files.sync(new)
        self._files.rename(new, self._path)
        self._size = len(data)

    def recover(self, name: str) -> TableRecovery:
        """Read the file, if there is one; cut what follows the last whole record."""
        if not self._files.disk.exists(self._path):
            return TableRecovery(name, 0)
        self._files.suspect(self._path)
        data = self._files.read(self._path, 0, self._files.size(self._path))
        records = position = 0
        while (size := self._take(data, position)) > 0:
            position += size
            records += 1
        if position < len(data):
            self._files.truncate(self._path, position)
        self._size = position
        return TableRecovery(name, records, len(data) - position)

    def _take(self, data: bytes, position: int) -> int:
        """Apply the record at `position`; its size, 0 when there is no whole one."""
        if position + _HEAD.size > len(data):
            return 0
        crc: int
        key_size: int
        value_size: int
        crc, key_size, value_size = _HEAD.unpack_from(data, position)
        key_start = position + _HEAD.size
        key_end = key_start + key_size
        end = key_end if value_size == _DELETED else key_end + value_size
        if end > len(data) or zlib.crc32(memoryview(data)[position + 4 : end]) != crc:
            return 0
        key = data[key_start:key_end].decode()
        self._set(key, None if value_size == _DELETED else data[key_end:end])
        return end - position


def _record(key: str, value: bytes | None) -> bytes:
    name = key.encode()
    if value is None:
        rest = _SIZES.pack(len(name), _DELETED) + name
    else:
        assert len(value) <= VALUE_BYTES_MAX, f"a value of {len(value)} bytes"
        rest = _SIZES.pack(len(name), len(value)) + name + value
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def _record_size(key: str, value: bytes) -> int:
    return _HEAD.size + len(key.encode()) + len(value)
