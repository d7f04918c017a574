"""Records that every broker of a cluster has, on its own disk, in versions.

Each record has a name, and a `version` that every change increments. Every broker has all records,
and each may change one: of two versions of a record the higher one counts on all brokers (of equal
ones, that with the greater bytes), in whatever order they hear of them. A deleted record stays as a
version that says so, so that a broker that was away does not bring it back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ProtocolError
from steelyard.store.tables import Table

VERSION_MAX = 2**53


def check_version(version: int, of: str) -> None:
    """Raise ProtocolError if another broker could not have sent this version."""
    if not 0 <= version <= VERSION_MAX:
        raise ProtocolError(f"{version} is not the version of {of}")


class Versioned(Protocol):
    """A record: a struct of msgspec with these properties."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def is_deleted(self) -> bool: ...


R = TypeVar("R", bound=Versioned)


class VersionedStore(Generic[R]):
    """The records on this broker's disk. Methods that write raise StorageError.

    Most records, and most deleted ones that are remembered, is `limit`; the oldest of the deleted
    ones are forgotten first.
    """

    def __init__(self, table: Table, kind: type[R]) -> None:
        """Read the table; what cannot be read is left out."""
        self._table = table
        self._records: dict[str, R] = {}
        for name, data in table.items():
            try:
                self._records[name] = msgspec.json.decode(data, type=prepared(kind))
            except msgspec.DecodeError:
                continue
        self._digest = ""
        self.changes = 0
        """Incremented with every change."""

    @property
    def limit(self) -> int:
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of records, deleted ones included."""
        return len(self._records)

    def get(self, name: str) -> R | None:
        """Return a record; None if there is none, or not any more."""
        record = self._records.get(name)
        return None if record is None or record.is_deleted else record

    def names(self) -> list[str]:
        """Return the names of all records that are not deleted, sorted."""
        return sorted(name for name, record in self._records.items() if not record.is_deleted)

    def all(self) -> list[R]:
        """Return all records, deleted ones included, by name."""
        return [self._records[name] for name in sorted(self._records)]

    def next_version(self, name: str) -> int:
        """Return the version of the next change of a record."""
        known = self._records.get(name)
        return 1 if known is None else known.version + 1

    @property
    def digest(self) -> str:
        """A text that is the same on two brokers that have the same records."""
        if not self._digest and self._records:
            found = hashlib.sha256()
            for record in self.all():
                found.update(_encoded(record) + b"\n")
            self._digest = found.hexdigest()
        return self._digest

    def merge(self, records: Iterable[R]) -> list[R]:
        """Take in versions of records that are newer than the known ones; return those."""
        newer: dict[str, R] = {}
        for record in records:
            known = newer.get(record.name) or self._records.get(record.name)
            if known is None or _rank(known) < _rank(record):
                newer[record.name] = record
        if not newer:
            return []
        dropped = self._forgotten(newer)
        pairs: list[tuple[str, bytes | None]] = [
            (name, _encoded(record)) for name, record in newer.items()
        ]
        self._table.put_many([*pairs, *((name, None) for name in dropped)])
        self._records.update(newer)
        for name in dropped:
            del self._records[name]
        self._digest = ""
        self.changes += 1
        return list(newer.values())

    def _forgotten(self, newer: Mapping[str, R]) -> list[str]:
        """Return the deleted records to forget, because there are too many with these."""
        deleted = [
            name
            for name, record in self._records.items()
            if record.is_deleted and name not in newer
        ]
        count = len(deleted) + sum(record.is_deleted for record in newer.values())
        return deleted[: max(0, count - self.limit)]

    def check(self) -> None:
        for name, record in self._records.items():
            assert record.name == name
            assert self._table.get(name) is not None


def _encoded(record: Versioned) -> bytes:
    return msgspec.json.encode(record, order="sorted")


def _rank(record: Versioned) -> tuple[int, bytes]:
    return record.version, _encoded(record)
