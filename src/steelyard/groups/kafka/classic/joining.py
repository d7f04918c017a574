"""JoinGroup in a classic group: admission, and whether it triggers a rebalance.

The checks are in Kafka's order; each has its error code. A JoinGroup is answered at once if the
generation is unchanged for this member, otherwise when the join phase is over.
Source: GroupMetadataManager.java (classicGroupJoin...); KIP-345 (static members), KIP-394
(MEMBER_ID_REQUIRED), KIP-800 (reasons), KIP-814 (skip_assignment).

One deviation: a static leader that returns after a topic of the group has grown assigns again.
(Apache's gets its old share, and takes the current partitions for those that it had assigned:
nobody reads the new ones until something else triggers a rebalance.)
"""

from __future__ import annotations

from msgspec.structs import replace

from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as causes
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.members import (
    ClassicGroupMember,
    Protocols,
    Room,
    bytes_of,
    protocols_of,
    same_protocols,
    topics_of,
)
from steelyard.groups.kafka.classic.rebalances import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalances,
    joined_reply,
)
from steelyard.groups.kafka.classic.state import ClassicGroupState
from steelyard.groups.kafka.classic.waiting import LateAnswers
from steelyard.groups.kafka.effects import Cause, Effects, Handle, Joined, Left, Replied
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups, TopicsView
from steelyard.groups.kafka.timers import SESSION, Timers
from steelyard.types import LogLine, Random
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
)

MEMBERS_MAX = 10_000
"""Most members of a group, and most ids assigned to clients that have yet to join."""

SESSIONS_MAX = 200_000
"""Most members and such ids of all groups."""

GROUP_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of metadata and assignments of a group's members."""

ROOM_BYTES_MAX = 512 * 1024 * 1024
"""Most bytes of metadata and assignments of the members of all groups."""

REASON_CHARACTERS_MAX = 255
"""Greatest length of a client's reason (JoinGroupRequest.maybeTruncateReason)."""


class Join:
    """A JoinGroup request, with derived values."""

    def __init__(
        self, request: JoinGroupRequest, version: int, asker: Asker, handle: Handle
    ) -> None:
        self.request = request
        self.version = version
        self.asker = asker
        self.handle = handle
        self.protocols: Protocols = protocols_of(request)
        # Version 0 has no separate rebalance timeout
        # (JoinGroupRequest.maybeOverrideRebalanceTimeout).
        timeout = request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms
        self.rebalance_timeout_ms = max(timeout, 0)

    @property
    def reason(self) -> str:
        """Return the client's own reason, to be appended to ours."""
        reason = self.request.reason
        return f" (reason given: {reason[:REASON_CHARACTERS_MAX]})" if reason else ""

    def member(self, member_id: str) -> ClassicGroupMember:
        request = self.request
        return ClassicGroupMember(
            member_id,
            request.group_instance_id,
            self.asker.client_id,
            self.asker.host,
            request.session_timeout_ms,
            self.rebalance_timeout_ms,
            request.protocol_type,
            self.protocols,
            software=self.asker.software,
        )

    def refused(self, error: ErrorCode, effects: Effects, member_id: str = "") -> None:
        effects.append(
            Replied(self.handle, JoinGroupResponse(error_code=error, member_id=member_id))
        )


