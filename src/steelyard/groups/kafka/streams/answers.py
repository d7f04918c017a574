"""Answers to heartbeats of streams groups.

A member is told its tasks when it joins, and when they have changed since it reported those that it
was told before (`telling`). The endpoints of all members are told to those that do not know them.

ASSIGNMENT_DELAYED makes a member stop its tasks. So it is told to members that have not been in a
target yet; Kafka tells it to all.
Source: GroupMetadataManager.streamsGroupHeartbeat.
"""

from __future__ import annotations

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskShare
from steelyard.groups.kafka.streams.configuration import StreamsStatus
from steelyard.groups.kafka.streams.description import endpoints_of, task_ids
from steelyard.groups.kafka.streams.group import StreamsGroup
from steelyard.groups.kafka.streams.member import StreamsGroupMember
from steelyard.wire.kafka.messages.streams_groups import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


class AssignmentWait(msgspec.Struct, frozen=True):
    """Why the group has no target yet, and until when (ms since the epoch)."""

    until: int
    text: str


def answer(
    group: StreamsGroup,
    before: StreamsGroupMember,
    member: StreamsGroupMember,
    request: StreamsGroupHeartbeatRequest,
    owned: TaskShare | None,
    delay: AssignmentWait | None,
    interval_ms: int,
) -> StreamsGroupHeartbeatResponse:
    """Return the answer to a heartbeat. Tasks behind an endpoint increase the endpoints' epoch.

    `before`, `member`: the member before the heartbeat and after it; `owned`: the tasks that it
    reports to own, None if it reports none.
    """
    assigned, reports = member.assigned.share, owned is not None
    told = group.told.tell(member.member_id, assigned, before.assigned.share, reports=reports)
    if told is None and request.member_epoch == 0:
        told = assigned
    if told is not None and member.endpoint is not None:
        group.endpoints_changed()
    knows_endpoints = group.endpoint_epoch == request.endpoint_information_epoch
    return StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
        status=_statuses(group, member, delay),
        active_tasks=None if told is None else task_ids(told.active),
        standby_tasks=None if told is None else task_ids(told.standby),
        warmup_tasks=None if told is None else (),
        endpoint_information_epoch=group.endpoint_epoch,
        partitions_by_user_endpoint=None if knows_endpoints else endpoints_of(group),
    )


def _statuses(
    group: StreamsGroup, member: StreamsGroupMember, delay: AssignmentWait | None
) -> list[Status]:
    found: list[Status] = []
    if member.topology_epoch < group.topology.epoch:
        text = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology"
            f" epoch {group.topology.epoch}."
        )
        found.append(Status(StreamsStatus.STALE_TOPOLOGY, text))
    if delay is not None and group.awaits_target(member.member_id):
        found.append(Status(StreamsStatus.ASSIGNMENT_DELAYED, delay.text))
    if group.configured.status is not None:
        found.append(group.configured.status)
    if group.shutdown_by is not None:
        text = (
            f"Streams group member {group.shutdown_by} encountered a fatal error and requested a"
            " shutdown for the entire application."
        )
        found.append(Status(StreamsStatus.SHUTDOWN_APPLICATION, text))
    return found
