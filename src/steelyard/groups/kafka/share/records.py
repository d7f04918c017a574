"""The stored state of share groups: after a restart, members continue with their epochs.

Rows of one table: one per group, with its target assignment, and one per member, with the keys of
`group_rows`. What share partitions know of their records is not here: it is kept by the
brokers that lead them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from steelyard.decoding import prepared
from steelyard.groups.kafka.group_rows import GroupRows
from steelyard.groups.kafka.share.member import ShareGroupMember
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
        self._rows = GroupRows(table)

    def write(
        self,
        group_id: str,
        row: ShareGroupRow | None,
        members: Mapping[str, ShareGroupMember | None],
    ) -> None:
        """Write the group's row, unless None, then the changed members; None deletes a member.

        Raises StorageError, also for a row that is too large; then nothing is written.
        """
        self._rows.write(
            group_id,
            None if row is None else msgspec.json.encode(row),
            {
                member_id: None if member is None else msgspec.json.encode(member)
                for member_id, member in members.items()
            },
        )

    def erase(self, group_id: str, members: Iterable[str]) -> None:
        """Delete all rows of a group. Raises StorageError."""
        self._rows.erase(group_id, members)

    def restored(self) -> dict[str, StoredShareGroup]:
        """Return all groups by id. Unreadable rows are ignored."""
        found: dict[str, StoredShareGroup] = {}
        for group_id, member_id, value in self._rows.each():
            group = found.setdefault(group_id, StoredShareGroup(ShareGroupRow(), {}))
            try:
                if member_id is not None:
                    group.members[member_id] = _read_member.decode(value)
                else:
                    group.row = _read_group.decode(value)
            except (msgspec.MsgspecError, ValueError):
                continue
        return dict(sorted(found.items()))
