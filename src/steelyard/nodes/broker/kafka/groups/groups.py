"""APIs 11 to 16: the members of groups, and the groups that this broker coordinates.

- Members: 11 JoinGroup (versions 0-9), 12 Heartbeat (0-4), 13 LeaveGroup (0-5), 14 SyncGroup (0-5)
- Groups: 15 DescribeGroups (0-6), 16 ListGroups (0-5)

`groups.kafka` has the rules. This module adds who asks, where the answer goes, and NOT_COORDINATOR
for the groups of other brokers. JoinGroup and SyncGroup may be answered minutes later, a Heartbeat
seconds later (`groups.kafka.classic.waiting`). With
flush=sync a member learns of its generation and its share when both are on the disk, as Kafka's
members do when the record is replicated: a coordinator that forgot them in a power cut would give
out the same generation again, with other shares. ListGroups lists the groups of this broker;
clients ask every broker.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as done
from steelyard.groups.kafka import flapping
from steelyard.groups.kafka.classic.joining import Join
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Effects, Replied
from steelyard.groups.kafka.waiting import LateMessage
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.descriptions import with_operations
from steelyard.nodes.broker.kafka.groups.notes import Notes
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect, Link
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from steelyard.wire.kafka.schema import ApiMessage


class GroupRequests:
    """Handlers of these APIs, and the coordinator's timer."""

    def __init__(
        self,
        coordinator: Coordinator,
        consumer_groups: ConsumerGroups,
        cluster: Cluster,
        durability: Durability,
        notes: Notes,
        faults: Faults,
    ) -> None:
        self._coordinator = coordinator
        self._consumer_groups = consumer_groups
        self._classic_members = consumer_groups.classic
        self._faults = faults
        self._cluster = cluster
        self._durability = durability
        self._notes = notes
        self._cluster_version = -1

    def settle(self, happened: Effects, now: int, effects: list[Effect]) -> None:
        """Apply what the coordinator has decided."""
        for event in happened:
            if isinstance(event, Replied):
                assert isinstance(event.handle, OpenRequest)
                self._answer(event.handle, event.message, effects)
            elif isinstance(event, LogLine):
                effects.append(event)
            else:
                self._notes.happened(event, now, self._flaps(event, now, effects))

    def _flaps(self, event: done.Effect, now: int, effects: list[Effect]) -> int:
        """Note who joins and goes again and again; return how often a member that joins has."""
        told: Effects = []
        flaps = 0
        if isinstance(event, done.Joined):
            flaps = flapping.joined(self._coordinator.flapping, event, now, told)
        elif isinstance(event, done.Left):
            flapping.left(self._coordinator.flapping, event, now)
        effects.extend(one for one in told if isinstance(one, LogLine))
        return flaps

    def _answer(self, call: OpenRequest, message: ApiMessage, effects: list[Effect]) -> None:
        assert isinstance(message, JoinGroupResponse | LateMessage)
        if isinstance(message, HeartbeatResponse) or message.error_code != ErrorCode.NONE:
            call.answer(message, effects)
        else:
            self._durability.answer(call, message, effects)

    def refusal(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker coordinates a group, otherwise the error to answer with."""
        return self._cluster.coordinator_fault(group_id)

    # -- members ---------------------------------------------------------------------------------

    @serves(JoinGroupRequest)
    def join(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(JoinGroupRequest)
        error = self.refusal(request.group_id) or self._coordinator.fault(request)
        if error is not ErrorCode.NONE:
            return JoinGroupResponse(error_code=error, member_id=request.member_id)
        happened: Effects = []
        answer = self._join_consumer_group(call, request, now, happened, effects)
        if answer is None:
            self._coordinator.join(request, call.version, call.asker, call, now, happened)
        self.settle(happened, now, effects)
        return None if answer is None else self._durability.acknowledge_call(call, answer, effects)

    def _join_consumer_group(
        self,
        call: OpenRequest,
        request: JoinGroupRequest,
        now: int,
        happened: Effects,
        effects: list[Effect],
    ) -> JoinGroupResponse | None:
        """Return the answer of a consumer group; None if the group is a classic one."""
        group = self._classic_members.group(request.group_id)
        if group is None:
            return None
        join = Join(request, call.version, call.asker, call)
        answer: JoinGroupResponse | None
        try:
            answer = self._classic_members.join(group, join, now, happened)
        except StorageError as error:
            text = f"group {request.group_id} cannot be stored: {error}"
            self._faults.tell(text, now, effects)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer = JoinGroupResponse(error_code=code, member_id=request.member_id)
        self._consumer_groups.wake(now, happened)
        return answer

    @serves(SyncGroupRequest)
    def sync(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(SyncGroupRequest)
        error = self.refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return SyncGroupResponse(error_code=error)
        group = self._classic_members.group(request.group_id)
        if group is not None:
            answer = self._classic_members.sync(group, request, now)
            return self._durability.acknowledge_call(call, answer, effects)
        happened: Effects = []
        self._coordinator.sync(request, call.version, call.asker, call, now, happened)
        self.settle(happened, now, effects)
        return None

    @serves(HeartbeatRequest)
    def heartbeat(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(HeartbeatRequest)
        error = self.refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return HeartbeatResponse(error_code=error)
        happened: Effects = []
        group = self._classic_members.group(request.group_id)
        answer: ErrorCode | None = None
        if group is not None:
            answer = self._classic_members.heartbeat(
                group, request, call.version, call.asker, call, now, happened
            )
        else:
            self._coordinator.heartbeat(request, call.version, call.asker, call, now, happened)
        self.settle(happened, now, effects)
        return None if answer is None else HeartbeatResponse(error_code=answer)

    @serves(LeaveGroupRequest)
    def leave(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(LeaveGroupRequest)
        error = self.refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return LeaveGroupResponse(error_code=error)
        happened: Effects = []
        group = self._classic_members.group(request.group_id)
        if group is not None:
            answer = self._classic_members.leave(group, request, call.version, now, happened)
            self._consumer_groups.wake(now, happened)
        else:
            answer = self._coordinator.leave(request, call.version, now, happened)
        self.settle(happened, now, effects)
        return answer

    def release(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Answer what waits on a link, because something else came on it."""
        happened: Effects = []
        self._coordinator.released(link, now, happened)
        self.settle(happened, now, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """End what waits on a link that is closed."""
        happened: Effects = []
        self._coordinator.closed(link, now, happened)
        self.settle(happened, now, effects)

    def follow(self, now: int, effects: list[Effect]) -> None:
        """Answer those that wait in groups of other brokers, after each event that moves any."""
        if self._cluster.version == self._cluster_version:
            return
        self._cluster_version = self._cluster.version
        happened: Effects = []
        for group_id in self._coordinator.waiting_groups():
            error = self.refusal(group_id)
            if error is not ErrorCode.NONE:
                self._coordinator.refused(group_id, error, happened)
        self.settle(happened, now, effects)

    # -- groups ----------------------------------------------------------------------------------

    @serves(DescribeGroupsRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(DescribeGroupsRequest)
        described = [self._describe(group_id, call.version) for group_id in request.groups]
        if request.include_authorized_operations:
            described = [with_operations(group) for group in described]
        return DescribeGroupsResponse(groups=described)

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        error = self.refusal(group_id)
        if error is not ErrorCode.NONE:
            return DescribedGroup(error, group_id=group_id)
        return self._coordinator.listing.describe(group_id, version)

    @serves(ListGroupsRequest)
    def list_groups(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(ListGroupsRequest)
        return ListGroupsResponse(groups=self._coordinator.listing.all(request))

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        return self._coordinator.next_at

    def due(self, now: int, effects: list[Effect]) -> None:
        happened: Effects = []
        self._coordinator.due(now, happened)
        self.settle(happened, now, effects)
