"""The effects of heartbeats, and of their absence, on groups of the consumer protocol (KIP-848).

A heartbeat first adds or changes its member; a cause for a rebalance increases the group's epoch.
Then the target assignment is computed if it is outdated, unless more joins are expected
(`groups.kafka.window`). Finally the member moves towards its part of it. Nothing is ever sent to a
member unasked: each learns of changes with the answer to a heartbeat. One without news waits for
them (`waiting`); after each event, `wake` answers those for whose members there are some.

A member is removed when it leaves, when it is silent for the session timeout, or when it does not
release partitions within its rebalance timeout.
Source: GroupMetadataManager.consumerGroupHeartbeat, consumerGroupLeave.
"""

from __future__ import annotations

from functools import partial

import msgspec

from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as causes
from steelyard.groups.kafka.classic.group import ClassicGroup
from steelyard.groups.kafka.consumer.admission import admit, known_member, owned_partitions
from steelyard.groups.kafka.consumer.classic_members import ClassicMembers
from steelyard.groups.kafka.consumer.description import assignment_of, described
from steelyard.groups.kafka.consumer.group import (
    DAMPED,
    JOIN,
    REBALANCE,
    SESSION,
    SYNC,
    TARGET,
    ConsumerGroup,
)
from steelyard.groups.kafka.consumer.member import LEAVE, LEFT_FOR_NOW, ConsumerGroupMember
from steelyard.groups.kafka.consumer.member_changes import (
    MemberChanges,
    has_moved,
    holdings,
    resubscribed,
)
from steelyard.groups.kafka.consumer.migration import Migration
from steelyard.groups.kafka.consumer.records import Records
from steelyard.groups.kafka.consumer.requests import HeartbeatRefusal, refuse_invalid
from steelyard.groups.kafka.consumer.waiting import LateHeartbeats
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Cause, Effects, Handle
from steelyard.groups.kafka.groups import (
    Asker,
    CoordinatedGroups,
    Group,
    TopicsView,
    may_be_lost,
)
from steelyard.groups.kafka.patterns import PatternError
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.times import EqualTimes, GroupTimes
from steelyard.groups.kafka.waiting import Waiter
from steelyard.session_clock import SessionClock
from steelyard.store.tables import Table
from steelyard.types import LogLine, Random
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

RESTLESS_MS = 1_500
"""The interval of members that have nothing to do while others join.

Half of it they wait for news. With the usual interval they would hear of nothing for most of it
after each change (see `waiting`).
"""

RESTLESS_MS_OF_EACH = 3
"""Part of each member in it: large groups send no more than 333 heartbeats a second."""

LATE = {
    REBALANCE: "did not give up its partitions",
    JOIN: "did not join again",
    SYNC: "did not send SyncGroup",
}
"""What a member has not done in time, by its timer."""


