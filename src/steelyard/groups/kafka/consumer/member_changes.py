"""Changes of a consumer group's members, whichever protocol they use (KIP-848).

`groups` serves those of the consumer protocol, `classic_members` those of the classic one. Both add
or change a member first; a cause for a rebalance increases the group's epoch. Then the target
assignment is computed if it is outdated, and the member moves towards its part of it.
"""

from __future__ import annotations

from steelyard.config import KafkaConfig
from steelyard.groups.flapping import Flapping
from steelyard.groups.kafka import effects as causes
from steelyard.groups.kafka.consumer.admission import Admitted
from steelyard.groups.kafka.consumer.group import (
    DAMPED,
    REBALANCE,
    SESSION,
    TARGET,
    ConsumerGroup,
)
from steelyard.groups.kafka.consumer.member import (
    LEFT_FOR_NOW,
    ConsumerGroupMember,
    ConsumerGroupMemberState,
    Holdings,
)
from steelyard.groups.kafka.consumer.migration import Migration
from steelyard.groups.kafka.consumer.reconciliation import Partitions, TargetAssignment, reconcile
from steelyard.groups.kafka.consumer.waiting import LateHeartbeats
from steelyard.groups.kafka.effects import Cause, Effects, Joined, Left
from steelyard.groups.kafka.flapping import name_of
from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.times import GroupTimes
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode

ASSIGNOR = "assignor"
"""A `Cause.trigger`: most members prefer another assignor."""


