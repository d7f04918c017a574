"""The rebalances of classic groups: what begins one, and what ends its phases, and when.

- **Begin**: a member came, went or changed -> PreparingRebalance. Members that wait for SyncGroup
  get REBALANCE_IN_PROGRESS. With delayed answers and a window, members that leave within LEAVES_MS
  are one change: the others would hear of a second rebalance with their first heartbeat only.
- **Join phase**: over when all members have joined, at the latest after the longest of their
  rebalance timeouts. Members that have not joined by then are removed (static members stay). The
  first generation of an empty group waits for group.initial.rebalance.delay.ms instead, and is
  delayed further while more members come; with delayed answers it begins earlier, once no more
  members come.
- **Sync phase**: over when the leader's SyncGroup has arrived (`syncing`). Members that do not send
  their own are removed after the same rebalance timeout.
- **Sessions** run while a member does not wait for a response. A new member has 5 minutes to get
  its first generation.

Each rebalance records why it began and whom it waits for: see `Began`, `LogLine` and `report`.
Source: GroupMetadataManager.java (prepareRebalance, completeClassicGroupJoin, expire...).
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.members import ClassicGroupMember
from steelyard.groups.kafka.classic.state import ClassicGroupState, InitialDelay, Move
from steelyard.groups.kafka.classic.waiting import LateAnswers
from steelyard.groups.kafka.effects import (
    EXPIRED,
    LEFT,
    Began,
    Begun,
    Cause,
    Effects,
    Ended,
    Left,
    Replied,
)
from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.groups.kafka.timers import JOIN, LEAVES, SESSION, SYNC, WAITING, Timers
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from steelyard.wording import counted

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Limit of a new member's wait for its first generation.

Source: CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS.
"""

WAITING_TOLD_MS = 10_000
"""Interval at which a slow rebalance logs the members for which it waits."""

LEAVES_MS = 100
"""Time in which members that leave one after the other are collected."""

QUIET_MS = 200
"""Time without new members after which the first generation begins, if answers are delayed."""

JOIN_AGAIN_MS_MIN = 1_000
"""Least extension of a join phase in which nobody has joined."""

NAMES_TOLD_MAX = 10
"""Most members named in one line."""


