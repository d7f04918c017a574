"""The stored state of share groups: after a restart, members continue with their epochs.

Rows of one table: one per group, with its target assignment, and one per member, with the keys of
`consumer.records`. What share partitions know of their records is not here: it is kept by the
brokers that lead them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import StorageError
from steelyard.groups.kafka.consumer.records import key_of, read_key
from steelyard.groups.kafka.share.member import ShareGroupMember
from steelyard.store.table_records import VALUE_BYTES_MAX
from steelyard.store.tables import Table


class ShareGroupRow(msgspec.Struct, frozen=True):
    """A group without its members.

    `targets`: the target assignment, by member and topic; `partitions`: numbers of partitions by
    topic, as last looked up; `topic_ids`: theirs, in hex.
    """

    epoch: int = 0
    assignment_epoch: int = 0
    assigned_at: int = 0
    targets: dict[str, dict[str, list[int]]] = {}
    partitions: dict[str, int] = {}
    topic_ids: dict[str, str] = {}


class StoredShareGroup(msgspec.Struct):
    """A group as read back."""

    row: ShareGroupRow
    members: dict[str, ShareGroupMember]


_read_group = msgspec.json.Decoder(prepared(ShareGroupRow))
_read_member = msgspec.json.Decoder(prepared(ShareGroupMember))


class ShareGroupRecords:
    """The rows of all share groups."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def write(
        self,
        group_id: str,
        row: ShareGroupRow | None,
        members: Mapping[str, ShareGroupMember | None],
    ) -> None:
        """Write the group's row, unless None, then the changed members; None deletes a member.

        Raises StorageError, also for a row that is too large; then nothing is written.
        """
        pairs: list[tuple[str, bytes | None]] = []
        if row is not None:
            pairs.append((key_of(group_id), msgspec.json.encode(row)))
        pairs += [
            (key_of(group_id, one), None if member is None else msgspec.json.encode(member))
            for one, member in members.items()
        ]
        if any(value is not None and len(value) > VALUE_BYTES_MAX for _, value in pairs):
            raise StorageError(f"group {group_id} is too large to be stored")
        self._table.put_many(pairs)

    def erase(self, group_id: str, members: Iterable[str]) -> None:
        """Delete all rows of a group. Raises StorageError."""
        pairs: list[tuple[str, bytes | None]] = [(key_of(group_id, one), None) for one in members]
        self._table.put_many([*pairs, (key_of(group_id), None)])

    def restored(self) -> dict[str, StoredShareGroup]:
        """Return all groups by id. Unreadable rows are ignored."""
        found: dict[str, StoredShareGroup] = {}
        for key, value in self._table.items():
            try:
                group_id, *names = read_key(key)
                group = found.setdefault(group_id, StoredShareGroup(ShareGroupRow(), {}))
                if names:
                    group.members[names[0]] = _read_member.decode(value)
                else:
                    group.row = _read_group.decode(value)
            except (msgspec.MsgspecError, ValueError):
                continue
        return dict(sorted(found.items()))
