"""A group of the consumer protocol (KIP-848): its members, epochs and target assignment.

There are three epochs. The group's increases with every cause for a rebalance. That of the target
assignment is the group's epoch for which it was computed. A member's is that of its target
assignment, or of the previous one until it has released the partitions that it must.

Empty        no members; the epochs stay, so that those of the next members continue from here
Assigning    the group is ahead of its target: the next heartbeat computes a new one, once the
             window of changes is over (`groups.kafka.window`)
Reconciling  a member does not have its part of the target yet (see `reconciliation`)
Stable       all members have it

`ConsumerGroup` holds the state and keeps it consistent; `groups` decides what a heartbeat does.
Source: modern/consumer/ConsumerGroup.java, modern/ModernGroup.java.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import StrEnum

import msgspec

from steelyard.groups.kafka.consumer.member import ConsumerGroupMember, Holdings
from steelyard.groups.kafka.consumer.reconciliation import Partitions
from steelyard.groups.kafka.consumer.records import (
    GroupRow,
    Records,
    Stored,
    former_name,
    partitions_of,
)
from steelyard.groups.kafka.consumer.subscriptions import Subscriptions, topic_changes
from steelyard.groups.kafka.consumer.target import most_wanted, target_assignment
from steelyard.groups.kafka.effects import (
    BUMPS_MAX,
    JOINED,
    Began,
    Begun,
    Cause,
    Effects,
    Ended,
)
from steelyard.groups.kafka.flapping import name_of
from steelyard.groups.kafka.groups import Reader, TopicsView
from steelyard.groups.kafka.member_epochs import commit_fault, fetch_fault
from steelyard.groups.kafka.timers import Timers
from steelyard.groups.kafka.window import JoinWindow
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_protocol import PROTOCOL_TYPE
from steelyard.wire.kafka.schema import NO_ID


class ConsumerGroupState(StrEnum):
    """The state of a group; it follows from epochs and members, and is never set."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"
"""Purposes of timers. JOIN and SYNC: a member of the classic protocol has to send this request."""

TARGET = "target"
"""Purpose of a group's timer: its next target may be computed."""

DAMPED = "damped"
"""Purpose of a member's timer: it flaps, and may have a share from then on."""

TIMERS = (SESSION, REBALANCE, JOIN, SYNC, DAMPED)


