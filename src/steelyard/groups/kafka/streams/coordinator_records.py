"""What the table of streams groups says, as the records that Kafka keeps of it.

Source: streams/StreamsCoordinatorRecordHelpers.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from steelyard.decoding import prepared
from steelyard.groups.kafka.coordinator_log import CoordinatorRecord, coordinator_record
from steelyard.groups.kafka.group_rows import read_key
from steelyard.groups.kafka.streams.member import StreamsMemberState
from steelyard.groups.kafka.streams.records import HeldNumbers, StreamsGroupRow, StreamsMemberRow
from steelyard.wire.kafka.messages import coordinator_records as records
from steelyard.wire.kafka.messages.coordinator_records import (
    STREAMS_GROUP_CURRENT,
    STREAMS_GROUP_MEMBER_METADATA,
    STREAMS_GROUP_METADATA,
    STREAMS_GROUP_TARGET_MEMBER,
    STREAMS_GROUP_TARGET_METADATA,
    STREAMS_GROUP_TOPOLOGY,
    CurrentTaskIds,
)
from steelyard.wire.kafka.messages.streams_groups import KeyValue, TaskIds

MEMBER_STATES = {
    StreamsMemberState.STABLE: 1,
    StreamsMemberState.UNREVOKED_TASKS: 2,
    StreamsMemberState.UNRELEASED_TASKS: 3,
}
"""Source: streams/MemberState.java."""

_read_group = msgspec.json.Decoder(prepared(StreamsGroupRow)).decode
_read_member = msgspec.json.Decoder(prepared(StreamsMemberRow)).decode


def streams_group_records(key: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    """Return the records of a row of `kafka_streams_groups`: a group, or a member."""
    group, *members = read_key(key)
    if members:
        return _member_records(group, members[0], row)
    return _group_records(group, row)


def _group_records(group: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    name = records.GroupKey(group)
    if row is None:
        yield coordinator_record(group, STREAMS_GROUP_TARGET_METADATA, name)
        yield coordinator_record(group, STREAMS_GROUP_METADATA, name)
        yield coordinator_record(group, STREAMS_GROUP_TOPOLOGY, name)
        return
    found = _read_group(row)
    topology = records.StreamsGroupTopologyValue(found.topology.epoch, found.topology.subtopologies)
    yield coordinator_record(group, STREAMS_GROUP_TOPOLOGY, name, topology)
    configs = (KeyValue("num.standby.replicas", str(found.standby_replicas)),)
    epoch = records.StreamsGroupMetadataValue(
        found.epoch,
        validated_topology_epoch=found.validated_epoch,
        last_assignment_configs=configs,
    )
    yield coordinator_record(group, STREAMS_GROUP_METADATA, name, epoch)
    for member_id, share in found.targets.items():
        target = records.StreamsGroupTargetAssignmentMemberValue(
            _task_ids(share.active), _task_ids(share.standby)
        )
        member = records.MemberKey(group, member_id)
        yield coordinator_record(group, STREAMS_GROUP_TARGET_MEMBER, member, target)
    assigned = records.StreamsGroupTargetAssignmentMetadataValue(
        found.assignment_epoch, found.assigned_at
    )
    yield coordinator_record(group, STREAMS_GROUP_TARGET_METADATA, name, assigned)


def _member_records(group: str, member_id: str, row: bytes | None) -> Iterable[CoordinatorRecord]:
    name = records.MemberKey(group, member_id)
    if row is None:
        yield coordinator_record(group, STREAMS_GROUP_CURRENT, name)
        yield coordinator_record(group, STREAMS_GROUP_TARGET_MEMBER, name)
        yield coordinator_record(group, STREAMS_GROUP_MEMBER_METADATA, name)
        return
    member = _read_member(row)
    said = records.StreamsGroupMemberMetadataValue(
        None,
        member.rack_id,
        member.client_id,
        member.host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        member.endpoint,
        [KeyValue(key, value) for key, value in sorted(member.client_tags.items())],
    )
    yield coordinator_record(group, STREAMS_GROUP_MEMBER_METADATA, name, said)
    current = records.StreamsGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        MEMBER_STATES[member.state],
        active_tasks=_active(member.assigned),
        standby_tasks=_standby(member.assigned),
        active_tasks_pending_revocation=_active(member.revoking),
        standby_tasks_pending_revocation=_standby(member.revoking),
    )
    yield coordinator_record(group, STREAMS_GROUP_CURRENT, name, current)


def _task_ids(tasks: Mapping[str, list[int]]) -> list[TaskIds]:
    return [TaskIds(name, numbers) for name, numbers in tasks.items()]


def _active(held: HeldNumbers) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(name, [number for number, _ in tasks], [epoch for _, epoch in tasks])
        for name, tasks in held.active.items()
    ]


def _standby(held: HeldNumbers) -> list[CurrentTaskIds]:
    return [CurrentTaskIds(name, numbers) for name, numbers in held.standby.items()]
