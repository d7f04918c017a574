"""The effects of heartbeats, and of their absence, on streams groups (KIP-1071).

A heartbeat first adds or changes its member; a cause for a rebalance increases the group's epoch:
a new or changed member, one that goes, other topics, another number of standbys. Then the target
assignment is computed if it is outdated, unless the group is new and more members are expected, or
the last target is too recent. Finally the member moves towards its part of it. Nothing is ever sent
to a member unasked: each learns of changes with the answer to a heartbeat. One without news waits
for them (`waiting`); after each event, `wake` answers those for whose members there are some. A
member that cannot wait is told a short interval while something is under way for it, and the usual
one otherwise.

A member is removed when it leaves, when it is silent for the session timeout, or when it does not
release tasks within its rebalance timeout. An empty classic group becomes a streams group; one of
the consumer protocol does not, and neither the other way round.
Source: GroupMetadataManager.streamsGroupHeartbeat, streamsGroupLeave.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import msgspec

from steelyard.allocate.assignors.sticky_tasks import TaskShare
from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as causes
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.effects import Cause, Effects, Handle, Joined, Left
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups, TopicsView, may_be_lost
from steelyard.groups.kafka.streams.answers import AssignmentWait, answer
from steelyard.groups.kafka.streams.configuration import InternalTopic
from steelyard.groups.kafka.streams.description import described
from steelyard.groups.kafka.streams.group import INITIAL, REBALANCE, SESSION, TARGET, StreamsGroup
from steelyard.groups.kafka.streams.member import StreamsGroupMember, StreamsMemberState
from steelyard.groups.kafka.streams.reconciliation import reconcile
from steelyard.groups.kafka.streams.records import StreamsRecords
from steelyard.groups.kafka.streams.requests import (
    StreamsRefusal,
    is_leaving,
    owned_tasks,
    refuse_epoch,
    refuse_invalid,
    refuse_tasks,
)
from steelyard.groups.kafka.streams.topology import InvalidTopology, StreamsTopology
from steelyard.groups.kafka.streams.waiting import LateStreamsHeartbeats, StreamsWaiter, has_news
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.times import EqualStreamsSettings, StreamsGroupSettings
from steelyard.groups.kafka.waiting import Waiter
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.streams_groups import (
    DescribedGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from steelyard.wording import counted

SHORT_MS = 200
"""The interval that is told while something is under way for a member, at least."""

SHORT_MS_OF_EACH = 3
"""Part of each member in it: large groups send no more than 333 heartbeats a second."""


class StreamsHeartbeat(msgspec.Struct, frozen=True):
    """The result of a heartbeat. `missing`: internal topics to create, by name."""

    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, InternalTopic] = {}


class StreamsGroups:
    """All streams groups. `table`: where they are stored. Call `load` first."""

    def __init__(
        self,
        config: KafkaConfig,
        topics: TopicsView,
        groups: CoordinatedGroups,
        table: Table,
        *,
        delayed_answers: bool = True,
        clock: SessionClock | None = None,
        settings: StreamsGroupSettings | None = None,
    ) -> None:
        """`settings`: default: the broker's, for every group."""
        self._members_max = config.group_streams_max_size
        self._settings = settings or EqualStreamsSettings(config)
        self._late = LateStreamsHeartbeats(config, self._settings, enabled=delayed_answers)
        self._handled: dict[str, None] = {}
        """The groups that may have changed since the last `wake`, in this order."""
        self._topics = topics
        self._groups = groups
        self._records = StreamsRecords(table)
        self._clock = clock or SessionClock()
        self._timers = Timers(self._clock)

    def load(self, now: int) -> None:
        """Restore the stored groups; each member has a whole session timeout to return.

        Members of a group whose own row could not be read have to join again.
        """
        for group_id, stored in self._records.restored().items():
            if stored.row is None:
                with suppress(StorageError):  # else at the next start
                    self._records.erase(group_id, stored.members)
                continue
            group = self._new(group_id, StreamsTopology(stored.row.topology))
            group.restore(stored.row, stored)
            group.assigned_at = min(group.assigned_at, now)  # the clock may have been set back
            self._groups.add(group)
            for member in group.each():
                self._hear(group, member, now)
                self._time_revocation(group, member, now)

    # -- requests --------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        asker: Asker,
        now: int,
        effects: Effects,
        handle: Handle | None = None,
    ) -> StreamsHeartbeat | None:
        """Handle a StreamsGroupHeartbeat; return None if its answer waits. Call `wake` next.

        `handle`: what the answer is given to then; without one it does not wait.

        Raises StorageError if a change could not be stored; it is effective, and stored with the
        next one.
        """
        refusal = refuse_invalid(request)
        if refusal is not None:
            return StreamsHeartbeat(refusal.response())
        result = (
            self._leave(request, now, effects)
            if is_leaving(request)
            else self._beat(request, asker, handle, now, effects)
        )
        return StreamsHeartbeat(result.response()) if isinstance(result, StreamsRefusal) else result

    def describe(self, group_id: str) -> DescribedGroup:
        """Return one group of a StreamsGroupDescribe. Source: ...streamsGroupDescribe."""
        group = self._get(group_id)
        if isinstance(group, StreamsRefusal):
            text = group.message.replace("Streams group", "Group", 1)
            return DescribedGroup(group.code, text, group_id)
        return described(group)

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        times = [at for at in (self._timers.next_at, self._late.next_at) if at is not None]
        return min(times, default=None)

    def due(self, now: int, effects: Effects) -> None:
        """Remove the members whose time is over, and compute targets that were put off.

        End the waits that are long enough. Call `wake` next.
        """
        self._late.due(now, effects)
        for group_id, what, member_id in self._timers.due(now):
            group = self._groups.get(group_id)
            if not isinstance(group, StreamsGroup):
                continue
            self._handled[group_id] = None
            if what in (TARGET, INITIAL):
                if not group.is_empty:
                    self._retarget(group, now)
            else:
                member = group.member(member_id)
                assert member is not None
                self._expire(group, member, what, now, effects)
            try:
                self._settle(group, effects)
            except StorageError as error:
                effects.append(LogLine("ERROR", f"group {group_id}: not stored: {error}"))

    def _expire(
        self, group: StreamsGroup, member: StreamsGroupMember, what: str, now: int, effects: Effects
    ) -> None:
        heard_at: int | None = None
        text = "did not give up its tasks within its rebalance timeout"
        if what == SESSION:
            waited = self._settings.session_timeout_ms(group.group_id)
            text = f"sent no heartbeat for {waited} ms"
            heard_at = self._clock.ago(waited, now)
        self._put_out(group, member, causes.EXPIRED, text, now, effects, heard_at)

    # -- heartbeats that wait --------------------------------------------------------------------

    def wake(self, now: int, effects: Effects) -> None:
        """Answer the members that wait in groups that have changed, if there is news for them."""
        while self._handled:
            group_id = next(iter(self._handled))
            del self._handled[group_id]
            group = self._groups.get(group_id)
            if isinstance(group, StreamsGroup) and group.stirred:
                group.stirred = False
                self._wake(group, now, effects)

    def _wake(self, group: StreamsGroup, now: int, effects: Effects) -> None:
        waiting = self._late.of_group(group.group_id)
        if not waiting:
            return
        self._handled[group.group_id] = None  # a member's step may be news for another
        delay = self._delay(group, now)
        answers: list[tuple[Waiter, StreamsGroupHeartbeatResponse]] = []
        for waiter in waiting:
            member = group.member(waiter.member_id)
            assert member is not None
            assert isinstance(waiter, StreamsWaiter)
            after = self._step(group, member, None, now)
            interval_ms = self._interval_ms(group, after, delay, now, waits=True)
            response = answer(group, member, after, waiter.request, None, delay, interval_ms)
            if has_news(after, waiter.request, response):
                answers.append((waiter, response))
        store = partial(self._settle, group, effects)
        self._late.answer_stored(group.group_id, answers, store, effects)

    def look_at_topics(self, now: int, effects: Effects) -> None:
        """Have the members that wait come again in groups whose topics have changed."""
        for group_id in self._late.groups():
            group = self._groups.get(group_id)
            assert isinstance(group, StreamsGroup)
            try:
                group.look_at_topics()
            except InvalidTopology:
                changed = True
            else:
                changed = group.topics_changed is not None
            if changed:
                self._late.released_group(group_id, now, effects)

    def released(self, link: int, now: int, effects: Effects) -> None:
        """Answer what waits on a link, because something else came on it."""
        self._late.released(link, now, effects)

    def closed(self, link: int, now: int, effects: Effects) -> None:
        """End what waits on a link that is closed."""
        self._late.closed(link, now, effects)

    def waiting_groups(self) -> list[str]:
        """Return the groups with members that wait for an answer to a heartbeat."""
        return self._late.groups()

    def refused(self, group_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer the members of a group that wait: it has another coordinator now."""
        self._late.refused(group_id, error, effects)

    # -- groups ----------------------------------------------------------------------------------

    def _new(self, group_id: str, topology: StreamsTopology) -> StreamsGroup:
        return StreamsGroup(group_id, topology, self._topics, self._records, self._timers)

    def _get(self, group_id: str) -> StreamsGroup | StreamsRefusal:
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        text = (
            f"Streams group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a streams group."
        )
        return StreamsRefusal(ErrorCode.GROUP_ID_NOT_FOUND, text)

    def _to_join(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroup | StreamsRefusal:
        """Return the group that a member joins with its topology.

        A new one is added by `_settle_in` once everything is checked. Raises InvalidTopology.
        """
        assert request.topology is not None
        topology = StreamsTopology.of(request.topology)
        group = self._groups.get(request.group_id)
        if isinstance(group, StreamsGroup):
            is_full = len(group) >= self._members_max
            if is_full and group.member(request.member_id) is None:
                return StreamsRefusal(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    "The streams group has reached its maximum capacity of"
                    f" {self._members_max} members.",
                )
            if topology.epoch >= group.topology.epoch and topology != group.topology:
                text = "Topology updates are not supported yet."
                return StreamsRefusal(ErrorCode.INVALID_REQUEST, text)
            return group
        if group is None and self._groups.is_full:
            text = "There are too many groups."
            return StreamsRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        if group is None or (isinstance(group, ClassicGroup) and group.is_empty):
            return self._new(request.group_id, topology)
        return self._get(request.group_id)

    def _settle_in(self, group: StreamsGroup) -> None:
        """Add a new group, and drop the one that it replaces.

        Raises StorageError; then nothing has changed.
        """
        before = self._groups.get(group.group_id)
        if before is not group:
            if before is not None:
                before.forget()
            self._groups.add(group)

    # -- heartbeats ------------------------------------------------------------------------------

    def _beat(
        self,
        request: StreamsGroupHeartbeatRequest,
        asker: Asker,
        handle: Handle | None,
        now: int,
        effects: Effects,
    ) -> StreamsHeartbeat | StreamsRefusal | None:
        joins = request.member_epoch == 0
        owned = owned_tasks(request)
        try:
            if not joins and may_be_lost(self._groups.get(request.group_id)):
                return _unknown_member(request)
            group = self._to_join(request) if joins else self._get(request.group_id)
            if isinstance(group, StreamsRefusal):
                return group
            member = group.member(request.member_id)
            if member is None and not joins:
                return _unknown_member(request)
            before = member or StreamsGroupMember(request.member_id)
            refusal = refuse_epoch(before, request.member_epoch, owned)
            if refusal is not None:
                return refusal
            group.look_at_topics()
        except InvalidTopology as error:
            return StreamsRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, str(error))
        if group.configured.is_ready:
            refusal = refuse_tasks(owned, group.configured.tasks)
            if refusal is not None:
                return refusal
        self._settle_in(group)
        group_id, member_id = request.group_id, request.member_id
        self._handled[group_id] = None
        # One that still waits is on a connection that its member has given up: no news for that.
        self._late.superseded(group_id, member_id, now, effects)
        wanted = _updated(before, request, asker)
        self._change(group, wanted, now, effects, is_new=member is None)
        delay = self._delay(group, now)
        may_run = owned
        if joins:
            group.told.joined(member_id)
        elif owned is not None:
            may_run = group.told.report(member_id, owned, before.assigned.share)
        after = self._step(group, wanted, may_run, now)
        self._hear(group, after, now)
        if request.shutdown_application:
            group.shut_down(member_id)
        self._settle(group, effects)
        waits = handle is not None and self._late.wait_ms(group_id, member_id, asker) > 0
        interval_ms = self._interval_ms(group, after, delay, now, waits=waits)
        response = answer(group, before, after, request, owned, delay, interval_ms)
        is_changing = group.told.is_changing(member_id)
        if handle is not None and waits and not (is_changing or has_news(after, request, response)):
            self._late.released(asker.link, now, effects)
            self._late.wait(request, response, asker, handle, now)
            return None
        return StreamsHeartbeat(response, group.configured.missing)

    def _causes(
        self, group: StreamsGroup, wanted: StreamsGroupMember, *, is_new: bool
    ) -> list[Cause]:
        """Return why a rebalance begins with a heartbeat."""
        found: list[Cause] = []
        if is_new:
            found.append(Cause(causes.JOINED, f"{wanted.name} joined"))
        elif group.member(wanted.member_id) != wanted:
            found.append(Cause(causes.SUBSCRIPTION, f"{wanted.name} has changed"))
        if group.topics_changed is not None or group.ready_epoch != group.validated_epoch:
            text = group.topics_changed or "its topology is valid now"
            found.append(Cause(causes.TOPICS, text))
        replicas = self._settings.standby_replicas(group.group_id)
        if replicas != group.standby_replicas:
            group.standby_replicas = replicas
            text = f"each task has {counted(replicas, 'standby')} now"
            found.append(Cause(causes.SUBSCRIPTION, text))
        return found

    def _change(
        self,
        group: StreamsGroup,
        wanted: StreamsGroupMember,
        now: int,
        effects: Effects,
        *,
        is_new: bool,
    ) -> None:
        """Put the member in the group as it is now, and begin a rebalance if there is a cause."""
        found = self._causes(group, wanted, is_new=is_new)
        group.validated_epoch = group.ready_epoch
        initial = (group.group_id, INITIAL, "")
        initial_ms = self._settings.initial_delay_ms(group.group_id)
        if group.is_empty and initial_ms and self._timers.at(initial) is None:
            self._timers.set(initial, now + initial_ms)
        group.put(wanted)
        if is_new:
            topics = tuple(sorted(group.topology.readers))
            joined = Joined(group.group_id, wanted, causes.JOINED, group.member_ids(), topics)
            effects.append(joined)
        if found:
            text = "; ".join(cause.text for cause in found)
            group.bump(Cause(found[0].trigger, text), now, effects)
            self._groups.touched(group.group_id)

    def _delay(self, group: StreamsGroup, now: int) -> AssignmentWait | None:
        """Compute the target if it is outdated; return why not yet, or None."""
        initial = self._timers.at((group.group_id, INITIAL, ""))
        if initial is not None:
            text = "Assignment delayed due to the configured initial rebalance delay."
            return AssignmentWait(initial, text)
        if group.assignment_epoch == group.epoch:
            return None
        at = group.assigned_at + self._settings.assignment_interval_ms(group.group_id)
        if group.assigned_at and now < at:
            self._timers.set((group.group_id, TARGET, ""), at)
            return AssignmentWait(
                at, "Assignment delayed due to the configured assignment interval."
            )
        self._retarget(group, now)
        return None

    def _retarget(self, group: StreamsGroup, now: int) -> None:
        group.retarget(now)
        self._timers.drop((group.group_id, TARGET, ""))

    def _step(
        self,
        group: StreamsGroup,
        member: StreamsGroupMember,
        may_run: TaskShare | None,
        now: int,
    ) -> StreamsGroupMember:
        """Let a member take its next step towards the target, and return it.

        `may_run`: see `ToldTasks.report`; None if it does not report.
        """
        after = reconcile(
            member,
            group.target(member.member_id),
            group.assignment_epoch,
            may_run,
            group.free_for(member),
        )
        if after == member:
            return member
        group.put(after)
        self._time_revocation(group, after, now)
        if after.active != member.active:
            self._groups.touched(group.group_id)
        return after

    def _interval_ms(
        self,
        group: StreamsGroup,
        member: StreamsGroupMember,
        delay: AssignmentWait | None,
        now: int,
        *,
        waits: bool,
    ) -> int:
        """Return the interval to tell a member: it comes again when there should be news for it.

        `waits`: its next heartbeat may wait for them.
        """
        usual_ms = self._settings.heartbeat_interval_ms(group.group_id)
        is_stable = delay is None and member.state is StreamsMemberState.STABLE
        if group.configured.status is not None or (is_stable and not waits):
            return usual_ms
        short_ms = max(SHORT_MS, SHORT_MS_OF_EACH * len(group))
        is_delayed = delay is not None and (not waits or group.awaits_target(member.member_id))
        delay_ms = delay.until - now if delay is not None and is_delayed else 0
        return min(max(short_ms, delay_ms), usual_ms)

    # -- members that go -------------------------------------------------------------------------

    def _leave(
        self, request: StreamsGroupHeartbeatRequest, now: int, effects: Effects
    ) -> StreamsHeartbeat | StreamsRefusal:
        group = self._get(request.group_id)
        if isinstance(group, StreamsRefusal):
            return group
        member = group.member(request.member_id)
        if member is None:
            return _unknown_member(request)
        if request.shutdown_application:
            group.shut_down(request.member_id)
        self._handled[group.group_id] = None
        self._put_out(group, member, causes.LEFT, "left", now, effects)
        self._settle(group, effects)
        return StreamsHeartbeat(
            StreamsGroupHeartbeatResponse(
                member_id=member.member_id, member_epoch=request.member_epoch, status=()
            )
        )

    def _put_out(
        self,
        group: StreamsGroup,
        member: StreamsGroupMember,
        trigger: str,
        text: str,
        now: int,
        effects: Effects,
        heard_at: int | None = None,
    ) -> None:
        """Remove a member; a rebalance begins."""
        group_id = group.group_id
        others = tuple(one for one in group.member_ids() if one != member.member_id)
        effects.append(Left(group_id, member.member_id, trigger, others, heard_at))
        effects.append(LogLine("INFO", f"group {group_id}: {member.name} was removed: it {text}"))
        group.remove(member.member_id)
        self._late.gone(group_id, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        group.bump(Cause(trigger, f"{member.name} {text}"), now, effects)
        self._groups.touched(group_id)

    # -- timers ----------------------------------------------------------------------------------

    def _hear(self, group: StreamsGroup, member: StreamsGroupMember, now: int) -> None:
        """Start a member's session again."""
        at = now + self._settings.session_timeout_ms(group.group_id)
        self._timers.set((group.group_id, SESSION, member.member_id), at)

    def _time_revocation(self, group: StreamsGroup, member: StreamsGroupMember, now: int) -> None:
        """Limit the time in which a member releases tasks, if it has to."""
        key = (group.group_id, REBALANCE, member.member_id)
        if member.state is StreamsMemberState.UNREVOKED_TASKS:
            self._timers.set(key, now + member.rebalance_timeout_ms)
        else:
            self._timers.drop(key)

    def _settle(self, group: StreamsGroup, effects: Effects) -> None:
        """Report the end of a rebalance, and store the group. Raises StorageError."""
        group.settle(effects)
        group.save()

    def check(self) -> None:
        """Assert the invariants of all groups."""
        self._timers.check()
        known = {one.group_id: one for one in self._groups if isinstance(one, StreamsGroup)}
        self._late.check(known, self._timers)
        for group in known.values():
            group.check()
            for member_id in group.member_ids():
                assert self._timers.at((group.group_id, SESSION, member_id)) is not None


def _unknown_member(request: StreamsGroupHeartbeatRequest) -> StreamsRefusal:
    text = f"Member {request.member_id} is not a member of group {request.group_id}."
    return StreamsRefusal(ErrorCode.UNKNOWN_MEMBER_ID, text)


def _updated(
    member: StreamsGroupMember, request: StreamsGroupHeartbeatRequest, asker: Asker
) -> StreamsGroupMember:
    """Return the member with the changes in a heartbeat; None and -1 mean no change."""
    timeout_ms = request.rebalance_timeout_ms
    tags = request.client_tags
    return msgspec.structs.replace(
        member,
        rack_id=request.rack_id or member.rack_id,
        client_id=asker.client_id,
        host=asker.host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch
        if request.topology is None
        else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=request.user_endpoint or member.endpoint,
        client_tags=member.client_tags if tags is None else {tag.key: tag.value for tag in tags},
    )
