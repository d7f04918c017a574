"""Members of consumer groups that use the classic protocol: JoinGroup, SyncGroup, Heartbeat, ...

They are in a group that was upgraded (see `migration`), or joined it later. Each request stands for
a part of what a heartbeat of the consumer protocol does:

- JoinGroup tells the subscription and the owned partitions. It is answered at once: the generation
  is the member's epoch, there is no leader, and the coordinator assigns.
- SyncGroup is answered with what the member may read now.
- Heartbeat is answered with REBALANCE_IN_PROGRESS if the member must join again: there is another
  epoch, it has to revoke partitions, or others have released what it is to get. Otherwise its
  answer waits until then (`waiting`).

A member that was told so must join again, and then send SyncGroup, each within its rebalance
timeout. Source: GroupMetadataManager.classicGroupJoinToConsumerGroup and its neighbours.
"""

from __future__ import annotations

import msgspec

from steelyard.config import KafkaConfig
from steelyard.errors import ProtocolError, StorageError
from steelyard.groups.kafka import effects as causes
from steelyard.groups.kafka.classic.joining import Join
from steelyard.groups.kafka.consumer.admission import Admitted, known_member, returned
from steelyard.groups.kafka.consumer.description import encoded_assignment
from steelyard.groups.kafka.consumer.group import JOIN, SYNC, ConsumerGroup
from steelyard.groups.kafka.consumer.member import (
    ClassicMemberMetadata,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
)
from steelyard.groups.kafka.consumer.member_changes import MemberChanges
from steelyard.groups.kafka.consumer.requests import HeartbeatRefusal
from steelyard.groups.kafka.consumer.waiting import LateHeartbeats
from steelyard.groups.kafka.effects import Effects, Handle
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.groups.kafka.timers import Timers
from steelyard.types import LogLine, Random, TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    read_subscription,
)
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_REQUIRED_FROM = 4
"""First version of JoinGroup whose dynamic members get an id before they join (KIP-394)."""

ISSUED_MAX = 10_000
"""Member ids that are remembered until clients join with them."""


class IssuedIds:
    """The latest ISSUED_MAX member ids that clients got with MEMBER_ID_REQUIRED, to join with."""

    def __init__(self) -> None:
        self._ids: dict[str, bool] = {}

    def add(self, member_id: str) -> None:
        if len(self._ids) >= ISSUED_MAX:
            del self._ids[next(iter(self._ids))]
        self._ids[member_id] = True

    def taken(self, member_id: str) -> bool:
        """Return whether it was issued, and forget it."""
        return self._ids.pop(member_id, False)