class Rebalances:
    """The rebalances of all classic groups."""

    def __init__(
        self, config: KafkaConfig, timers: Timers, groups: CoordinatedGroups, late: LateAnswers
    ) -> None:
        self._config = config
        self._timers = timers
        self._groups = groups
        self._late = late

    # -- the join phase --------------------------------------------------------------------------

    def begin_or_go_on(self, group: ClassicGroup, cause: Cause, now: int, effects: Effects) -> None:
        """Begin a rebalance after a change, or end a join phase that waits for nothing else."""
        if group.can_rebalance:
            self.begin(group, cause, now, effects)
        else:
            self.go_on(group, now, effects)

    def left(self, group: ClassicGroup, names: Sequence[str], now: int, effects: Effects) -> None:
        """Begin a rebalance because members left, at once or a little later."""
        group.left += names
        collects = self._late.enabled and group.window.most_ms > 0
        if not collects or not group.members or group.state is not ClassicGroupState.STABLE:
            self._begin_left(group, now, effects)
        elif self._timers.at(group.key(LEAVES)) is None:
            self._timers.set(group.key(LEAVES), now + LEAVES_MS)

    def _begin_left(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        self.begin(group, Cause(LEFT, f"{', '.join(group.left)} left"), now, effects)

    def begin(self, group: ClassicGroup, cause: Cause, now: int, effects: Effects) -> None:
        if group.state is ClassicGroupState.COMPLETING:
            self.send_back(group, ErrorCode.REBALANCE_IN_PROGRESS, now, effects)
        else:
            group.began_at = now
        group.unsynced.clear()
        self._timers.drop(group.key(SYNC))
        group.left.clear()
        self._timers.drop(group.key(LEAVES))
        group.begun.append(Begun(group.generation, now, cause))
        group.awaited_since = now
        effects.append(Began(group.group_id, group.generation, cause, group.member_ids()))
        ends = f"generation {group.generation} ends" if group.generation else "rebalance"
        effects.append(LogLine("INFO", f"group {group.group_id}: {ends}, {cause.text}"))
        from_empty = group.state is ClassicGroupState.EMPTY
        self._late.begun(group, effects)
        group.move(Move.REBALANCED, now)
        if from_empty:
            group.initial = self._initial_delay(group)
            self._timers.set(group.key(JOIN), now + group.initial.delay_ms)
        elif group.everyone_joined:
            self._complete_join(group, now, effects)
        else:
            self._timers.set(group.key(JOIN), now + group.rebalance_timeout_ms)
            self._timers.set(group.key(WAITING), now + WAITING_TOLD_MS)

    def go_on(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        """Complete the join phase if everybody has joined, except during the initial delay."""
        if (
            group.state is ClassicGroupState.PREPARING
            and group.previous_state is not ClassicGroupState.EMPTY
            and group.everyone_joined
        ):
            self._complete_join(group, now, effects)

    def _join_due(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        """Handle the end of the join phase's time, or of the initial delay."""
        if group.state is not ClassicGroupState.PREPARING:
            return
        initial = group.initial
        awaited = initial is not None and (
            initial.member_came or (self._late.enabled and bool(group.pending))
        )
        if initial is None or not (awaited and initial.remaining_ms):
            self._complete_join(group, now, effects)
            return
        delay = min(initial.step_ms, initial.remaining_ms)
        left = max(initial.remaining_ms - (delay if self._late.enabled else initial.delay_ms), 0)
        group.initial = InitialDelay(delay, left, initial.step_ms)
        self._timers.set(group.key(JOIN), now + delay)

    def _initial_delay(self, group: ClassicGroup) -> InitialDelay:
        """Return how long the first generation waits for members.

        With Kafka's answers, for the configured delay, again and again while members come, up to
        their rebalance timeout. With delayed answers later members rejoin at once, and cost little:
        it waits until nobody has come for a moment, and never longer than the configured delay.
        """
        delay = self._config.group_initial_rebalance_delay_ms
        if not self._late.enabled:
            return InitialDelay(delay, max(group.rebalance_timeout_ms - delay, 0), delay)
        quiet = min(QUIET_MS, delay)
        return InitialDelay(quiet, delay - quiet, quiet)

    def _complete_join(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        group.initial = None
        self._timers.drop(group.key(JOIN))
        self._timers.drop(group.key(WAITING))
        self._drop_absent(group, now, effects)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none of them has rejoined: nobody could lead.
            wait = max(group.rebalance_timeout_ms, JOIN_AGAIN_MS_MIN)
            self._timers.set(group.key(JOIN), now + wait)
            return
        group.next_generation(now)
        group.awaited_since = now
        if group.state is ClassicGroupState.EMPTY:
            self._ended_empty(group, now, effects)
            return
        self._save_announced(group, effects)
        for member in group.members.values():
            handle = group.take_join(member)
            if handle is not None:
                effects.append(Replied(handle, joined_reply(group, member.member_id)))
            group.keep_alive(member, now)
            member.is_new = False
            group.unsynced.add(member.member_id)
        self._timers.set(group.key(SYNC), now + group.rebalance_timeout_ms)
        self._timers.set(group.key(WAITING), now + WAITING_TOLD_MS)

    def _drop_absent(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        """Remove members that did not rejoin, except static ones, whose sessions decide."""
        waited = now - group.awaited_since
        for member in list(group.members.values()):
            if not member.is_joining and member.instance_id is None:
                text = f"did not join again within {waited} ms"
                self.remove(group, member, EXPIRED, text, effects)

    def _save_announced(self, group: ClassicGroup, effects: Effects) -> None:
        try:
            group.save_announced()
        except StorageError as error:
            text = f"group {group.group_id}: generation {group.generation} was not stored: {error}"
            effects.append(LogLine("WARNING", text))

    def _ended_empty(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        try:
            group.save()
        except StorageError as error:
            text = f"group {group.group_id}: that it is empty could not be stored: {error}"
            effects.append(LogLine("WARNING", text))
        self.ended(group, now, effects)

    def ended(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        """Report the end of a rebalance; the group is Stable or Empty."""
        self._groups.touched(group.group_id)
        members = group.member_ids()
        protocol = group.protocol or ""
        effects.append(Ended(group.group_id, group.generation, protocol, group.began_at, members))
        took = now - group.began_at
        text = f"{counted(len(members), 'member')}, {took} ms after its rebalance began"
        effects.append(
            LogLine("INFO", f"group {group.group_id}: generation {group.generation}, {text}")
        )

    # -- the sync phase --------------------------------------------------------------------------

    def send_back(self, group: ClassicGroup, error: ErrorCode, now: int, effects: Effects) -> None:
        """Answer members that wait for an assignment with an error, as the generation has none."""
        group.assign({})
        self.answer_syncs(group, error, now, effects)

    def answer_syncs(
        self, group: ClassicGroup, error: ErrorCode, now: int, effects: Effects
    ) -> None:
        """Answer all parked SyncGroups; their members' sessions start again."""
        for member in group.members.values():
            if member.syncing is not None:
                reply = synced_reply(group, member, error)
                handle, member.syncing = member.syncing, None
                group.keep_alive(member, now)
                self._late.synced(group, member, handle, reply, now, effects)

    def _sync_due(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        """Remove members that did not send SyncGroup in time, and begin another rebalance."""
        if (
            group.state not in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE)
            or not group.unsynced
        ):
            return
        waited = now - group.awaited_since
        absent = [group.members[member_id] for member_id in sorted(group.unsynced)]
        for member in absent:
            text = f"did not send SyncGroup within {waited} ms"
            self.remove(group, member, EXPIRED, text, effects)
        names = _names([member.name for member in absent])
        cause = Cause(EXPIRED, f"{names} did not send SyncGroup within {waited} ms")
        self.begin(group, cause, now, effects)

    # -- members that go -------------------------------------------------------------------------

    def dismiss(self, group: ClassicGroup, effects: Effects) -> None:
        """Answer all parked requests of a group that ends with REBALANCE_IN_PROGRESS."""
        again = ErrorCode.REBALANCE_IN_PROGRESS
        self._late.begun(group, effects)
        for member in group.members.values():
            handle = group.take_join(member)
            if handle is not None:
                reply = JoinGroupResponse(error_code=again, member_id=member.member_id)
                effects.append(Replied(handle, reply))
            if member.syncing is not None:
                effects.append(Replied(member.syncing, synced_reply(group, member, again)))
                member.syncing = None

    def remove(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        cause: str,
        text: str,
        effects: Effects,
    ) -> None:
        """Remove a member, and answer its parked requests. The caller continues with the group."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        handle = group.take_join(member)
        if handle is not None:
            effects.append(Replied(handle, JoinGroupResponse(error_code=unknown)))
        if member.syncing is not None:
            effects.append(Replied(member.syncing, SyncGroupResponse(error_code=unknown)))
            member.syncing = None
        self._late.gone(group.group_id, member.member_id, unknown, effects)
        group.remove(member.member_id)
        self._groups.touched(group.group_id)
        heard_at = member.heard_at if cause == EXPIRED else None
        effects.append(Left(group.group_id, member.member_id, cause, group.member_ids(), heard_at))
        effects.append(
            LogLine("INFO", f"group {group.group_id}: {member.name} was removed: it {text}")
        )

    def _session_due(self, group: ClassicGroup, member_id: str, now: int, effects: Effects) -> None:
        """Remove a member whose session has expired, or an id that was not used in time."""
        member = group.members.get(member_id)
        if member is None:
            group.remove(member_id)
            self.go_on(group, now, effects)
        elif not member.is_waiting:
            if member.is_new:
                text = f"waited {NEW_MEMBER_JOIN_TIMEOUT_MS} ms for its first generation"
            else:
                text = (
                    f"sent no heartbeat for its session timeout of {member.session_timeout_ms} ms"
                )
            self.remove(group, member, EXPIRED, text, effects)
            cause = Cause(EXPIRED, f"{member.name} {text}")
            self.begin_or_go_on(group, cause, now, effects)

    # -- what people want to know ----------------------------------------------------------------

    def _waiting_due(self, group: ClassicGroup, now: int, effects: Effects) -> None:
        """Log the members for which a phase has waited for some time."""
        if group.state is ClassicGroupState.PREPARING:
            what = "JoinGroup"
            names = [m.name for m in group.members.values() if not m.is_joining]
            names += [f"{member_id} (new)" for member_id in group.pending]
        else:
            what = "SyncGroup"
            names = [group.members[member_id].name for member_id in sorted(group.unsynced)]
        if (
            group.state not in (ClassicGroupState.PREPARING, ClassicGroupState.COMPLETING)
            or not names
        ):
            return
        waited = now - group.awaited_since
        text = f"has waited {waited} ms for {what} of {_names(names)}"
        effects.append(LogLine("INFO", f"group {group.group_id} {text}"))
        self._timers.set(group.key(WAITING), now + WAITING_TOLD_MS)

    def due(
        self, group: ClassicGroup, kind: str, member_id: str, now: int, effects: Effects
    ) -> None:
        """Handle a timer of the group."""
        if kind == SESSION:
            self._session_due(group, member_id, now, effects)
        elif kind == JOIN:
            self._join_due(group, now, effects)
        elif kind == SYNC:
            self._sync_due(group, now, effects)
        elif kind == LEAVES:
            self._begin_left(group, now, effects)
        else:
            assert kind == WAITING
            self._waiting_due(group, now, effects)


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_TOLD_MAX
    told = ", ".join(names[:NAMES_TOLD_MAX])
    return f"{told} and {more} more" if more > 0 else told


def joined_reply(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Return this generation for one member; its leader also gets all members' metadata."""
    protocol = group.protocol or ""
    members: tuple[JoinGroupResponseMember, ...] = ()
    if group.leader == member_id:
        members = tuple(
            JoinGroupResponseMember(m.member_id, m.instance_id, m.protocols[protocol])
            for m in group.members.values()
        )
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader or "",
        member_id=member_id,
        members=members,
    )


def synced_reply(
    group: ClassicGroup, member: ClassicGroupMember, error: ErrorCode = ErrorCode.NONE
) -> SyncGroupResponse:
    """Return the SyncGroup response with a member's assignment, or with an error."""
    if error is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=error)
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