class Joining:
    """Handles JoinGroup."""

    def __init__(
        self,
        config: KafkaConfig,
        timers: Timers,
        groups: CoordinatedGroups,
        topics: TopicsView,
        room: Room,
        rebalances: Rebalances,
        late: LateAnswers,
        rng: Random,
    ) -> None:
        self._members_max = min(config.group_max_size, MEMBERS_MAX)
        self._timers = timers
        self._groups = groups
        self._topics = topics
        self._room = room
        self._rebalances = rebalances
        self._late = late
        self._rng = rng

    def join(self, group: ClassicGroup, join: Join, now: int, effects: Effects) -> None:
        """Answer the request behind `join`, now or later.

        The caller has validated the group id and the session timeout.
        """
        member_id = join.request.member_id
        if not self._has_place(group, member_id) or not self._has_room(group, join):
            join.refused(ErrorCode.GROUP_MAX_SIZE_REACHED, effects)
            self._send_away(group, member_id, now, effects)
        elif group.state is ClassicGroupState.DEAD:
            join.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, effects, member_id)
        elif not group.supports(join.request.protocol_type, join.protocols):
            join.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, effects, member_id)
        elif not member_id:
            self._new(group, join, now, effects)
        elif member_id in group.pending and join.request.group_instance_id is None:
            self._add(group, join, join.member(member_id), now, effects)
        else:
            self._known(group, join, now, effects)

    def _send_away(self, group: ClassicGroup, member_id: str, now: int, effects: Effects) -> None:
        """Remove a client that was refused by a full group (Apache Kafka keeps waiting for it)."""
        member = group.members.get(member_id)
        if member is None:
            group.remove(member_id)
            self._rebalances.go_on(group, now, effects)
            return
        text = "was refused because the group is full"
        self._rebalances.remove(group, member, "left", text, effects)
        cause = Cause(causes.LEFT, f"{member.name} {text}")
        self._rebalances.begin_or_go_on(group, cause, now, effects)

    def _has_place(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is ClassicGroupState.PREPARING:
            joined = member is not None and member.is_joining
            return joined or group.joining_count < self._members_max
        return member is not None or len(group.members) < self._members_max

    def _has_room(self, group: ClassicGroup, join: Join) -> bool:
        """Check this broker's own limits on what clients can make it store."""
        request = join.request
        new = not request.member_id
        known = group.members.get(
            group.static.get(request.group_instance_id or "", "") if new else request.member_id
        )
        size = bytes_of(join.protocols) - (0 if known is None else bytes_of(known.protocols))
        if group.bytes + size > GROUP_BYTES_MAX or self._room.bytes + size > ROOM_BYTES_MAX:
            return False
        return not new or (len(group.pending) < MEMBERS_MAX and len(self._timers) < SESSIONS_MAX)

    # -- new members -----------------------------------------------------------------------------

    def _new(self, group: ClassicGroup, join: Join, now: int, effects: Effects) -> None:
        instance_id = join.request.group_instance_id
        if instance_id is not None:
            member = join.member(self._member_id(instance_id))
            if not self._stored(group, member, join, effects):
                return
            if instance_id in group.static:
                self._replace(group, join, member, now, effects)
            else:
                self._add(group, join, member, now, effects)
            return
        member_id = self._member_id(join.asker.client_id)
        if join.version < 4:
            self._add(group, join, join.member(member_id), now, effects)
            return
        # So that clients that die or give up before the response leave no orphaned members
        # (KIP-394).
        group.pending[member_id] = now
        self._timers.set(group.key(SESSION, member_id), now + join.request.session_timeout_ms)
        join.refused(ErrorCode.MEMBER_ID_REQUIRED, effects, member_id)

    def _stored(
        self, group: ClassicGroup, member: ClassicGroupMember, join: Join, effects: Effects
    ) -> bool:
        """Store a static member's new id; if that fails, refuse the request."""
        try:
            group.save_return(member)
        except StorageError as error:
            effects.append(LogLine("WARNING", f"group {group.group_id}: not stored: {error}"))
            join.refused(ErrorCode.NOT_COORDINATOR, effects)
            return False
        return True

    def _member_id(self, name: str) -> str:
        digits = f"{self._rng.randrange(1 << 128):032x}"
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return f"{name}-{'-'.join(parts)}"

    def _add(
        self,
        group: ClassicGroup,
        join: Join,
        member: ClassicGroupMember,
        now: int,
        effects: Effects,
    ) -> None:
        member.is_new = True
        if group.initial is not None:
            group.initial.member_came = True
        group.add(member)
        group.park_join(member, join.handle, now)
        self._timers.set(group.key(SESSION, member.member_id), now + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._joined(group, member, causes.JOINED, effects)
        cause = Cause(causes.JOINED, f"{member.name} joined{join.reason}")
        self._rebalances.begin_or_go_on(group, cause, now, effects)

    def _joined(
        self, group: ClassicGroup, member: ClassicGroupMember, cause: str, effects: Effects
    ) -> None:
        topics = topics_of(member.protocol_type, member.protocols)
        effects.append(Joined(group.group_id, member, cause, group.member_ids(), topics))

    # -- members that are known ------------------------------------------------------------------

    def _known(self, group: ClassicGroup, join: Join, now: int, effects: Effects) -> None:
        member_id = join.request.member_id
        error = group.check_member(member_id, join.request.group_instance_id)
        if error is not ErrorCode.NONE:
            join.refused(error, effects, member_id)
            return
        member = group.members[member_id]
        leads_again = group.state is ClassicGroupState.STABLE and group.leader == member_id
        changed = not same_protocols(member.protocols, join.protocols)
        if group.state is ClassicGroupState.PREPARING or leads_again or changed:
            cause = self._cause(member, join, changed=changed)
            self._update(group, member, join, now, effects)
            self._rebalances.begin_or_go_on(group, cause, now, effects)
        else:
            effects.append(Replied(join.handle, joined_reply(group, member_id)))

    def _update(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        join: Join,
        now: int,
        effects: Effects,
    ) -> None:
        """Update a member from its request, and park the request."""
        kind = member.protocol_type
        wanted = topics_of(kind, member.protocols)
        group.update(member, join.protocols, join.asker.client_id, join.asker.host)
        member.software = join.asker.software
        member.session_timeout_ms = join.request.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        before = group.park_join(member, join.handle, now)
        if before is not None:
            # The client sent another request without waiting; only the latest response can matter
            # to it.
            again = ErrorCode.REBALANCE_IN_PROGRESS
            reply = JoinGroupResponse(error_code=again, member_id=member.member_id)
            effects.append(Replied(before, reply))
        if topics_of(kind, join.protocols) != wanted:
            self._joined(group, member, causes.SUBSCRIPTION, effects)

    def _cause(self, member: ClassicGroupMember, join: Join, *, changed: bool) -> Cause:
        if not changed:
            text = f"its leader {member.name} rejoined{join.reason}"
            return Cause(causes.LEADER, text)
        kind = member.protocol_type
        topics = topics_of(kind, member.protocols)
        same = topics == topics_of(kind, join.protocols) and list(member.protocols) == list(
            join.protocols
        )
        if topics and same:
            text = f"{member.name} owns other partitions than when it last joined{join.reason}"
            return Cause(causes.REVOKED, text)
        return Cause(causes.SUBSCRIPTION, f"the metadata of {member.name} changed{join.reason}")

    # -- static members that come back -----------------------------------------------------------

    def _replace(
        self,
        group: ClassicGroup,
        join: Join,
        member: ClassicGroupMember,
        now: int,
        effects: Effects,
    ) -> None:
        """Replace a static member by a client with its instance id and no member id."""
        assert member.instance_id is not None
        old = group.members[group.static[member.instance_id]]
        old_leader = group.leader or ""
        self._fence(group, old, effects)
        member.assignment = old.assignment
        group.rename(old, member)
        group.heard(member, now)
        name = f"static member {member.name}"
        leads = group.leader == member.member_id
        outgrown = group.outgrown(self._topics) if leads else ()
        if (
            group.state is ClassicGroupState.STABLE
            and group.vote() == group.protocol
            and not outgrown
        ):
            reply = joined_reply(group, member.member_id)
            if join.version >= 9:
                reply = replace(reply, skip_assignment=leads)
            else:
                # It must not consider itself the leader, which would have to assign again.
                reply = replace(reply, leader=old_leader, members=())
            effects.append(Replied(join.handle, reply))
            text = f"{name} replaces {old.member_id}, no rebalance"
            effects.append(LogLine("INFO", f"group {group.group_id}: {text}"))
            self._replaced(group, old, member, effects)
            return
        group.park_join(member, join.handle, now)
        self._replaced(group, old, member, effects)
        if group.state is ClassicGroupState.PREPARING:
            self._rebalances.go_on(group, now, effects)
        else:
            text = f"{name} replaces {old.member_id}{join.reason}"
            if outgrown:
                text += (
                    f"; it is the leader, and no member was assigned all of {', '.join(outgrown)}"
                )
            self._rebalances.begin(group, Cause(causes.STATIC, text), now, effects)

    def _fence(self, group: ClassicGroup, old: ClassicGroupMember, effects: Effects) -> None:
        fenced = ErrorCode.FENCED_INSTANCE_ID
        handle = group.take_join(old)
        if handle is not None:
            reply = JoinGroupResponse(error_code=fenced, member_id=old.member_id)
            effects.append(Replied(handle, reply))
        if old.syncing is not None:
            effects.append(Replied(old.syncing, SyncGroupResponse(error_code=fenced)))
            old.syncing = None
        self._late.gone(group.group_id, old.member_id, fenced, effects)

    def _replaced(
        self,
        group: ClassicGroup,
        old: ClassicGroupMember,
        member: ClassicGroupMember,
        effects: Effects,
    ) -> None:
        self._groups.touched(group.group_id)
        others = tuple(name for name in group.member_ids() if name != member.member_id)
        effects.append(Left(group.group_id, old.member_id, "replaced", others))
        self._joined(group, member, causes.STATIC, effects)