class ClassicMembers:
    """Handlers of the classic protocol's requests in consumer groups."""

    def __init__(
        self,
        config: KafkaConfig,
        groups: CoordinatedGroups,
        timers: Timers,
        changes: MemberChanges,
        late: LateHeartbeats,
        rng: Random,
    ) -> None:
        self._config = config
        self._groups = groups
        self._timers = timers
        self._changes = changes
        self._late = late
        self._rng = rng
        self._issued = IssuedIds()

    def group(self, group_id: str) -> ConsumerGroup | None:
        """Return the group if it is one for this class: a consumer group with members."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) and not group.is_empty else None

    # -- JoinGroup -------------------------------------------------------------------------------

    def join(
        self, group: ConsumerGroup, join: Join, now: int, effects: Effects
    ) -> JoinGroupResponse | None:
        """Handle a JoinGroup, whose session timeout the caller has validated.

        None: it replaces the last member of the consumer protocol, and the group is a classic one
        now, which handles the request. Raises StorageError; what has changed is effective, and
        stored with the next change.
        """
        request = join.request
        subscription = _subscription(group, join)
        if subscription is None:
            return _not_joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        known = group.member(request.member_id) or group.static_member(request.group_instance_id)
        if known is None and len(group) >= self._config.group_consumer_max_size:
            return _not_joined(ErrorCode.GROUP_MAX_SIZE_REACHED)
        member_id = request.member_id or f"{self._rng.randrange(1 << 128):032x}"
        is_static = request.group_instance_id is not None
        if not request.member_id and not is_static and join.version >= MEMBER_ID_REQUIRED_FROM:
            self._issued.add(member_id)
            return _not_joined(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        owned = frozenset(
            TopicPartition(topic.topic, number)
            for topic in subscription.owned_partitions
            for number in topic.partitions
        )
        is_issued = self._issued.taken(member_id)
        if known is None and owned and not is_issued:
            # It was removed and has not heard of it: others may have what it still reads. (Kafka
            # takes it for a new member.)
            return _not_joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        admitted = _admitted(group, join, member_id)
        if isinstance(admitted, HeartbeatRefusal):
            return _not_joined(admitted.code, request.member_id)
        old = admitted.replaces
        if old is not None and self._changes.replaced_last(group, old, now, effects):
            return None
        wanted = msgspec.structs.replace(
            admitted.member,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id or admitted.member.rack_id,
            client_id=join.asker.client_id,
            host=join.asker.host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            topics=tuple(sorted(set(subscription.topics))),
            regex=None,
            assignor=None,
            classic=ClassicMemberMetadata(
                request.session_timeout_ms, tuple(join.protocols.items())
            ),
        )
        # One that still waits is on a connection that its member has given up: no news for that.
        self._late.superseded(group.group_id, member_id, now, effects)
        member = self._changes.update(group, admitted, wanted, owned, now, effects)
        self._changes.hear(group, member, now)
        self._timers.drop((group.group_id, JOIN, member_id))
        self._timers.set((group.group_id, SYNC, member_id), now + member.rebalance_timeout_ms)
        self._changes.settled(group, effects)
        return JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=next(iter(join.protocols)),
            member_id=member_id,
        )

    # -- SyncGroup -------------------------------------------------------------------------------

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest, now: int) -> SyncGroupResponse:
        """Handle a SyncGroup: tell a member what it may read."""
        member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return SyncGroupResponse(error_code=member)
        assert member.classic is not None
        ours = (PROTOCOL_TYPE, member.classic.protocol)
        theirs = (request.protocol_type, request.protocol_name)
        if any(said not in (None, known) for said, known in zip(theirs, ours, strict=True)):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            group.epoch > member.epoch
            and member.state is not ConsumerGroupMemberState.UNREVOKED_PARTITIONS
        ):
            self._await_join(group, member, now)
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.drop((group.group_id, SYNC, member.member_id))
        self._changes.hear(group, member, now)
        return SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=member.classic.protocol,
            assignment=encoded_assignment(group, member.assigned, member.classic),
        )

    # -- Heartbeat -------------------------------------------------------------------------------

    def heartbeat(
        self,
        group: ConsumerGroup,
        request: HeartbeatRequest,
        version: int,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> ErrorCode | None:
        """Handle a Heartbeat; return None if its answer waits until the member must join again."""
        member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
        if isinstance(member, ErrorCode):
            return member
        group_id, member_id = group.group_id, member.member_id
        self._late.superseded(group_id, member_id, now, effects)
        self._changes.hear(group, member, now)
        if self.is_to_join_again(group, member, now):
            return ErrorCode.REBALANCE_IN_PROGRESS
        session_ms = self._changes.session_timeout_ms(group, member)
        waits = self._late.wait_classic(
            group_id, member_id, session_ms, asker, version, handle, now, effects
        )
        return None if waits else ErrorCode.NONE

    def is_to_join_again(self, group: ConsumerGroup, member: ConsumerGroupMember, now: int) -> bool:
        """Return whether a member is told to join again, which it then must in time."""
        if not _must_join_again(group, member):
            return False
        self._await_join(group, member, now)
        return True

    def _await_join(self, group: ConsumerGroup, member: ConsumerGroupMember, now: int) -> None:
        """Limit the time in which a member joins again, from when it was first told to."""
        key = (group.group_id, JOIN, member.member_id)
        if self._timers.at(key) is None:
            self._timers.set(key, now + member.rebalance_timeout_ms)

    # -- LeaveGroup ------------------------------------------------------------------------------

    def leave(
        self,
        group: ConsumerGroup,
        request: LeaveGroupRequest,
        version: int,
        now: int,
        effects: Effects,
    ) -> LeaveGroupResponse:
        """Handle a LeaveGroup. Up to version 2 it has one member, whose error is the response's.

        An operator may remove members of either protocol by it. Those of the classic one go first:
        without the last of the others, this is a classic group.
        """
        leavers = request.members if version >= 3 else (MemberIdentity(request.member_id),)
        named = [(leaver, _leaving(group, leaver)) for leaver in leavers]
        order = sorted(range(len(named)), key=lambda number: not _is_classic(named[number][1]))
        left = {number: self._leave(group, *named[number], now, effects) for number in order}
        results = [left[number] for number in range(len(named))]
        try:
            self._changes.settled(group, effects)
        except StorageError as error:
            text = f"group {group.group_id}: that members left was not stored: {error}"
            effects.append(LogLine("WARNING", text))
        if version < 3:
            return LeaveGroupResponse(error_code=results[0].error_code)
        return LeaveGroupResponse(members=results)

    def _leave(
        self,
        group: ConsumerGroup,
        leaver: MemberIdentity,
        member: ConsumerGroupMember | HeartbeatRefusal,
        now: int,
        effects: Effects,
    ) -> MemberResponse:
        error = ErrorCode.NONE
        if isinstance(member, HeartbeatRefusal):
            error = member.code
        elif self.group(group.group_id) is not group or group.member(member.member_id) is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID  # the request names it twice
        else:
            self._changes.put_out(group, member.member_id, causes.LEFT, "left", now, effects)
        return MemberResponse(leaver.member_id, leaver.group_instance_id, error)


def _subscription(group: ConsumerGroup, join: Join) -> ConsumerProtocolSubscription | None:
    """Return what a client subscribes to; None if it cannot be a member of the group.

    It must be a consumer and have a protocol that all classic members have. All protocols have the
    same subscription. Source: ConsumerGroup.supportsClassicProtocols.
    """
    if join.request.protocol_type != PROTOCOL_TYPE or not join.protocols:
        return None
    names = set(join.protocols)
    for member in group.each():
        if member.classic is not None:
            names &= {name for name, _ in member.classic.protocols}
    if not names:
        return None
    try:
        return read_subscription(next(iter(join.protocols.values())))
    except ProtocolError:
        return None


def _admitted(group: ConsumerGroup, join: Join, member_id: str) -> Admitted | HeartbeatRefusal:
    """Return the member behind a JoinGroup, or why it is refused."""
    instance_id = join.request.group_instance_id
    member = group.member(member_id)
    if instance_id is None:
        return (
            Admitted(ConsumerGroupMember(member_id), is_new=True)
            if member is None
            else Admitted(member)
        )
    static = group.static_member(instance_id)
    if join.request.member_id:
        known = known_member(group, member_id, instance_id)
        return known if isinstance(known, HeartbeatRefusal) else Admitted(known)
    if static is None:
        return Admitted(ConsumerGroupMember(member_id), is_new=True)
    return returned(static, member_id)


def _known(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None = None
) -> ConsumerGroupMember | ErrorCode:
    """Return the member behind a request, or the error of one that is none, or not of this kind."""
    member = known_member(group, member_id, instance_id)
    if isinstance(member, HeartbeatRefusal):
        return member.code
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation is not None and generation != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def _leaving(
    group: ConsumerGroup, leaver: MemberIdentity
) -> ConsumerGroupMember | HeartbeatRefusal:
    """Return the member that a LeaveGroup names, of either protocol, or why it names none."""
    instance_id, member_id = leaver.group_instance_id, leaver.member_id
    if not member_id and instance_id is not None:
        # An operator knows a static member by its instance id only.
        static = group.static_member(instance_id)
        member_id = static.member_id if static is not None else ""
    return known_member(group, member_id, instance_id)


def _is_classic(member: ConsumerGroupMember | HeartbeatRefusal) -> bool:
    return isinstance(member, ConsumerGroupMember) and member.classic is not None


def _must_join_again(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    if member.epoch < group.epoch:
        return True
    if member.state is ConsumerGroupMemberState.UNRELEASED_PARTITIONS:
        missing = group.target(member.member_id) - member.assigned.keys()
        return all(group.owner_of(partition) is None for partition in missing)
    return member.state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS


def _not_joined(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id)
