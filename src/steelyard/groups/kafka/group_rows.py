"""The table of a kind of group: a row for each group, and one for each of its members.

Keys are JSON arrays, [group id] and [group id, member id]. A group's row is written before those of
its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import StorageError
from steelyard.store.table_records import VALUE_BYTES_MAX
from steelyard.store.tables import Table

_key = msgspec.json.Encoder()
_read_key = msgspec.json.Decoder(prepared(tuple[str, ...]))


class GroupRows:
    """The rows of all groups of a kind."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def write(self, group_id: str, row: bytes | None, members: Mapping[str, bytes | None]) -> None:
        """Write the group's row, unless None, then those of members; None deletes a member's.

        Raises StorageError, also for a row that is too large; then nothing is written.
        """
        pairs: list[tuple[str, bytes | None]] = []
        if row is not None:
            pairs.append((key_of(group_id), row))
        pairs += [(key_of(group_id, member_id), value) for member_id, value in members.items()]
        if any(value is not None and len(value) > VALUE_BYTES_MAX for _, value in pairs):
            raise StorageError(f"group {group_id} is too large to be stored")
        self._table.put_many(pairs)

    def erase(self, group_id: str, members: Iterable[str]) -> None:
        """Delete all rows of a group. Raises StorageError."""
        pairs: list[tuple[str, bytes | None]] = [(key_of(group_id, one), None) for one in members]
        self._table.put_many([*pairs, (key_of(group_id), None)])

    def each(self) -> Iterator[tuple[str, str | None, bytes]]:
        """Yield (group id, member id, row); None for the group's own row."""
        for key, value in self._table.items():
            try:
                group_id, *names = read_key(key)
            except (msgspec.MsgspecError, ValueError):
                continue
            yield group_id, names[0] if names else None, value


def key_of(group_id: str, *member_id: str) -> str:
    return _key.encode((group_id, *member_id)).decode()


def read_key(key: str) -> tuple[str, ...]:
    """Return the group id and, in the key of a member, the member id."""
    return _read_key.decode(key)
