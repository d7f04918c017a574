"""The stored state of streams groups: after a restart, members continue with their epochs.

Rows of one table (`group_rows`): one per group, with its topology and its target assignment, and
one per member. A kill between them leaves members behind their group, which then catch up as they
do anyway. Kafka stores the same in __consumer_offsets (StreamsCoordinatorRecordHelpers.java).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.decoding import prepared
from steelyard.groups.kafka.group_rows import GroupRows
from steelyard.groups.kafka.streams.member import (
    TASK_RECONCILIATION,
    HeldTasks,
    Move,
    StreamsGroupMember,
    StreamsMemberState,
)
from steelyard.store.tables import Table
from steelyard.wire.kafka.messages.streams_groups import Endpoint, Topology


class SeenTopic(NamedTuple):
    """A topic as last looked up. `topic_id`: in hex."""

    partitions: int
    topic_id: str


class TaskNumbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tasks by subtopology and number of the partition."""

    active: dict[str, list[int]] = {}
    standby: dict[str, list[int]] = {}


class HeldNumbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tasks of a member, by subtopology. `active`: pairs of number and epoch."""

    active: dict[str, list[tuple[int, int]]] = {}
    standby: dict[str, list[int]] = {}


class StreamsGroupRow(msgspec.Struct, frozen=True):
    """A group without its members.

    `validated_epoch`: of the topology for which all topics were there, -1 for none;
    `standby_replicas`: the setting for which there has been a rebalance; `topics`: those that the
    topology requires; `targets`: the target assignment, by member.
    """

    epoch: int
    assignment_epoch: int
    assigned_at: int
    topology: Topology
    validated_epoch: int = -1
    standby_replicas: int = 0
    topics: dict[str, SeenTopic] = {}
    targets: dict[str, TaskNumbers] = {}


class StreamsMemberRow(msgspec.Struct, frozen=True):
    """A `StreamsGroupMember`."""

    rack_id: str | None
    client_id: str
    host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None
    client_tags: dict[str, str]
    epoch: int
    previous_epoch: int
    state: StreamsMemberState
    assigned: HeldNumbers
    revoking: HeldNumbers


class StoredStreamsGroup(msgspec.Struct):
    """A group as read back. `row`: None if it could not be read."""

    row: StreamsGroupRow | None
    members: dict[str, StreamsGroupMember]


_read_group = msgspec.json.Decoder(prepared(StreamsGroupRow))
_read_member = msgspec.json.Decoder(prepared(StreamsMemberRow))


class StreamsRecords:
    """The rows of all groups."""

    def __init__(self, table: Table) -> None:
        self._rows = GroupRows(table)

    def write(
        self,
        group_id: str,
        row: StreamsGroupRow | None,
        members: Mapping[str, StreamsGroupMember | None],
    ) -> None:
        """Write the group's row, unless None, then the changed members; None deletes a member.

        Raises StorageError, also for a row that is too large; then nothing is written.
        """
        self._rows.write(
            group_id,
            None if row is None else msgspec.json.encode(row),
            {
                member_id: None if member is None else _row_of(member)
                for member_id, member in members.items()
            },
        )

    def erase(self, group_id: str, members: Iterable[str]) -> None:
        """Delete all rows of a group. Raises StorageError."""
        self._rows.erase(group_id, members)

    def restored(self) -> dict[str, StoredStreamsGroup]:
        """Return all groups by id, with their members sorted. Unreadable rows are ignored."""
        found: dict[str, StoredStreamsGroup] = {}
        for group_id, member_id, value in self._rows.each():
            stored = found.setdefault(group_id, StoredStreamsGroup(None, {}))
            try:
                if member_id is None:
                    stored.row = _read_group.decode(value)
                else:
                    stored.members[member_id] = _member_of(member_id, _read_member.decode(value))
            except msgspec.MsgspecError:
                continue
        for stored in found.values():
            stored.members = dict(sorted(stored.members.items()))
        return dict(sorted(found.items()))


def numbers_of(share: TaskShare) -> TaskNumbers:
    """Return a share as it is stored."""
    return TaskNumbers(tasks_by_subtopology(share.active), tasks_by_subtopology(share.standby))


def share_of(row: TaskNumbers) -> TaskShare:
    """Return the share in a row."""
    return TaskShare(frozenset(_tasks(row.active)), frozenset(_tasks(row.standby)))


def tasks_by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """Return the numbers of tasks by subtopology, sorted."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return found


def _tasks(row: Mapping[str, Iterable[int]]) -> Iterable[TaskId]:
    return (TaskId(name, number) for name, numbers in row.items() for number in numbers)


def _held(tasks: HeldTasks) -> HeldNumbers:
    active: dict[str, list[tuple[int, int]]] = {}
    for (subtopology_id, partition), epoch in sorted(tasks.active.items()):
        active.setdefault(subtopology_id, []).append((partition, epoch))
    return HeldNumbers(active, tasks_by_subtopology(tasks.standby))


def _held_of(row: HeldNumbers) -> HeldTasks:
    active = {
        TaskId(name, number): epoch
        for name, numbers in row.active.items()
        for number, epoch in numbers
    }
    return HeldTasks(active, frozenset(_tasks(row.standby)))


def _row_of(member: StreamsGroupMember) -> bytes:
    row = StreamsMemberRow(
        member.rack_id,
        member.client_id,
        member.host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        member.endpoint,
        dict(member.client_tags),
        member.epoch,
        member.previous_epoch,
        member.state,
        _held(member.assigned),
        _held(member.revoking),
    )
    return msgspec.json.encode(row)


def _member_of(member_id: str, row: StreamsMemberRow) -> StreamsGroupMember:
    return StreamsGroupMember(
        member_id,
        row.rack_id,
        row.client_id,
        row.host,
        row.rebalance_timeout_ms,
        row.topology_epoch,
        row.process_id,
        row.endpoint,
        row.client_tags,
        row.epoch,
        row.previous_epoch,
        TASK_RECONCILIATION.move(None, Move.RESTORED, row.state),
        _held_of(row.assigned),
        _held_of(row.revoking),
    )
