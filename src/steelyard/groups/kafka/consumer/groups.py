"""The effects of heartbeats, and of their absence, on groups of the consumer protocol (KIP-848).

A heartbeat first adds or changes its member; a cause for a rebalance increases the group's epoch.
Then the target assignment is computed if it is outdated. Finally the member moves towards its part
of it. Nothing is ever sent to a member unasked: each learns of changes with the answer to a
heartbeat. One without news waits for them (`waiting`); after each event, `wake` answers those for
whose members there are some.

A member is removed when it leaves, when it is silent for the session timeout, or when it does not
release partitions within its rebalance timeout.
Source: GroupMetadataManager.consumerGroupHeartbeat, consumerGroupLeave.
"""

from __future__ import annotations

import msgspec

from steelyard.config import KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka import effects as causes
from steelyard.groups.kafka.consumer.admission import (
    Admitted,
    admit,
    known_member,
    owned_partitions,
)
from steelyard.groups.kafka.consumer.description import assignment_of, described
from steelyard.groups.kafka.consumer.group import REBALANCE, SESSION, ConsumerGroup
from steelyard.groups.kafka.consumer.member import (
    LEAVE,
    LEFT_FOR_NOW,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
    Holdings,
)
from steelyard.groups.kafka.consumer.reconciliation import Partitions, TargetAssignment, reconcile
from steelyard.groups.kafka.consumer.records import Records
from steelyard.groups.kafka.consumer.requests import HeartbeatRefusal, refuse_invalid
from steelyard.groups.kafka.consumer.waiting import LateHeartbeats
from steelyard.groups.kafka.effects import Cause, Effects, Handle, Joined, Left
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups, Group, TopicsView
from steelyard.groups.kafka.patterns import PatternError
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.waiting import Waiter
from steelyard.store.tables import Table
from steelyard.types import LogLine, Random
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
)

TOPICS = "topics"
"""A `Cause.trigger`: subscribed topics were created, deleted or extended."""

TARGET = "target"
"""Purpose of a group's timer: its next target may be computed, for the members that wait."""

ASSIGNOR = "assignor"
"""A `Cause.trigger`: most members prefer another assignor."""