class MemberChanges:
    """The changes of members; see the module docstring."""

    def __init__(
        self,
        config: KafkaConfig,
        groups: CoordinatedGroups,
        timers: Timers,
        migration: Migration,
        late: LateHeartbeats,
        flapping: Flapping,
        times: GroupTimes,
    ) -> None:
        self._config = config
        self._times = times
        self._flapping = flapping
        self._groups = groups
        self._timers = timers
        self._migration = migration
        self._late = late
        self.stirred: set[str] = set()
        """Groups that have changed, in which members that wait may have to be answered."""

    def update(
        self,
        group: ConsumerGroup,
        admitted: Admitted,
        wanted: ConsumerGroupMember,
        owned: Partitions | None,
        now: int,
        effects: Effects,
    ) -> ConsumerGroupMember:
        """Make an admitted member what its request wants, and return it with what it gets.

        `owned`: the partitions that it reports to own, None if it reports none.
        """
        self._change(group, admitted, wanted, now, effects)
        self.retarget(group, now)
        subscribes_anew = resubscribed(admitted.member, wanted)
        member = self.next_of(group, wanted, owned, subscribes_anew=subscribes_anew)
        if member != wanted:
            self.put(group, wanted, member, now)
        if admitted.is_new or subscribes_anew or has_moved(admitted.member, member):
            self.stirred.add(group.group_id)
        return member

    def retarget(self, group: ConsumerGroup, now: int) -> bool:
        """Compute the target assignment if it is outdated.

        False: its interval or the window of changes is not over yet. A timer is set then.
        """
        if group.assignment_epoch == group.epoch:
            return True
        interval_ms = self._times.assignment_interval_ms(group.group_id)
        at = now if group.window.due_at is None else group.window.due_at
        if group.assigned_at:
            at = max(at, group.assigned_at + interval_ms)
        if now < at:
            self._timers.set((group.group_id, TARGET, ""), at)
            return False
        group.retarget(now)
        return True

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
            if old.member_id in group.damped:
                found.append(Cause(causes.JOINED, f"{wanted.name} replaces {old.member_id}"))
            group.replace(old, admitted.member)
            self._late.left(group.group_id, old.member_id, ErrorCode.FENCED_INSTANCE_ID, effects)
            self._groups.touched(group.group_id)
            effects.append(Left(group.group_id, old.member_id, "replaced", group.member_ids()))
        group.put(wanted)
        if admitted.is_new:
            if not self._damp(group, wanted, now, effects):
                found.append(Cause(causes.JOINED, f"{wanted.name} joined"))
        elif resubscribed(admitted.member, wanted):
            found.append(Cause(causes.SUBSCRIPTION, f"{wanted.name} subscribes to other topics"))
        if found:
            group.look_at_topics(anew=True)
            group.subscriptions.forget_unused(group.each())
        if admitted.is_new or old is not None or resubscribed(admitted.member, wanted):
            topics = tuple(sorted(group.subscriptions.topics_of(wanted)))
            why = causes.SUBSCRIPTION if not admitted.is_new and old is None else causes.JOINED
            effects.append(Joined(group.group_id, wanted, why, group.member_ids(), topics))
        if group.assignor != assignor:
            text = f"the assignor is {group.assignor} now, which most prefer"
            found.append(Cause(ASSIGNOR, text))
        if resubscribed(admitted.member, wanted) and not admitted.is_new:
            self._admit_damped(group, wanted.member_id)
        if found:
            self._admit_needed(group)
            text = "; ".join(cause.text for cause in found)
            group.bump(Cause(found[0].trigger, text), now, effects)

    # -- members that flap -----------------------------------------------------------------------

    def _damp(
        self, group: ConsumerGroup, member: ConsumerGroupMember, now: int, effects: Effects
    ) -> bool:
        """Leave a new member out of the target for a time if it flaps; return whether it is."""
        most_ms = self._config.group_flapping_delay_max_ms
        name = name_of(member.instance_id, member.client_id, member.host)
        delay_ms = self._flapping.delay_ms(group.group_id, name, most_ms, now)
        if not delay_ms or not group.can_spare(member):
            return False
        group.damped[member.member_id] = now + delay_ms
        self._timers.set((group.group_id, DAMPED, member.member_id), now + delay_ms)
        text = f"{member.name} gets no share for {delay_ms} ms: it joins and goes again and again"
        effects.append(LogLine("INFO", f"group {group.group_id}: {text}"))
        return True

    def admit(
        self, group: ConsumerGroup, member: ConsumerGroupMember, now: int, effects: Effects
    ) -> None:
        """Let a member that was left out have its share: a rebalance begins."""
        self._admit_damped(group, member.member_id)
        text = f"{member.name} joined, and had to wait because it joins and goes again and again"
        group.bump(Cause(causes.JOINED, text), now, effects)

    def _admit_damped(self, group: ConsumerGroup, member_id: str) -> None:
        group.damped.pop(member_id, None)
        self._timers.drop((group.group_id, DAMPED, member_id))

    def _admit_needed(self, group: ConsumerGroup) -> None:
        """Admit members whose topics nobody else reads any more, with a rebalance that begins."""
        for member in group.each() if group.damped else ():
            if member.member_id in group.damped and not group.can_spare(member):
                self._admit_damped(group, member.member_id)

    # -- steps -----------------------------------------------------------------------------------

    def next_of(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        owned: Partitions | None = None,
        *,
        subscribes_anew: bool = False,
    ) -> ConsumerGroupMember:
        """Return a member as it is after its next step towards the target."""
        if member.is_reconciled(group.assignment_epoch) and not subscribes_anew:
            return member
        topics = group.subscriptions.topics_of(member)
        target = TargetAssignment(group.assignment_epoch, group.target(member.member_id), topics)
        return reconcile(
            member,
            target,
            owned,
            lambda partition: group.owner_of(partition) is None,
            resubscribed=subscribes_anew,
        )

    def put(
        self,
        group: ConsumerGroup,
        before: ConsumerGroupMember,
        after: ConsumerGroupMember,
        now: int,
    ) -> None:
        """Let a member take a step."""
        group.put(after)
        self.time_revocation(group, after, now)
        if holdings(after) != holdings(before):
            self._groups.touched(group.group_id)

    def session_timeout_ms(self, group: ConsumerGroup, member: ConsumerGroupMember) -> int:
        """Return how long a member may be silent: one of the classic protocol says so itself."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._times.session_timeout_ms(group.group_id)

    def hear(self, group: ConsumerGroup, member: ConsumerGroupMember, now: int) -> None:
        """Start a member's session again."""
        at = now + self.session_timeout_ms(group, member)
        self._timers.set((group.group_id, SESSION, member.member_id), at)

    def time_revocation(self, group: ConsumerGroup, member: ConsumerGroupMember, now: int) -> None:
        """Limit the time in which a member releases partitions, if it has to."""
        key = (group.group_id, REBALANCE, member.member_id)
        if (
            member.state is ConsumerGroupMemberState.UNREVOKED_PARTITIONS
            and member.epoch != LEFT_FOR_NOW
        ):
            self._timers.set(key, now + member.rebalance_timeout_ms)
        else:
            self._timers.drop(key)

    def settled(self, group: ConsumerGroup, effects: Effects) -> None:
        """Report the end of a rebalance, and store the group, unless it was downgraded.

        Raises StorageError.
        """
        if self._groups.get(group.group_id) is group:
            group.settle(effects)
            group.save()

    def replaced_last(
        self, group: ConsumerGroup, old: ConsumerGroupMember, now: int, effects: Effects
    ) -> bool:
        """Downgrade a group whose last member of the consumer protocol, a static one, is replaced.

        False: it was not the last one, and nothing has changed.
        """
        happened: Effects = []
        cause = Cause(causes.STATIC, f"{old.name} was replaced by a member of the classic protocol")
        if not self._migration.downgrade(group, old.member_id, cause, now, happened):
            return False
        self.stirred.add(group.group_id)
        self._late.left(group.group_id, old.member_id, ErrorCode.FENCED_INSTANCE_ID, effects)
        others = tuple(one for one in group.member_ids() if one != old.member_id)
        effects.append(Left(group.group_id, old.member_id, "replaced", others))
        effects += happened
        return True

    def put_out(
        self,
        group: ConsumerGroup,
        member_id: str,
        trigger: str,
        text: str,
        now: int,
        effects: Effects,
        heard_at: int | None = None,
    ) -> None:
        """Remove a member; a rebalance begins, or the group is downgraded."""
        member = group.member(member_id)
        assert member is not None
        others = tuple(one for one in group.member_ids() if one != member_id)
        effects.append(Left(group.group_id, member_id, trigger, others, heard_at))
        effects.append(
            LogLine("INFO", f"group {group.group_id}: {member.name} was removed: it {text}")
        )
        self._late.left(group.group_id, member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        self.stirred.add(group.group_id)
        cause = Cause(trigger, f"{member.name} {text}")
        if self._migration.downgrade(group, member_id, cause, now, effects):
            return
        is_missed = member_id not in group.damped
        assignor = group.assignor
        group.remove(member_id)
        self._groups.touched(group.group_id)
        group.look_at_topics(anew=True)
        self._admit_needed(group)
        if is_missed or group.is_empty or group.assignor != assignor:
            group.bump(cause, now, effects)
        group.settle(effects)


def resubscribed(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    """Return whether a member subscribes to other topics."""
    return (before.topics, before.regex) != (after.topics, after.regex)


def has_moved(before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    """Return whether a member has taken a step: its state, its epoch or its partitions differ."""
    same = (before.state, before.epoch) == (after.state, after.epoch)
    return not same or holdings(before) != holdings(after)


def holdings(member: ConsumerGroupMember) -> tuple[Holdings, Holdings]:
    """Return what a member may read, and what it has to release."""
    return member.assigned, member.revoking