class ConsumerGroup:
    """A group of the consumer protocol; a `groups.kafka.groups.Group`."""

    kind = "consumer"
    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        group_id: str,
        topics: TopicsView,
        records: Records,
        timers: Timers,
        window_max_ms: int = 0,
    ) -> None:
        self.group_id = group_id
        self.window = JoinWindow(window_max_ms)
        """Holds the next target back while members join."""
        self._topics = topics
        self._records = records
        self._timers = timers
        self.subscriptions = Subscriptions(topics)
        self.epoch = 0
        self.assignment_epoch = 0
        self.assigned_at = 0
        """When the target was computed, in ms since the epoch; 0 if the next one need not wait."""
        self.partitions: dict[str, int] = {}
        """The subscribed topics with their numbers of partitions, as last looked up."""
        self.bumps: deque[Begun] = deque(maxlen=BUMPS_MAX)
        self.began_at: int | None = None
        """When the rebalance in progress began; None if there is none."""
        self.damped: dict[str, int] = {}
        """Members that flap, and until when they are left out of the target (`groups.flapping`)."""
        self._members: dict[str, ConsumerGroupMember] = {}
        self._targets: dict[str, Partitions] = {}
        self._instances: dict[str, str] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._votes: Counter[str] = Counter()
        """The number of members that prefer each assignor."""
        self._topic_ids: dict[str, bytes] = {}
        self._topics_version: int | None = None
        self._unsaved: set[str] = set()
        self._is_unsaved = False

    # -- what it is ------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self._members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        done = all(one.is_reconciled(self.assignment_epoch) for one in self._members.values())
        return ConsumerGroupState.STABLE if done else ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def has_classic_members(self) -> bool:
        return any(one.classic is not None for one in self._members.values())

    @property
    def assignor(self) -> str:
        return most_wanted(self._votes)

    def __len__(self) -> int:
        return len(self._members)

    def member_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def member(self, member_id: str) -> ConsumerGroupMember | None:
        return self._members.get(member_id)

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def each(self) -> list[ConsumerGroupMember]:
        """Return all members, in the order of their ids."""
        return [self._members[member_id] for member_id in sorted(self._members)]

    def target(self, member_id: str) -> Partitions:
        return self._targets.get(member_id, frozenset())

    def awaits_target(self, member_id: str) -> bool:
        """Return whether a member came after the target was computed, and the next one is due."""
        return self.epoch > self.assignment_epoch and not (
            member_id in self._targets or member_id in self.damped
        )

    def can_spare(self, member: ConsumerGroupMember) -> bool:
        """Return whether others read a member's topics, so that it may be left out."""
        others = [
            one
            for member_id, one in self._members.items()
            if member_id != member.member_id and member_id not in self.damped
        ]
        return bool(others) and all(
            self.subscriptions.include(others, topic)
            for topic in self.subscriptions.topics_of(member)
        )

    @property
    def damped_names(self) -> dict[str, int]:
        """Return until when members are left out, by the names of those that flap."""
        return {
            name_of(one.instance_id, one.client_id, one.host): self.damped[one.member_id]
            for one in self.each()
            if one.member_id in self.damped
        }

    def owner_of(self, partition: TopicPartition) -> str | None:
        """Return the member that may read a partition, or has not released it yet."""
        return self._owners.get(partition)

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        owner = self._members.get(self._owners.get(partition, ""))
        if owner is None or (owner.client_id, owner.host) != (client_id, host):
            return None
        return owner.member_id

    def readers(self) -> list[Reader]:
        return [one.reader for one in self.each() if one.assigned or one.revoking]

    def subscribes_to(self, topic: str) -> bool:
        return self.subscriptions.include(self._members.values(), topic)

    def expires_from(self, committed_at: int) -> int | None:
        """Implement `Group.expires_from`. Source: ConsumerGroup.offsetExpirationCondition."""
        return committed_at

    def revoke_deadline(self, member: ConsumerGroupMember) -> int | None:
        """Return when a member must have released partitions, in ms; None if it need not."""
        return self._timers.at((self.group_id, REBALANCE, member.member_id))

    # -- ids of topics ---------------------------------------------------------------------------

    def is_there(self, topic: str) -> bool:
        """Return whether a topic of an assignment still exists."""
        return self._topics.partitions(topic) > 0

    def id_of(self, topic: str) -> bytes:
        """Return the id of a topic in an assignment, even if it no longer exists."""
        return self._topic_ids.get(topic) or self._topics.id_of(topic)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic in an assignment, or None."""
        return next((name for name, one in self._topic_ids.items() if one == topic_id), None)

    # -- commits ---------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        transactional: bool,
        now: int,
    ) -> ErrorCode:
        """Implement `Group.check_commit`; `check_commit_partition` judges an older epoch.

        A member of the classic protocol has its own generation only.
        """
        member = self._members.get(member_id)
        if member is not None and member.classic is not None:
            same = generation == member.epoch
            return ErrorCode.NONE if same else ErrorCode.ILLEGAL_GENERATION
        return commit_fault(
            self._members,
            member_id,
            instance_id,
            generation,
            version=version,
            transactional=transactional,
        )

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if the member has had the partition since this epoch or longer (KIP-1251)."""
        member = self._members.get(member_id)
        if member is None or generation == member.epoch:
            return ErrorCode.NONE
        since = member.epoch_of(partition)
        if since is None or generation < since:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Implement `Group.check_fetch`."""
        fault = fetch_fault(self._members, member_id, member_epoch)
        member = self._members.get(member_id or "")
        is_classic = member is not None and member.classic is not None
        if fault is ErrorCode.STALE_MEMBER_EPOCH and is_classic:
            return ErrorCode.ILLEGAL_GENERATION
        return fault

    # -- changes ---------------------------------------------------------------------------------

    def put(self, member: ConsumerGroupMember) -> None:
        """Add or change a member."""
        before = self._members.get(member.member_id)
        if before == member:
            return
        if before is not None:
            self._release(before)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        if member.assignor is not None:
            self._votes[member.assignor] += 1
        for partition in (*member.assigned, *member.revoking):
            assert partition not in self._owners, f"{partition} has two readers"
            self._owners[partition] = member.member_id
        self._unsaved.add(member.member_id)

    def remove(self, member_id: str) -> ConsumerGroupMember:
        """Remove a member with its target and its timers; its partitions become free."""
        member = self._members.pop(member_id)
        self._release(member)
        self._targets.pop(member_id, None)
        self.damped.pop(member_id, None)
        self._unsaved.add(member_id)
        self._is_unsaved = True
        for what in TIMERS:
            self._timers.drop((self.group_id, what, member_id))
        self.subscriptions.forget_unused(self._members.values())
        return member

    def _release(self, member: ConsumerGroupMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            del self._owners[partition]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if member.assignor is not None:
            self._votes[member.assignor] -= 1

    def replace(self, old: ConsumerGroupMember, new: ConsumerGroupMember) -> None:
        """Put a static member that returned in the place of its former id.

        It takes over partitions and target.
        """
        target = self.target(old.member_id)
        self.remove(old.member_id)
        self.put(new)
        self._targets[new.member_id] = target

    def look_at_topics(self, *, anew: bool = False) -> str | None:
        """Look up the topics if any has changed, or `anew`.

        Returns what has happened to them, or None for nothing.
        """
        if self._topics.version == self._topics_version and not anew:
            return None
        self._topics_version = self._topics.version
        before = self.partitions
        self.partitions = self.subscriptions.partitions(self._members.values())
        again = [topic for topic in sorted(self._topic_ids) if self._is_other(topic)]
        for topic in again:
            self._retire(topic)
        self._is_unsaved = self._is_unsaved or before != self.partitions
        return topic_changes(before, self.partitions, again)

    def _is_other(self, topic: str) -> bool:
        """Return whether a topic in assignments was deleted, and another one has its name now."""
        return self._topics.id_of(topic) not in (self._topic_ids[topic], NO_ID)

    def _retire(self, topic: str) -> None:
        """Rename a deleted topic in the assignments, to distinguish it from its successor."""
        topic_id = self._topic_ids[topic]
        former = former_name(topic, topic_id.hex())
        self._topic_ids |= {former: topic_id, topic: self._topics.id_of(topic)}
        self._is_unsaved = True

        def renamed(holdings: Holdings) -> Holdings:
            return {
                TopicPartition(former if name == topic else name, partition): epoch
                for (name, partition), epoch in holdings.items()
            }

        for member in self.each():
            assigned, revoking = renamed(member.assigned), renamed(member.revoking)
            self.put(msgspec.structs.replace(member, assigned=assigned, revoking=revoking))

    def bump(self, cause: Cause, now: int, effects: Effects) -> None:
        """Increase the group's epoch for this reason, so that a rebalance follows."""
        effects.append(Began(self.group_id, self.epoch, cause, self.member_ids()))
        self.epoch += 1
        self.bumps.append(Begun(self.epoch, now, cause))
        self.began_at = now if self.began_at is None else self.began_at
        self._is_unsaved = True
        if cause.trigger == JOINED and not self.has_classic_members:
            self.window.joined(now)
        else:
            # Members of the classic protocol join again and again until there is a target.
            self.window.urgent(now, at_once=self.has_classic_members)
        if not self._members:
            self.assignment_epoch = self.epoch
            self.assigned_at = 0
            self.window.ended(now)

    def retarget(self, now: int) -> None:
        """Compute the target assignment of the group's epoch."""
        self._targets = target_assignment(
            {one: member for one, member in self._members.items() if one not in self.damped},
            self._targets,
            self.partitions,
            self.subscriptions.topics_of,
            self.assignor,
        )
        for topic in self.partitions:
            self._topic_ids[topic] = self._topics.id_of(topic)
        self.assignment_epoch = self.epoch
        self.assigned_at = now
        self.window.ended(now)
        self._is_unsaved = True

    def settle(self, effects: Effects) -> None:
        """Report the end of the rebalance in progress, if it has ended."""
        if self.began_at is None or self.state not in (
            ConsumerGroupState.STABLE,
            ConsumerGroupState.EMPTY,
        ):
            return
        ended = Ended(self.group_id, self.epoch, self.assignor, self.began_at, self.member_ids())
        effects.append(ended)
        self.began_at = None
        held = {partition.topic for partition in self._owners}
        for topic in [topic for topic in self._topic_ids if topic not in held]:
            del self._topic_ids[topic]

    # -- storage ---------------------------------------------------------------------------------

    def save(self) -> bool:
        """Store what has changed; return False if nothing has.

        Raises StorageError; then the next call tries again.
        """
        if not self._unsaved and not self._is_unsaved:
            return False
        changed = {one: self._members.get(one) for one in sorted(self._unsaved)}
        self._records.write(
            self.group_id, self._row() if self._is_unsaved else None, changed, self._topic_ids
        )
        self._unsaved.clear()
        self._is_unsaved = False
        return True

    def _row(self) -> GroupRow:
        return GroupRow(
            self.epoch,
            self.assignment_epoch,
            self.assigned_at,
            {member: numbers_by_topic(sorted(parts)) for member, parts in self._targets.items()},
            self.partitions,
            {topic: topic_id.hex() for topic, topic_id in sorted(self._topic_ids.items())},
        )

    def restore(self, stored: Stored) -> None:
        """Restore the stored state, in a new group."""
        row = stored.row
        self.epoch, self.assignment_epoch = row.epoch, row.assignment_epoch
        self.assigned_at = row.assigned_at
        self.partitions = row.partitions
        self._topic_ids = {topic: bytes.fromhex(text) for topic, text in row.topic_ids.items()}
        for member in stored.members.values():
            # If the disk was full while a partition moved, two rows claim it. The second member
            # must rejoin.
            if not any(
                partition in self._owners for partition in (*member.assigned, *member.revoking)
            ):
                self.put(member)
        self._targets = {
            one: partitions_of(row.targets[one]) for one in self._members if one in row.targets
        }
        self._unsaved = stored.members.keys() - self._members.keys()
        newest = max((member.epoch for member in self._members.values()), default=0)
        if newest > self.assignment_epoch:
            # The group's row is older than its members', or lost, because a damaged table was
            # repaired. The members keep what they have until there is a new target.
            self.assignment_epoch = newest
            self.epoch = max(self.epoch, newest + 1)
        elif self.epoch == self.assignment_epoch and self._members.keys() != row.targets.keys():
            # Members that flapped were left out; those without a row may never come again.
            self.epoch += 1

    def migrate(self, stored: Stored) -> None:
        """Take the members of a classic group, in a new group; `save` then stores everything."""
        self.restore(stored)
        self.look_at_topics(anew=True)
        if self._lacks_readers():
            self.epoch += 1  # a topic has grown since the leader assigned
        self._unsaved = {*stored.members}
        self._is_unsaved = True

    def _lacks_readers(self) -> bool:
        """Return whether the target gives a partition of a subscribed topic to nobody."""
        given = set().union(*self._targets.values())
        return any(
            TopicPartition(topic, number) not in given
            for topic, count in self.partitions.items()
            for number in range(count)
        )

    def forget(self) -> None:
        self._records.erase(self.group_id, self._members)
        for member_id in self._members:
            for what in TIMERS:
                self._timers.drop((self.group_id, what, member_id))

    def check(self) -> None:
        held = [
            (partition, member_id)
            for member_id, member in self._members.items()
            for partition in (*member.assigned, *member.revoking)
        ]
        assert dict(held) == self._owners, "the owners do not agree with the members"
        assert len(held) == len(self._owners), "a partition has two readers"
        given = [partition for share in self._targets.values() for partition in share]
        assert len(given) == len(set(given)), "the target gives a partition to two"
        assert self._targets.keys() <= self._members.keys()
        assert self.assignment_epoch <= self.epoch
        assert self.damped.keys() <= self._members.keys() - self._targets.keys()
        for member_id, member in self._members.items():
            assert member_id == member.member_id
            assert member.epoch <= self.assignment_epoch
            assert bool(member.revoking) <= (member.state.name == "UNREVOKED_PARTITIONS")
        for instance_id, member_id in self._instances.items():
            assert self._members[member_id].instance_id == instance_id
        assert len(self._instances) == sum(
            one.instance_id is not None for one in self._members.values()
        )
