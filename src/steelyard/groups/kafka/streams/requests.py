"""Validation of StreamsGroupHeartbeat for any group, and of a member's claims.

Source: GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid and
...IsUsingUnsupportedFeatures, GroupMetadataManager.throwIfStreamsGroupMemberEpochIsInvalid and
throwIfRequestContainsInvalidTasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskId, TaskShare
from steelyard.groups.kafka.streams.configuration import TASKS_MAX
from steelyard.groups.kafka.streams.member import LEAVE, StreamsGroupMember
from steelyard.groups.kafka.streams.topology import topics_of
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

LEFT_FOR_NOW = -2
"""The epoch with which a static member would leave temporarily."""

CHARACTERS_MAX = 4 * 1024 * 1024
"""Most characters that a member sends about itself and the topology, which are stored.

Kafka limits only the request.
"""


class StreamsRefusal(msgspec.Struct, frozen=True):
    """Why a request is refused; `message` is for people."""

    code: ErrorCode
    message: str

    def response(self) -> StreamsGroupHeartbeatResponse:
        return StreamsGroupHeartbeatResponse(error_code=self.code, error_message=self.message)


def refuse_invalid(request: StreamsGroupHeartbeatRequest) -> StreamsRefusal | None:
    """Return INVALID_REQUEST with the reason; None for a valid request."""
    for text in (*_unsupported(request), *_invalid(request)):
        return StreamsRefusal(ErrorCode.INVALID_REQUEST, text)
    return None


def _unsupported(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    if request.instance_id is not None:
        yield "Static membership is not yet supported."
    if request.task_offsets is not None:
        yield "TaskOffsets are not supported yet."
    if request.task_end_offsets is not None:
        yield "TaskEndOffsets are not supported yet."
    if request.warmup_tasks:
        yield "WarmupTasks are not supported yet."
    topology = request.topology
    if topology is not None and any(each.source_topic_regex for each in topology.subtopologies):
        yield "Regular expressions for source topics are not supported yet."


def _invalid(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    for value, field in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            yield f"{field} can't be empty."
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == 0:
        if request.rebalance_timeout_ms == -1:
            yield "RebalanceTimeoutMs must be provided in first request."
        for given, field in zip(tasks, ("Active", "Standby", "Warmup"), strict=True):
            if given:
                yield f"{field}Tasks must be empty when (re-)joining."
        if request.topology is None:
            yield "Topology must be non-null when (re-)joining."
    elif request.topology is not None:
        yield "Topology can only be provided when (re-)joining."
    if request.member_epoch == LEFT_FOR_NOW:
        yield "InstanceId can't be null."
    if request.member_epoch < LEFT_FOR_NOW:
        yield f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    if any(given is None for given in tasks) and any(given is not None for given in tasks):
        yield "If one task-type is non-null, all must be non-null."
    if sum(len(each.partitions) for given in tasks for each in given or ()) > TASKS_MAX:
        yield f"A member has at most {TASKS_MAX} tasks."
    if _characters(request) > CHARACTERS_MAX:
        yield f"The request is longer than {CHARACTERS_MAX} characters."


def _characters(request: StreamsGroupHeartbeatRequest) -> int:
    """Return the number of characters that are stored of a request."""
    endpoint = "" if request.user_endpoint is None else request.user_endpoint.host
    told = [request.group_id, request.member_id, request.rack_id or "", request.process_id or ""]
    told += [endpoint, *(each.key + each.value for each in request.client_tags or ())]
    subtopologies = () if request.topology is None else request.topology.subtopologies
    for each in subtopologies:
        told += [each.subtopology_id, *topics_of(each)]
        for topic in (*each.state_changelog_topics, *each.repartition_source_topics):
            told += [config.key + config.value for config in topic.topic_configs]
    groups = sum(
        len(group.source_topics) + len(group.repartition_source_topics)
        for each in subtopologies
        for group in each.copartition_groups
    )
    return sum(map(len, told)) + groups


def is_leaving(request: StreamsGroupHeartbeatRequest) -> bool:
    return request.member_epoch == LEAVE


def owned_tasks(request: StreamsGroupHeartbeatRequest) -> TaskShare | None:
    """Return the tasks that a member reports to own; None if it does not report any."""
    active, standby = request.active_tasks, request.standby_tasks
    if active is None or standby is None:
        return None
    return TaskShare(_tasks(active), _tasks(standby))


def _tasks(told: Sequence[TaskIds]) -> frozenset[TaskId]:
    return frozenset(
        TaskId(each.subtopology_id, partition) for each in told for partition in each.partitions
    )


def refuse_epoch(
    member: StreamsGroupMember, epoch: int, owned: TaskShare | None
) -> StreamsRefusal | None:
    """Refuse with FENCED_MEMBER_EPOCH unless the epoch is the member's, or 0.

    The previous epoch is accepted as well from a member that owns only what it was assigned: the
    response with the new epoch may have been lost.
    """
    if epoch in (0, member.epoch):
        return None
    is_late = epoch < member.epoch and epoch == member.previous_epoch
    assigned = member.assigned
    if (
        is_late
        and owned is not None
        and owned.active <= assigned.active.keys()
        and owned.standby <= assigned.standby
    ):
        return None
    compared = "greater" if epoch > member.epoch else "smaller"
    return StreamsRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {compared} member epoch ({epoch}) than the one known by"
        f" the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def refuse_tasks(owned: TaskShare | None, tasks: Mapping[str, int]) -> StreamsRefusal | None:
    """Refuse with INVALID_REQUEST if a member reports tasks that do not exist.

    `tasks`: the number of tasks by subtopology.
    """
    if owned is None:
        return None
    for name, partition in sorted(owned.active | owned.standby):
        if name not in tasks:
            text = f"Subtopology {name} does not exist in the topology."
            return StreamsRefusal(ErrorCode.INVALID_REQUEST, text)
        if not 0 <= partition < tasks[name]:
            text = (
                f"Task {partition} for subtopology {name} is invalid. Number of tasks for this"
                f" subtopology: {tasks[name]}"
            )
            return StreamsRefusal(ErrorCode.INVALID_REQUEST, text)
    return None
