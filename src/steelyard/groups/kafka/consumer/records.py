"""The stored state of consumer groups: after a restart, members continue with their epochs.

Rows of one table (`group_rows`): one per group, with its target assignment, and one per member. A
kill between them leaves members behind their group, which then catch up as they do anyway. Each
row has the ids of its topics: the group may know that a topic was deleted and created again, while
a member's row still means the former one. Kafka stores the same in __consumer_offsets
(GroupCoordinatorRecordHelpers.java).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.groups.kafka.consumer.member import (
    RECONCILIATION,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
    Holdings,
    Move,
)
from steelyard.groups.kafka.consumer.reconciliation import Partitions
from steelyard.groups.kafka.group_rows import GroupRows
from steelyard.store.tables import Table
from steelyard.types import TopicPartition


class OwnedPartition(NamedTuple):
    """A partition that a member has had since `epoch`."""

    topic: str
    partition: int
    epoch: int


class GroupRow(msgspec.Struct, frozen=True):
    """A group without its members.

    `targets`: the target assignment, by member and topic; `partitions`: numbers of partitions by
    topic, as last looked up; `topic_ids`: in hex, of topics in assignments, which may no longer
    exist.
    """

    epoch: int = 0
    assignment_epoch: int = 0
    assigned_at: int = 0
    targets: dict[str, dict[str, list[int]]] = {}
    partitions: dict[str, int] = {}
    topic_ids: dict[str, str] = {}


class MemberRow(msgspec.Struct, frozen=True):
    """A `ConsumerGroupMember`. `topic_ids`: in hex, of the topics that it holds."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    regex: str | None
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: ConsumerGroupMemberState
    assigned: tuple[OwnedPartition, ...]
    revoking: tuple[OwnedPartition, ...]
    topic_ids: dict[str, str] = {}
    classic: ClassicMemberMetadata | None = None


class Stored(msgspec.Struct):
    """A group as read back."""

    row: GroupRow
    members: dict[str, ConsumerGroupMember]


_read_group = msgspec.json.Decoder(prepared(GroupRow))
_read_member = msgspec.json.Decoder(prepared(MemberRow))


class Records:
    """The rows of all groups."""

    def __init__(self, table: Table) -> None:
        self._rows = GroupRows(table)

    def write(
        self,
        group_id: str,
        row: GroupRow | None,
        members: Mapping[str, ConsumerGroupMember | None],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        """Write the group's row, unless None, then the changed members; None deletes a member.

        `topic_ids`: of the topics in assignments. Raises StorageError, also for a row that is too
        large; then nothing is written.
        """
        self._rows.write(
            group_id,
            None if row is None else msgspec.json.encode(row),
            {
                member_id: None if member is None else _row_of(member, topic_ids)
                for member_id, member in members.items()
            },
        )

    def erase(self, group_id: str, members: Iterable[str]) -> None:
        """Delete all rows of a group. Raises StorageError."""
        self._rows.erase(group_id, members)

    def restored(self) -> dict[str, Stored]:
        """Return all groups by id, with their members sorted. Unreadable rows are ignored."""
        rows: dict[str, GroupRow] = {}
        found: dict[str, dict[str, MemberRow]] = {}
        for group_id, member_id, value in self._rows.each():
            try:
                if member_id is not None:
                    found.setdefault(group_id, {})[member_id] = _read_member.decode(value)
                else:
                    rows[group_id] = _read_group.decode(value)
            except (msgspec.MsgspecError, ValueError):
                continue
        return {
            group_id: _stored(rows.get(group_id, GroupRow()), found.get(group_id, {}))
            for group_id in sorted({*rows, *found})
        }


def former_name(topic: str, topic_id: str) -> str:
    """Return the name in assignments of a deleted topic whose successor has its name.

    No topic can have such a name.
    """
    return f"{topic}\0{topic_id}"


def _stored(row: GroupRow, rows: Mapping[str, MemberRow]) -> Stored:
    topic_ids = dict(row.topic_ids)
    members = {one: _member_of(one, rows[one], topic_ids) for one in sorted(rows)}
    return Stored(msgspec.structs.replace(row, topic_ids=topic_ids), members)


def _row_of(member: ConsumerGroupMember, topic_ids: Mapping[str, bytes]) -> bytes:
    held = sorted({partition.topic for partition in (*member.assigned, *member.revoking)})
    row = MemberRow(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.host,
        member.rebalance_timeout_ms,
        member.topics,
        member.regex,
        member.assignor,
        member.epoch,
        member.previous_epoch,
        member.state,
        _held(member.assigned),
        _held(member.revoking),
        {topic: topic_ids[topic].hex() for topic in held if topic in topic_ids},
        member.classic,
    )
    return msgspec.json.encode(row)


def _member_of(member_id: str, row: MemberRow, topic_ids: dict[str, str]) -> ConsumerGroupMember:
    """Return the member in a row.

    `topic_ids`: the group's; those of topics that only the member knows are added.
    """
    names: dict[str, str] = {}
    for topic, topic_id in row.topic_ids.items():
        if topic_ids.setdefault(topic, topic_id) != topic_id:
            names[topic] = former_name(topic, topic_id)
            topic_ids[names[topic]] = topic_id
    return ConsumerGroupMember(
        member_id,
        row.instance_id,
        row.rack_id,
        row.client_id,
        row.host,
        row.rebalance_timeout_ms,
        row.topics,
        row.regex,
        row.assignor,
        row.epoch,
        row.previous_epoch,
        RECONCILIATION.move(None, Move.RESTORED, row.state),
        _holdings(row.assigned, names),
        _holdings(row.revoking, names),
        row.classic,
    )


def partitions_of(row: Mapping[str, list[int]]) -> Partitions:
    """Return the partitions of one member in a row."""
    return frozenset(
        TopicPartition(topic, partition) for topic, numbers in row.items() for partition in numbers
    )


def _held(holdings: Holdings) -> tuple[OwnedPartition, ...]:
    return tuple(OwnedPartition(*partition, epoch) for partition, epoch in sorted(holdings.items()))


def _holdings(
    held: Iterable[OwnedPartition], names: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Return the partitions in a row. `names`: of topics with another name than in the row."""
    return {
        TopicPartition(names.get(topic, topic), partition): epoch
        for topic, partition, epoch in held
    }
