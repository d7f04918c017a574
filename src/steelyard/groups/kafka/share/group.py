"""A share group (KIP-932): its members, epochs and target assignment.

The group's epoch increases when a member comes, goes or subscribes to other topics, and when these
topics change. The target assignment has the group's epoch for which it was computed, a member that
of the target that it has. Partitions are shared, so a member takes its part of a target at once.

Empty    no members; the epochs stay, so that those of the next members continue from here
Stable   there are members

`ShareGroup` holds the state and keeps it consistent; `groups` decides what a heartbeat does.
Source: modern/share/ShareGroup.java, modern/ModernGroup.java.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from steelyard.allocate.assignors import simple
from steelyard.allocate.assignors.plan import Subscriber
from steelyard.groups.kafka.consumer.reconciliation import Partitions
from steelyard.groups.kafka.consumer.records import partitions_of
from steelyard.groups.kafka.groups import SHARE, Reader, TopicsView
from steelyard.groups.kafka.share.member import ShareGroupMember
from steelyard.groups.kafka.share.records import (
    ShareGroupRecords,
    ShareGroupRow,
    StoredShareGroup,
)
from steelyard.groups.kafka.timers import SESSION, Timers
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode

ASSIGNOR = "simple"
"""The only assignor (group.share.assignors)."""

EMPTY, STABLE = "Empty", "Stable"
"""States of a group; they follow from its members. Source: ShareGroup.ShareGroupState."""


class ShareGroup:
    """A share group; a `groups.kafka.groups.Group`."""

    kind = SHARE
    protocol_type = SHARE

    def __init__(
        self, group_id: str, topics: TopicsView, records: ShareGroupRecords, timers: Timers
    ) -> None:
        self.group_id = group_id
        self._topics = topics
        self._records = records
        self._timers = timers
        self.epoch = 0
        self.assignment_epoch = 0
        self.assigned_at = 0
        """When the target was computed, in ms since the epoch."""
        self.partitions: dict[str, int] = {}
        """The subscribed topics with their numbers of partitions, as last looked up."""
        self.topic_ids: dict[str, bytes] = {}
        """Their ids, for assignments; those of deleted topics may still be there."""
        self._members: dict[str, ShareGroupMember] = {}
        self._targets: dict[str, Partitions] = {}
        self._topics_version: int | None = None
        self._unsaved: set[str] = set()
        self._is_unsaved = False

    # -- what it is ------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        return STABLE if self._members else EMPTY

    @property
    def is_empty(self) -> bool:
        return not self._members

    def __len__(self) -> int:
        return len(self._members)

    def member(self, member_id: str) -> ShareGroupMember | None:
        return self._members.get(member_id)

    def each(self) -> Iterator[ShareGroupMember]:
        """Yield the members, by id."""
        for member_id in sorted(self._members):
            yield self._members[member_id]

    def member_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    def target(self, member_id: str) -> Partitions:
        """Return the member's part of the target assignment."""
        return self._targets.get(member_id, frozenset())

    def subscribes_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self._members.values())

    # -- what others ask of groups of consumers --------------------------------------------------

    def expires_from(self, committed_at: int) -> int | None:
        """Return None: these groups have no committed offsets, and stay until they are deleted."""
        return None

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
        """Refuse commits. Source: ShareGroup.validateOffsetCommit."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_commit_partition(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Refuse to tell offsets. Source: ShareGroup.validateOffsetFetch."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def owner_of(self, partition: TopicPartition) -> str | None:
        """Return None: a partition has no owner here."""
        return None

    def member_at(self, client_id: str, host: str, partition: TopicPartition) -> str | None:
        return None

    def readers(self) -> list[Reader]:
        """Return nobody: their fetches are not those of consumers, and not in the ledger."""
        return []

    # -- changes ---------------------------------------------------------------------------------

    def put(self, member: ShareGroupMember) -> None:
        """Add or change a member."""
        if self._members.get(member.member_id) != member:
            self._members[member.member_id] = member
            self._unsaved.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member with its target and its timer, and increase the epoch."""
        del self._members[member_id]
        self._targets.pop(member_id, None)
        self._timers.drop((self.group_id, SESSION, member_id))
        self._unsaved.add(member_id)
        self.bump()

    def bump(self) -> None:
        """Increase the group's epoch, so that a new target is computed."""
        self.epoch += 1
        self._is_unsaved = True
        if not self._members:
            self.assignment_epoch = self.epoch
            self.assigned_at = 0

    def look_at_topics(self, *, anew: bool) -> bool:
        """Look up the subscribed topics if any topic has changed, or `anew`.

        Returns whether one of them has: it was created, deleted, extended, or made anew.
        """
        if self._topics.version == self._topics_version and not anew:
            return False
        self._topics_version = self._topics.version
        names = sorted({topic for member in self._members.values() for topic in member.topics})
        partitions = {topic: count for topic in names if (count := self._topics.partitions(topic))}
        ids = {topic: self._topics.id_of(topic) for topic in partitions}
        before = self.partitions, {name: self.topic_ids.get(name) for name in self.partitions}
        if before == (partitions, ids):
            return False
        self.partitions = partitions
        self.topic_ids |= ids
        self._is_unsaved = True
        return True

    def retarget(self, now: int) -> None:
        """Compute the target assignment of the group's epoch."""
        subscribers = [
            Subscriber(
                member.member_id,
                member.topics,
                tuple(self.target(member.member_id)),
                rack=member.rack_id,
            )
            for member in self._members.values()
        ]
        assignment = simple.assign(subscribers, self.partitions)
        self._targets = {one: frozenset(share) for one, share in assignment.items()}
        held = {place.topic for member in self._members.values() for place in member.assigned}
        self.topic_ids = {
            topic: topic_id
            for topic, topic_id in self.topic_ids.items()
            if topic in self.partitions or topic in held
        }
        self.assignment_epoch = self.epoch
        self.assigned_at = now
        self._is_unsaved = True

    def reconcile(self, member: ShareGroupMember) -> ShareGroupMember:
        """Give a member its part of the target; return it as it is then."""
        if member.epoch != self.assignment_epoch:
            member = replace(
                member,
                epoch=self.assignment_epoch,
                previous_epoch=member.epoch,
                assigned=self.target(member.member_id),
            )
        self.put(member)
        return member

    # -- storage ---------------------------------------------------------------------------------

    def save(self) -> None:
        """Store what has changed. Raises StorageError; then the next call tries again."""
        if not self._unsaved and not self._is_unsaved:
            return
        changed = {one: self._members.get(one) for one in sorted(self._unsaved)}
        self._records.write(self.group_id, self._row() if self._is_unsaved else None, changed)
        self._unsaved.clear()
        self._is_unsaved = False

    def _row(self) -> ShareGroupRow:
        return ShareGroupRow(
            self.epoch,
            self.assignment_epoch,
            self.assigned_at,
            {member: numbers_by_topic(sorted(parts)) for member, parts in self._targets.items()},
            self.partitions,
            {topic: topic_id.hex() for topic, topic_id in sorted(self.topic_ids.items())},
        )

    def restore(self, stored: StoredShareGroup) -> None:
        """Restore the stored state, in a new group."""
        row = stored.row
        self.assigned_at, self.partitions = row.assigned_at, row.partitions
        self.topic_ids = {topic: bytes.fromhex(text) for topic, text in row.topic_ids.items()}
        self._members = stored.members
        self._targets = {
            one: partitions_of(row.targets[one]) for one in stored.members if one in row.targets
        }
        # A group's row that is older than its members' was lost, because a table was repaired.
        for topic in {place.topic for one in stored.members.values() for place in one.assigned}:
            self.topic_ids.setdefault(topic, self._topics.id_of(topic))
        newest = max((member.epoch for member in stored.members.values()), default=0)
        self.assignment_epoch = max(row.assignment_epoch, newest)
        self.epoch = max(row.epoch, self.assignment_epoch)
        if stored.members.keys() != row.targets.keys():  # a kill came between two rows
            self.epoch = max(self.epoch, self.assignment_epoch + 1)

    def forget(self) -> None:
        self._records.erase(self.group_id, self._members)
        for member_id in self._members:
            self._timers.drop((self.group_id, SESSION, member_id))

    def check(self) -> None:
        assert self._targets.keys() <= self._members.keys()
        assert self.assignment_epoch <= self.epoch
        for member_id, member in self._members.items():
            assert member_id == member.member_id
            assert member.epoch <= self.assignment_epoch
            assert self._timers.at((self.group_id, SESSION, member_id)) is not None
