"""SyncGroup and Heartbeat of classic groups: a member's assignment, and its generation's validity.

`waiting` decides which answers wait.

Source: GroupMetadataManager.java (classicGroupSync..., classicGroupHeartbeat...).
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.joining import GROUP_BYTES_MAX, ROOM_BYTES_MAX
from steelyard.groups.kafka.classic.members import Room
from steelyard.groups.kafka.classic.rebalances import Rebalances, synced_reply
from steelyard.groups.kafka.classic.state import ClassicGroupState, Move
from steelyard.groups.kafka.classic.waiting import LateAnswers, expecting
from steelyard.groups.kafka.effects import STORAGE, Cause, Effects, Handle, Replied
from steelyard.groups.kafka.groups import Asker
from steelyard.groups.kafka.timers import SYNC, WAITING, Timers
from steelyard.groups.kafka.waiting import is_librdkafka, may_wait
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)


class Syncing:
    """Handles SyncGroup and Heartbeat."""

    def __init__(
        self, timers: Timers, room: Room, rebalances: Rebalances, late: LateAnswers
    ) -> None:
        self._timers = timers
        self._room = room
        self._rebalances = rebalances
        self._late = late

    def sync(
        self,
        group: ClassicGroup,
        request: SyncGroupRequest,
        version: int,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> None:
        """Answer the request behind `handle`, now or when the leader has assigned."""
        error = _check(group, request)
        if error is not ErrorCode.NONE:
            effects.append(Replied(handle, SyncGroupResponse(error_code=error)))
            return
        member = group.members[request.member_id]
        group.unsynced.discard(request.member_id)
        if not group.unsynced and group.state is ClassicGroupState.STABLE:
            self._timers.drop(group.key(SYNC))
        member.heard_at = now
        member.waits = may_wait(asker, version)
        is_held = member.waits and not is_librdkafka(asker.software)
        member.syncing_link = asker.link if is_held else None
        if group.state is ClassicGroupState.STABLE:
            group.keep_alive(member, now)
            self._late.synced(group, member, handle, synced_reply(group, member), now, effects)
            return
        if member.syncing is not None:
            # The client sent another request without waiting; only the latest response can matter
            # to it.
            again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            effects.append(Replied(member.syncing, again))
        member.syncing = handle
        if group.leader == request.member_id:
            assignments = {one.member_id: one.assignment for one in request.assignments}
            self._assigned(group, assignments, now, effects)

    def _assigned(
        self, group: ClassicGroup, assignments: dict[str, bytes], now: int, effects: Effects
    ) -> None:
        """Store the leader's assignment, then send it to all members."""
        error = self._store(group, assignments, effects)
        if error is not ErrorCode.NONE:
            self._rebalances.send_back(group, error, now, effects)
            cause = Cause(STORAGE, "its assignment could not be stored")
            self._rebalances.begin_or_go_on(group, cause, now, effects)
            return
        group.expecting = expecting(group)
        self._rebalances.answer_syncs(group, ErrorCode.NONE, now, effects)
        group.move(Move.ASSIGNED, now)
        self._timers.drop(group.key(WAITING))
        if not group.unsynced:
            self._timers.drop(group.key(SYNC))
        self._rebalances.ended(group, now, effects)

    def _store(
        self, group: ClassicGroup, assignments: dict[str, bytes], effects: Effects
    ) -> ErrorCode:
        size = sum(len(assignments.get(member_id, b"")) for member_id in group.members)
        more = size - sum(len(member.assignment) for member in group.members.values())
        if group.bytes + more > GROUP_BYTES_MAX or self._room.bytes + more > ROOM_BYTES_MAX:
            text = f"group {group.group_id}: an assignment of {size} bytes is too large"
            effects.append(LogLine("WARNING", text))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        group.assign(assignments)
        try:
            group.save()
        except StorageError as error:
            effects.append(LogLine("WARNING", f"group {group.group_id}: not stored: {error}"))
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def beat(
        self,
        group: ClassicGroup,
        request: HeartbeatRequest,
        version: int,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> None:
        """Answer a Heartbeat, which extends its member's session, now or later."""
        error = _check_beat(group, request)
        if error is ErrorCode.NONE:
            member = group.members[request.member_id]
            group.heard(member, now)
            if group.state is not ClassicGroupState.PREPARING:
                self._late.beat(group, member, asker, version, handle, now, effects)
                return
            error = ErrorCode.REBALANCE_IN_PROGRESS
        effects.append(Replied(handle, HeartbeatResponse(error_code=error)))


def _check(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if not group.is_in(request.member_id, request.generation_id):
        return ErrorCode.ILLEGAL_GENERATION
    given = ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol))
    if any(said is not None and said != ours for said, ours in given):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return (
        ErrorCode.REBALANCE_IN_PROGRESS
        if group.state is ClassicGroupState.PREPARING
        else ErrorCode.NONE
    )


def _check_beat(group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and not group.is_in(request.member_id, request.generation_id):
        return ErrorCode.ILLEGAL_GENERATION
    return error