class ConsumerGroups:
    """All groups of the consumer protocol. `table`: where they are stored. Call `load` first."""

    def __init__(
        self,
        config: KafkaConfig,
        topics: TopicsView,
        groups: CoordinatedGroups,
        table: Table,
        rng: Random,
        *,
        delayed_answers: bool = True,
    ) -> None:
        self._config = config
        self._late = LateHeartbeats(config, enabled=delayed_answers)
        self._stirred: set[str] = set()
        """Groups that have changed since the last `wake`."""
        self._topics = topics
        self._groups = groups
        self._records = Records(table)
        self._rng = rng
        self._timers = Timers()

    def load(self, now: int) -> None:
        """Restore the stored groups; each member has a whole session timeout to return."""
        for group_id, stored in self._records.restored().items():
            group = self._new(group_id)
            group.restore(stored)
            self._groups.add(group)
            for member in group.each():
                self._hear(group, member.member_id, now)
                self._time_revocation(group, member, now)

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
            self._stirred.add(group_id)
            if not isinstance(group, ConsumerGroup) or group.member(member_id) is None:
                continue
            if what == SESSION:
                waited = self._config.group_consumer_session_timeout_ms
                text, heard_at = f"sent no heartbeat for {waited} ms", now - waited
            else:
                text, heard_at = "did not give up its partitions within its rebalance timeout", None
            self._put_out(group, member_id, causes.EXPIRED, text, now, effects, heard_at)
            try:
                group.save()
            except StorageError as error:
                effects.append(
                    LogLine("ERROR", f"group {group_id}: {member_id} was removed: {error}")
                )

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
        stirred, self._stirred = self._stirred, set()
        for group_id in sorted(stirred):
            if self._late.of_group(group_id):
                self._wake(group_id, now, effects)

    def _wake(self, group_id: str, now: int, effects: Effects) -> None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            self._late.refused(group_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
            return
        if group.assignment_epoch < group.epoch:
            if self._may_retarget(group, now):
                group.retarget(now)
            else:
                interval_ms = self._config.group_consumer_assignment_interval_ms
                self._timers.set((group_id, TARGET, ""), group.assigned_at + interval_ms)
        answers: list[tuple[Waiter, ConsumerGroupHeartbeatResponse]] = []
        for waiter in self._late.of_group(group_id):
            member = group.member(waiter.member_id)
            if member is None or member.epoch == LEFT_FOR_NOW:
                gone = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
                self._late.answer(waiter, gone, effects)
                continue
            after = self._reconciled(group, member, None, resubscribed=False)
            if _holdings(after) == _holdings(member):
                continue  # a higher epoch alone can wait for the next heartbeat
            self._put(group, member, after, now)
            answers.append((waiter, self._response(group, after, changed=True, tells=True)))
        try:
            self._settled(group, effects)
        except StorageError as error:
            text = f"group {group_id}: not stored: {error}"
            effects.append(LogLine("WARNING", text))
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answers = [(one, ConsumerGroupHeartbeatResponse(error_code=code)) for one, _ in answers]
        for waiter, answer in answers:
            self._late.answer(waiter, answer, effects)

    def released(self, link: int, effects: Effects) -> None:
        """Answer what waits on a link, because something else came on it, or it is closed."""
        self._late.released(link, effects)

    def waiting_groups(self) -> list[str]:
        """Return the groups with members that wait for an answer to a heartbeat."""
        return self._late.groups()

    def refused(self, group_id: str, error: ErrorCode, effects: Effects) -> None:
        """Answer the members of a group that wait: it has another coordinator now."""
        self._late.refused(group_id, error, effects)

    # -- groups ----------------------------------------------------------------------------------

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._topics, self._records, self._timers)

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

        A new one may replace an empty group of the classic protocol.
        """
        group = self._groups.get(group_id)
        if group is None and self._groups.is_full:
            return HeartbeatRefusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "There are too many groups."
            )
        if group is None or (not isinstance(group, ConsumerGroup) and group.is_empty):
            return self._new(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        return HeartbeatRefusal(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because it has members.",
        )

    def _settle_in(self, group: ConsumerGroup) -> None:
        """Add a new group, and drop the one that it replaces.

        Raises StorageError; then nothing has changed.
        """
        before: Group | None = self._groups.get(group.group_id)
        if before is group:
            return
        if before is not None:
            before.forget()
        self._groups.add(group)

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
        self._settle_in(group)
        self._change(group, admitted, wanted, now, effects)
        if group.assignment_epoch < group.epoch and self._may_retarget(group, now):
            group.retarget(now)
        resubscribed = _resubscribed(admitted.member, wanted)
        member = self._reconcile(group, wanted, owned, now, resubscribed=resubscribed)
        self._hear(group, member_id, now)
        self._settled(group, effects)
        is_full = (
            request.rebalance_timeout_ms != -1
            and (
                request.subscribed_topic_names is not None
                or request.subscribed_topic_regex is not None
            )
            and owned is not None
        )
        tells = joins or is_full or member.assigned.keys() != admitted.member.assigned.keys()
        changed = joins or resubscribed or _has_moved(admitted.member, member)
        if changed:
            self._stirred.add(group.group_id)
        elif (
            handle is not None
            and not (tells or owned is not None)  # without news for its member, or from it
            and self._late.wait(group.group_id, member, asker, handle, now, effects)
        ):
            return None
        return self._response(
            group, member, changed=changed, tells=tells, reported=owned is not None
        )

    def _look_at_topics(self, group: ConsumerGroup, now: int, effects: Effects) -> None:
        topics_changed = group.look_at_topics()
        if topics_changed is not None:
            group.bump(Cause(TOPICS, topics_changed), now, effects)
            self._groups.touched(group.group_id)
            self._stirred.add(group.group_id)
            group.save()  # whatever becomes of the heartbeat

    def _response(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        *,
        changed: bool,
        tells: bool,
        reported: bool = False,
    ) -> ConsumerGroupHeartbeatResponse:
        """Return the answer to a heartbeat. `tells`: with the partitions that it may read."""
        interval_ms = self._late.interval_ms(
            group.group_id, member, changed=changed, reported=reported
        )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assignment_of(group, member) if tells else None,
        )

    def _change(
        self,
        group: ConsumerGroup,
        admitted: Admitted,
        wanted: ConsumerGroupMember,
        now: int,
        effects: Effects,
    ) -> None:
        """Put the member in the group as it is now, and begin a rebalance if there is a cause."""
        found: list[Cause] = []
        assignor = group.assignor
        old = admitted.replaces
        if old is not None:
            group.replace(old, admitted.member)
            self._forget(group, old.member_id, ErrorCode.FENCED_INSTANCE_ID, effects)
            self._groups.touched(group.group_id)
            effects.append(Left(group.group_id, old.member_id, "replaced", group.member_ids()))
        group.put(wanted)
        if admitted.is_new:
            found.append(Cause(causes.JOINED, f"{wanted.name} joined"))
        elif _resubscribed(admitted.member, wanted):
            found.append(Cause(causes.SUBSCRIPTION, f"{wanted.name} subscribes to other topics"))
        if found:
            group.look_at_topics(anew=True)
            group.subscriptions.forget_unused(group.each())
        if admitted.is_new or old is not None or _resubscribed(admitted.member, wanted):
            topics = tuple(sorted(group.subscriptions.topics_of(wanted)))
            why = causes.SUBSCRIPTION if not admitted.is_new and old is None else causes.JOINED
            effects.append(Joined(group.group_id, wanted, why, group.member_ids(), topics))
        if group.assignor != assignor:
            text = f"the assignor is {group.assignor} now, which most prefer"
            found.append(Cause(ASSIGNOR, text))
        if found:
            text = "; ".join(cause.text for cause in found)
            group.bump(Cause(found[0].trigger, text), now, effects)

    def _may_retarget(self, group: ConsumerGroup, now: int) -> bool:
        interval_ms = self._config.group_consumer_assignment_interval_ms
        return not group.assigned_at or now >= group.assigned_at + interval_ms

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        owned: Partitions | None,
        now: int,
        *,
        resubscribed: bool,
    ) -> ConsumerGroupMember:
        after = self._reconciled(group, member, owned, resubscribed=resubscribed)
        if after != member:
            self._put(group, member, after, now)
        return after

    def _reconciled(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        owned: Partitions | None,
        *,
        resubscribed: bool,
    ) -> ConsumerGroupMember:
        """Return the member as it is after a heartbeat."""
        if member.is_reconciled(group.assignment_epoch) and not resubscribed:
            return member
        topics = group.subscriptions.topics_of(member)
        target = TargetAssignment(group.assignment_epoch, group.target(member.member_id), topics)
        return reconcile(
            member,
            target,
            owned,
            lambda partition: group.owner_of(partition) is None,
            resubscribed=resubscribed,
        )

    def _put(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        after: ConsumerGroupMember,
        now: int,
    ) -> None:
        group.put(after)
        self._time_revocation(group, after, now)
        if _holdings(after) != _holdings(before):
            self._groups.touched(group.group_id)

    def _hear(self, group: ConsumerGroup, member_id: str, now: int) -> None:
        timeout_ms = self._config.group_consumer_session_timeout_ms
        self._timers.set((group.group_id, SESSION, member_id), now + timeout_ms)

    def _time_revocation(self, group: ConsumerGroup, member: ConsumerGroupMember, now: int) -> None:
        key = (group.group_id, REBALANCE, member.member_id)
        if (
            member.state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS
            and member.epoch != LEFT_FOR_NOW
        ):
            self._timers.set(key, now + member.rebalance_timeout_ms)
        else:
            self._timers.drop(key)

    def _settled(self, group: ConsumerGroup, effects: Effects) -> None:
        group.settle(effects)
        group.save()

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
            self._forget(group, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
            self._time_revocation(group, away, now)
            self._groups.touched(group.group_id)
        else:
            self._put_out(group, member.member_id, causes.LEFT, "left", now, effects)
        self._stirred.add(group.group_id)
        self._settled(group, effects)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def _put_out(
        self,
        group: ConsumerGroup,
        member_id: str,
        trigger: str,
        text: str,
        now: int,
        effects: Effects,
        heard_at: int | None = None,
    ) -> None:
        member = group.remove(member_id)
        self._forget(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        self._groups.touched(group.group_id)
        group.look_at_topics(anew=True)
        effects.append(Left(group.group_id, member_id, trigger, group.member_ids(), heard_at))
        effects.append(
            LogLine("INFO", f"group {group.group_id}: {member.name} was removed: it {text}")
        )
        group.bump(Cause(trigger, f"{member.name} {text}"), now, effects)
        group.settle(effects)

    def _forget(
        self, group: ConsumerGroup, member_id: str, error: ErrorCode, effects: Effects
    ) -> None:
        """Answer a member that is away or replaced, and forget what it was told."""
        self._late.gone(group.group_id, member_id, error, effects)
        self._late.forget(group.group_id, member_id)

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
    )


def _resubscribed(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    return (before.topics, before.regex) != (after.topics, after.regex)


def _has_moved(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    same = (before.state, before.epoch) == (after.state, after.epoch)
    return not same or _holdings(before) != _holdings(after)


def _holdings(member: ConsumerGroupMember) -> tuple[Holdings, Holdings]:
    return member.assigned, member.revoking
