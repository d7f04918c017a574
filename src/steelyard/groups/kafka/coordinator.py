"""Kafka's group coordinator, for the groups of one broker.

Every method takes the wire's message and `now`, and adds to `effects`: `Replied` for the request
behind a handle, at once or after a later event; `LogLine` for people; the others for the ledger.
`due` must be called at `next_at`. Requests for a group of another coordinator must not get here.
Source: GroupCoordinatorService.java, GroupMetadataManager.java.
"""

from __future__ import annotations

from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.flapping import Flapping
from steelyard.groups.kafka.classic.deferring import DEFERRED, DeferredJoins
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.classic.joining import Join, Joining
from steelyard.groups.kafka.classic.leaving import Leaving
from steelyard.groups.kafka.classic.members import Room
from steelyard.groups.kafka.classic.rebalances import Rebalances
from steelyard.groups.kafka.classic.saved import SavedGroup, SavedGroups
from steelyard.groups.kafka.classic.state import ClassicGroupState
from steelyard.groups.kafka.classic.syncing import Syncing
from steelyard.groups.kafka.classic.waiting import LateAnswers
from steelyard.groups.kafka.committing import Committing
from steelyard.groups.kafka.effects import LEFT, SIZE, Cause, Effects, Handle, Replied
from steelyard.groups.kafka.expiry import Expiry
from steelyard.groups.kafka.fetching import OffsetFetching
from steelyard.groups.kafka.flapping import name_of
from steelyard.groups.kafka.groups import SHARE, Asker, CoordinatedGroups, Group, TopicsView
from steelyard.groups.kafka.listing import Listing
from steelyard.groups.kafka.moving import Moving
from steelyard.groups.kafka.offsets import Offsets
from steelyard.groups.kafka.timers import Timers
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table
from steelyard.types import LogLine, Random
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

EXPIRY = ("", "expiry", "")
"""The timer of `Expiry`; no timer of a group has this name."""

RESTORED = "restored"
"""Purpose of the timer of a restored group that has to rebalance."""