class ConsumerGroups:
    """All groups of the consumer protocol. `table`: where they are stored. Call `load` first."""

    def __init__(
        self,
        config: KafkaConfig,
        topics: TopicsView,
        groups: CoordinatedGroups,
        table: Table,
        rng: Random,
        coordinator: Coordinator,
        *,
        delayed_answers: bool = True,
        clock: SessionClock | None = None,
        times: GroupTimes | None = None,
    ) -> None:
        """`times`: default: the broker's, for every group."""
        self._config = config
        self._times = times or EqualTimes(config)
        self._late = LateHeartbeats(config, self._times, enabled=delayed_answers)
        self._topics = topics
        self._groups = groups
        self._records = Records(table)
        self._rng = rng
        self._clock = clock or SessionClock()
        self._timers = Timers(self._clock)
        self._migration = Migration(config, topics, coordinator)
        self._changes = MemberChanges(
            config,
            groups,
            self._timers,
            self._migration,
            self._late,
            coordinator.flapping,
            self._times,
        )
        self.classic = ClassicMembers(config, groups, self._timers, self._changes, self._late, rng)

    def load(self, now: int) -> None:
        """Restore the stored groups; each member has a whole session timeout to return."""
        for group_id, stored in self._records.restored().items():
            group = self._new(group_id)
            group.restore(stored)
            group.assigned_at = min(group.assigned_at, now)  # the clock may have been set back
            before = self._groups.get(group_id)
            if isinstance(before, ClassicGroup) and not before.is_empty:
                # The broker ended between the two rows of a group that was upgraded, or downgraded.
                self._migration.upgraded(before, [])
            self._add(group, now)
            for member in group.each():
                self._changes.time_revocation(group, member, now)

    # -- requests --------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        asker: Asker,
        now: int,
        effects: Effects,
        handle: Handle | None = None,
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Handle a ConsumerGroupHeartbeat; return None if its answer waits.

        `handle`: what the answer is given to then; without one it does not wait.

        Raises StorageError if a change could not be stored; it is effective, and stored with the
        next one.
        """
        refusal = refuse_invalid(request, version)
        if refusal is not None:
            return refusal.response()
        answer: ConsumerGroupHeartbeatResponse | HeartbeatRefusal | None
        if request.member_epoch in (LEAVE, LEFT_FOR_NOW):
            answer = self._leave(request, now, effects)
        else:
            answer = self._beat(request, asker, handle, now, effects)
        return answer.response() if isinstance(answer, HeartbeatRefusal) else answer

    def describe(self, group_id: str) -> DescribedGroup:
        """Return one group of a ConsumerGroupDescribe.

        Source: GroupMetadataManager.consumerGroupDescribe.
        """
        group = self._get(group_id)
        if isinstance(group, HeartbeatRefusal):
            return DescribedGroup(group.code, group.message, group_id)
        return described(group)

    # -- time ------------------------------------------------------------------------------------

    @property
    def next_at(self) -> int | None:
        times = [at for at in (self._timers.next_at, self._late.next_at) if at is not None]
        return min(times, default=None)

    def due(self, now: int, effects: Effects) -> None:
        """Remove the members whose time is over, and end the waits that are. Call `wake` next."""
        self._late.due(now, effects)
        for group_id, what, member_id in self._timers.due(now):
            group = self._groups.get(group_id)
            self._changes.stirred.add(group_id)
            if what == TARGET and isinstance(group, ConsumerGroup):
                self._retarget(group, now, effects)
                continue
            member = group.member(member_id) if isinstance(group, ConsumerGroup) else None
            if not isinstance(group, ConsumerGroup) or member is None:
                continue
            if what == DAMPED:
                self._changes.admit(group, member, now, effects)
                self._save(group, effects)
                continue
            if what == SESSION:
                waited = self._changes.session_timeout_ms(group, member)
                text = f"sent no heartbeat for {waited} ms"
                heard_at: int | None = self._clock.ago(waited, now)
            else:
                text, heard_at = f"{LATE[what]} within its rebalance timeout", None
            self._changes.put_out(group, member_id, causes.EXPIRED, text, now, effects, heard_at)
            try:
                self._changes.settled(group, effects)
            except StorageError as error:
                effects.append(
                    LogLine("ERROR", f"group {group_id}: {member_id} was removed: {error}")
                )

    def _retarget(self, group: ConsumerGroup, now: int, effects: Effects) -> None:
        """Compute a target that was put off."""
        self._changes.retarget(group, now)
        self._save(group, effects)

    def _save(self, group: ConsumerGroup, effects: Effects) -> None:
        try:
            self._changes.settled(group, effects)
        except StorageError as error:
            effects.append(LogLine("WARNING", f"group {group.group_id}: not stored: {error}"))

    # -- heartbeats that wait --------------------------------------------------------------------

    def look_at_topics(self, now: int, effects: Effects) -> None:
        """Look at the topics of the groups with members that wait. Call `wake` next.

        Raises StorageError.
        """
        for group_id in self._late.groups():
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._look_at_topics(group, now, effects)

    def wake(self, now: int, effects: Effects) -> None:
        """Answer the members that wait in groups that have changed, if there is news for them."""
        stirred, self._changes.stirred = self._changes.stirred, set()
        for group_id in sorted(stirred):
            if self._late.of_group(group_id):
                self._wake(group_id, now, effects)

    def _wake(self, group_id: str, now: int, effects: Effects) -> None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            # It was downgraded: only members of the classic protocol are left.
            self._late.refused(group_id, ErrorCode.REBALANCE_IN_PROGRESS, effects)
            return
        self._changes.retarget(group, now)
        answers: list[tuple[Waiter, ConsumerGroupHeartbeatResponse]] = []
        for waiter in self._late.of_group(group_id):
            member = group.member(waiter.member_id)
            if member is None or member.epoch == LEFT_FOR_NOW:
                self._late.gone(group_id, waiter.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
                continue
            if member.classic is not None:
                if self.classic.is_to_join_again(group, member, now):
                    again = ErrorCode.REBALANCE_IN_PROGRESS
                    self._late.gone(group_id, waiter.member_id, again, effects)
                continue
            after = self._changes.next_of(group, member)
            if holdings(after) == holdings(member):
                continue  # a higher epoch alone can wait for the next heartbeat
            self._changes.put(group, member, after, now)
            waited_ms = now - waiter.since
            news = self._response(group, after, now, changed=True, tells=True, waited_ms=waited_ms)
            answers.append((waiter, news))
        store = partial(self._changes.settled, group, effects)
        self._late.answer_stored(group_id, answers, store, effects)

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

    def _new(self, group_id: str) -> ConsumerGroup:
        window_ms = self._config.group_join_window_max_ms if self._late.enabled else 0
        return ConsumerGroup(group_id, self._topics, self._records, self._timers, window_ms)

    def _get(self, group_id: str) -> ConsumerGroup | HeartbeatRefusal:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        text = (
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a consumer group."
        )
        return HeartbeatRefusal(ErrorCode.GROUP_ID_NOT_FOUND, text)

    def _get_or_new(self, group_id: str) -> ConsumerGroup | HeartbeatRefusal:
        """Return the group, or a new one that `_settle_in` adds once everything is checked.

        A new one may replace a group of the classic protocol, and has its members. Groups of other
        kinds are refused, also empty ones, as in Kafka.
        """
        group = self._groups.get(group_id)
        if group is None and self._groups.is_full:
            return HeartbeatRefusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are too many groups."
            )
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None and group.kind != ClassicGroup.kind:
            return self._get(group_id)
        new = self._new(group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return self._migration.upgrade(group, new) or new
        return new

    def _settle_in(self, group: ConsumerGroup, now: int, effects: Effects) -> None:
        """Add a new group, and drop the one that it replaces.

        Raises StorageError; then nothing has changed.
        """
        before: Group | None = self._groups.get(group.group_id)
        if before is group:
            return
        if before is not None and before.is_empty:
            before.forget()
        elif isinstance(before, ClassicGroup):
            group.save()
            self._migration.upgraded(before, effects)
        self._add(group, now)

    def _add(self, group: ConsumerGroup, now: int) -> None:
        self._groups.add(group)
        for member in group.each():
            self._changes.hear(group, member, now)

    # -- heartbeats ------------------------------------------------------------------------------

    def _beat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        asker: Asker,
        handle: Handle | None,
        now: int,
        effects: Effects,
    ) -> ConsumerGroupHeartbeatResponse | HeartbeatRefusal | None:
        joins = request.member_epoch == 0
        if not joins and may_be_lost(self._groups.get(request.group_id)):
            text = f"Member {request.member_id} is not a member of group {request.group_id}."
            return HeartbeatRefusal(ErrorCode.UNKNOWN_MEMBER_ID, text)
        group = self._get_or_new(request.group_id) if joins else self._get(request.group_id)
        if isinstance(group, HeartbeatRefusal):
            return group
        self._look_at_topics(group, now, effects)
        owned = owned_partitions(group, request)
        member_id = request.member_id or f"{self._rng.randrange(1 << 128):032x}"
        members_max = self._config.group_consumer_max_size
        admitted = admit(group, request, member_id, owned, members_max)
        if isinstance(admitted, HeartbeatRefusal):
            return admitted
        wanted = _updated(admitted.member, request, asker)
        if wanted.regex is not None and wanted.regex != admitted.member.regex:
            try:
                group.subscriptions.learn(wanted.regex)
            except PatternError as error:
                text = (
                    f"SubscribedTopicRegex `{wanted.regex}` is not a valid regular expression:"
                    f" {error}."
                )
                return HeartbeatRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
        self._settle_in(group, now, effects)
        # One that still waits is on a connection that its member has given up: no news for that.
        self._late.superseded(group.group_id, member_id, now, effects)
        member = self._changes.update(group, admitted, wanted, owned, now, effects)
        self._changes.hear(group, member, now)
        self._late.heard(group.group_id, member.member_id, asker.software)
        self._changes.settled(group, effects)
        is_full = (
            request.rebalance_timeout_ms != -1
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
            and owned is not None
        )
        tells = joins or is_full or member.assigned.keys() != admitted.member.assigned.keys()
        before = admitted.member
        changed = joins or resubscribed(before, member) or has_moved(before, member)
        if not changed and (
            handle is not None
            and not (tells or owned is not None)  # without news for its member, or from it
            and self._late.wait(
                group.group_id,
                member,
                asker,
                handle,
                now,
                effects,
                usual_ms=self._usual_ms(group, member, now),
            )
        ):
            return None
        reported = owned is not None
        return self._response(group, member, now, changed=changed, tells=tells, reported=reported)

    def _usual_ms(self, group: ConsumerGroup, member: ConsumerGroupMember, now: int) -> int | None:
        """Return the interval of a member for which nothing is under way; None for the configured.

        Shorter while more changes are expected than their members would hear of.
        """
        longest = self._times.heartbeat_interval_ms(group.group_id)
        if group.awaits_target(member.member_id):
            return self._late.short_ms(group.group_id, member.member_id)
        if group.window.is_restless(now):
            return min(max(RESTLESS_MS, RESTLESS_MS_OF_EACH * len(group)), longest)
        return None

    def _look_at_topics(self, group: ConsumerGroup, now: int, effects: Effects) -> None:
        topics_changed = group.look_at_topics()
        if topics_changed is not None:
            group.bump(Cause(causes.TOPICS, topics_changed), now, effects)
            self._groups.touched(group.group_id)
            self._changes.stirred.add(group.group_id)
            group.save()  # whatever becomes of the heartbeat

    def _response(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        now: int,
        *,
        changed: bool,
        tells: bool,
        reported: bool = False,
        waited_ms: int = 0,
    ) -> ConsumerGroupHeartbeatResponse:
        """Return the answer to a heartbeat. `tells`: with the partitions that it may read."""
        interval_ms = self._late.interval_ms(
            group.group_id,
            member,
            changed=changed,
            reported=reported,
            waited_ms=waited_ms,
            usual_ms=self._usual_ms(group, member, now),
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assignment_of(group, member) if tells else None,
        )

    # -- members that go -------------------------------------------------------------------------

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: int, effects: Effects
    ) -> ConsumerGroupHeartbeatResponse | HeartbeatRefusal:
        group = self._get(request.group_id)
        if isinstance(group, HeartbeatRefusal):
            return group
        member = known_member(group, request.member_id, request.instance_id)
        if isinstance(member, HeartbeatRefusal):
            return member
        if request.member_epoch == LEFT_FOR_NOW:
            away = msgspec.structs.replace(
                member, epoch=LEFT_FOR_NOW, revoking={}, assigned=dict.fromkeys(member.assigned, 0)
            )
            group.put(away)
            self._late.left(group.group_id, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
            self._changes.time_revocation(group, away, now)
            self._groups.touched(group.group_id)
        else:
            self._changes.put_out(group, member.member_id, causes.LEFT, "left", now, effects)
        self._changes.stirred.add(group.group_id)
        self._changes.settled(group, effects)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def check(self) -> None:
        """Assert the invariants of all groups."""
        self._timers.check()
        consumers = [group for group in self._groups if isinstance(group, ConsumerGroup)]
        self._late.check(consumers, self._timers)
        for group in self._groups:
            if isinstance(group, ConsumerGroup):
                group.check()
                for member_id in group.member_ids():
                    assert self._timers.at((group.group_id, SESSION, member_id)) is not None
                for member_id, until in group.damped.items():
                    at = self._timers.at((group.group_id, DAMPED, member_id))
                    assert at is not None
                    assert at >= until  # later if the coordinator stood still


def _updated(
    member: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, asker: Asker
) -> ConsumerGroupMember:
    """Return the member with the changes in a heartbeat; None and -1 mean no change."""
    regex = request.subscribed_topic_regex
    names = request.subscribed_topic_names
    timeout_ms = request.rebalance_timeout_ms
    return msgspec.structs.replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=asker.client_id,
        host=asker.host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=member.topics if names is None else tuple(sorted(set(names))),
        regex=member.regex if regex is None else regex or None,
        assignor=request.server_assignor or member.assignor,
        classic=None,
    )