class Coordinator:
    """The coordinator of all classic groups of a broker.

    `commits`, `fetches`, `listing`: the requests about offsets and about all groups, which are
    answered at once. `moving`: groups that change their coordinator.
    """

    def __init__(
        self,
        config: KafkaConfig,
        groups: CoordinatedGroups,
        topics: TopicsView,
        saved: Table,
        offsets: Table,
        rng: Random,
        now: int,
        *,
        delayed_answers: bool = True,
        clock: SessionClock | None = None,
    ) -> None:
        """Load the groups.

        `saved`, `offsets`: the tables `kafka_groups` and `kafka_offsets`. `clock`: what members'
        time is measured by.
        """
        self._config = config
        self._groups = groups
        self._timers = Timers(clock)
        self._saved = SavedGroups(saved)
        self._room = Room()
        self.offsets = Offsets(offsets)
        late = LateAnswers(config.group_heartbeat_wait_max_ms, enabled=delayed_answers)
        self._late = late
        self._deferred = DeferredJoins(self._timers, late)
        self.flapping = Flapping()
        """Who joins and goes again and again, in groups of either kind; the caller notes it."""
        self._window_max_ms = config.group_join_window_max_ms if delayed_answers else 0
        rebalances = Rebalances(config, self._timers, groups, late)
        self._rebalances = rebalances
        self._joining = Joining(
            config, self._timers, groups, topics, self._room, rebalances, late, rng
        )
        self._syncing = Syncing(self._timers, self._room, rebalances, late)
        self._leaving = Leaving(rebalances)
        self._expiry = Expiry(config.offsets_retention_minutes, groups, self.offsets)
        self.commits = Committing(config, groups, self.offsets, topics, self._new_group)
        self.moving = Moving(groups, self.offsets, self._new_group)
        self.fetches = OffsetFetching(groups, self.offsets, topics)
        self.listing = Listing(groups, self.offsets)
        self._load(now)
        self._timers.set(EXPIRY, now + config.offsets_retention_check_interval_ms)

    def _load(self, now: int) -> None:
        """Restore the stored groups, and add those of which only offsets are stored."""
        for saved in self._saved.load():
            group = self._classic(saved.group_id, now)
            group.restore(saved, now)
            self._groups.add(group)
            if self._restored_cause(group) is not None:
                self._timers.set(group.key(RESTORED), now)
        for group_id in sorted(self.offsets.groups()):
            if self._groups.get(group_id) is None:
                self._groups.add(self._classic(group_id, now))

    def _classic(self, group_id: str, now: int) -> ClassicGroup:
        return ClassicGroup(
            group_id, self._timers, self._saved, self._room, now, self._window_max_ms
        )

    def _new_group(self, group_id: str, now: int) -> Group | None:
        if self._groups.is_full:
            return None
        group = self._classic(group_id, now)
        self._groups.add(group)
        return group

    # -- members ---------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> None:
        """Handle a JoinGroup, which is answered once there is a generation."""
        join = Join(request, version, asker, handle)
        fault = self.fault(request)
        if fault is not ErrorCode.NONE:
            join.refused(fault, effects, request.member_id)
            return
        group = self._to_join(join, now, effects)
        if group is not None and not self._deferred.defer(
            group, join, self._damping_ms(join, now), now
        ):
            self._joining.join(group, join, now, effects)
            self._take_deferred(group.group_id, now, effects)

    def _damping_ms(self, join: Join, now: int) -> int:
        """Return for how long a client that flaps waits before it may return."""
        request, asker = join.request, join.asker
        name = name_of(request.group_instance_id, asker.client_id, asker.host)
        most_ms = self._config.group_flapping_delay_max_ms
        return self.flapping.delay_ms(request.group_id, name, most_ms, now) if most_ms else 0

    def damped(self, group_id: str) -> dict[str, int]:
        """Return until when clients wait that flap, by name."""
        return {
            name_of(join.request.group_instance_id, join.asker.client_id, join.asker.host): until
            for join, until in self._deferred.damped(group_id)
        }

    def _take_deferred(self, group_id: str, now: int, effects: Effects) -> None:
        """Handle the JoinGroups that have waited long enough after an event of the group.

        They may begin a rebalance, in which the others take part.
        """
        while joins := self._deferred.take(group_id, self._groups.get(group_id), now):
            self._joins(joins, now, effects)

    def _joins(self, joins: list[Join], now: int, effects: Effects) -> None:
        for join in joins:
            group = self._to_join(join, now, effects)
            if group is not None:
                self._joining.join(group, join, now, effects)

    def fault(self, request: JoinGroupRequest) -> ErrorCode:
        """Return why nobody can join with this request; NONE if it is valid."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest = self._config.group_min_session_timeout_ms
        longest = self._config.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _to_join(self, join: Join, now: int, effects: Effects) -> ClassicGroup | None:
        """Return the group to join, created if necessary; None if the request was refused."""
        request = join.request
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group
        error = ErrorCode.NONE
        if group is not None and (not group.is_empty or group.kind == SHARE):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        elif group is None and self._groups.is_full:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif group is not None:
            # An empty group of the other kind becomes one of this kind; its offsets stay.
            try:
                group.forget()
            except StorageError as fault:
                text = f"group {request.group_id}: not stored: {fault}"
                effects.append(LogLine("WARNING", text))
                error = ErrorCode.NOT_COORDINATOR
        if error is not ErrorCode.NONE:
            join.refused(error, effects, request.member_id)
            return None
        made = self._classic(request.group_id, now)
        self._groups.add(made)
        return made

    def sync(
        self,
        request: SyncGroupRequest,
        version: int,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> None:
        """Handle a SyncGroup, which is answered once the leader's has arrived."""
        group = self._groups.get(request.group_id)
        if version >= 5 and None in (request.protocol_type, request.protocol_name):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif isinstance(group, ClassicGroup) and not group.is_empty:
            self._syncing.sync(group, request, version, asker, handle, now, effects)
            self._take_deferred(group.group_id, now, effects)
            return
        else:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        effects.append(Replied(handle, SyncGroupResponse(error_code=error)))

    def heartbeat(
        self,
        request: HeartbeatRequest,
        version: int,
        asker: Asker,
        handle: Handle,
        now: int,
        effects: Effects,
    ) -> None:
        """Handle a Heartbeat, which may be answered when the next rebalance begins."""
        group = self._groups.get(request.group_id)
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif isinstance(group, ClassicGroup):
            self._syncing.beat(group, request, version, asker, handle, now, effects)
            self._take_deferred(group.group_id, now, effects)
            return
        else:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        effects.append(Replied(handle, HeartbeatResponse(error_code=error)))

    def released(self, link: int, now: int, effects: Effects) -> None:
        """Answer what waits on a link, because something else came on it."""
        self._late.released(link, now, effects)
        joins = self._deferred.released(link)
        self._joins(joins, now, effects)
        for group_id in sorted({join.request.group_id for join in joins}):
            self._take_deferred(group_id, now, effects)

    def closed(self, link: int, now: int, effects: Effects) -> None:
        """End what waits on a link that is closed, and forget the newcomers that wait on it."""
        self._deferred.closed(link)
        self._late.closed(link, now, effects)

    def waiting_groups(self) -> list[str]:
        """Return the groups with members and newcomers that wait for an answer."""
        return sorted({*self._late.groups(), *self._deferred.groups()})

    def refused(self, group_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer the members of a group that wait: it has another coordinator now."""
        self._late.refused(group_id, error, effects)
        self._deferred.refused(group_id, error, effects)

    def leave(
        self, request: LeaveGroupRequest, version: int, now: int, effects: Effects
    ) -> LeaveGroupResponse:
        """Handle a LeaveGroup. Up to version 2 it has one member, whose error is the response's."""
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        leavers = request.members if version >= 3 else (MemberIdentity(request.member_id),)
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            results = self._leaving.leave(group, leavers, now, effects)
            self._take_deferred(group.group_id, now, effects)
        else:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            results = tuple(
                MemberResponse(leaver.member_id, leaver.group_instance_id, unknown)
                for leaver in leavers
            )
        if version < 3:
            return LeaveGroupResponse(error_code=results[0].error_code)
        return LeaveGroupResponse(members=results)

    # -- groups that migrate ---------------------------------------------------------------------

    def hand_over(self, group: ClassicGroup, effects: Effects) -> None:
        """Drop a group whose members are in a consumer group now.

        Those that wait for a response are told to join again. Raises StorageError if the group
        could not be deleted on the disk, where the other one takes precedence.
        """
        self._rebalances.dismiss(group, effects)
        self._deferred.refused(group.group_id, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        group.migrated()

    def take_over(self, saved: SavedGroup, cause: Cause, now: int, effects: Effects) -> None:
        """Continue a consumer group of which only members of the classic protocol are left.

        A rebalance begins. Raises StorageError; then nothing has changed.
        """
        self._saved.save(saved)
        group = self._classic(saved.group_id, now)
        group.restore(saved, now)
        self._groups.add(group)
        self._rebalances.begin(group, cause, now, effects)

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        """Return when to call `due`."""
        times = [at for at in (self._timers.next_at, self._late.next_at) if at is not None]
        return min(times, default=None)

    def due(self, now: int, effects: Effects) -> None:
        """Handle the timers that are due."""
        self._late.due(now, effects)
        for key in self._timers.due(now):
            group_id, kind, member_id = key
            if key == EXPIRY:
                self._clean(now, effects)
                continue
            group = self._groups.get(group_id)
            if not isinstance(group, ClassicGroup):
                continue
            if kind == RESTORED:
                cause = self._restored_cause(group)
                if cause is not None and group.state is ClassicGroupState.STABLE:
                    self._rebalances.begin(group, cause, now, effects)
            elif kind != DEFERRED:
                self._rebalances.due(group, kind, member_id, now, effects)
            self._take_deferred(group_id, now, effects)

    def _restored_cause(self, group: ClassicGroup) -> Cause | None:
        """Return why a restored group has to rebalance; None if it need not.

        It may be too large: only so many can rejoin. Or the rebalance of its downgrade has not
        ended, which gives away the partitions of the member that left.
        """
        most = self._config.group_max_size
        if len(group.members) > most:
            text = f"it was restored with {len(group.members)} members and {most} are allowed"
            return Cause(SIZE, text)
        if group.is_downgraded:
            text = "its downgrade to the classic protocol was not finished before the restart"
            return Cause(LEFT, text)
        return None

    def _clean(self, now: int, effects: Effects) -> None:
        self._timers.set(EXPIRY, now + self._config.offsets_retention_check_interval_ms)
        try:
            self._expiry.clean(now, effects)
        except StorageError as error:
            effects.append(LogLine("ERROR", f"old offsets could not be deleted: {error}"))

    # -- what else people ask --------------------------------------------------------------------

    def topic_deleted(self, topic: str) -> None:
        """Delete the offsets of a deleted topic. Raises StorageError."""
        self.offsets.delete_topic(topic)

    def check(self) -> None:
        """Assert the invariants of all groups."""
        self._timers.check()
        self.offsets.check()
        size = 0
        for group in self._groups:
            group.check()
            if isinstance(group, ClassicGroup):
                size += group.bytes
        assert self._room.bytes == size
        classic = [group for group in self._groups if isinstance(group, ClassicGroup)]
        self._late.check(classic)
        self._deferred.check({group.group_id: group for group in classic})
