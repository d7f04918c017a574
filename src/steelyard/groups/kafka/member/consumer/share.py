"""A member's partitions: what the coordinator assigned, and what the application has adopted of it.

The coordinator names topics by ids, applications by names. A topic whose name is not known yet is
left out, and taken when the metadata has it. Topics that are no longer subscribed to are left out
as well: the coordinator takes them away when it hears of that. Source:
AbstractMembershipManager.java (findResolvableAssignmentAndTriggerMetadataUpdate, LocalAssignment).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steelyard.groups.kafka.member.consumer.heartbeats import Shares
from steelyard.groups.kafka.member.events import Adopt, Partitions
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_groups import Assignment


class AssignedShare:
    """The assigned partitions of a member, and the adopted ones."""

    def __init__(self) -> None:
        self.adopted: Shares = {}
        """What the application had adopted when the member last could tell."""
        self._assigned: Shares | None = None
        """The last assignment, as an object of its own: one that comes back after another one is
        adopted, and told, again."""
        self._begun: Shares | None = None
        """The assignment that was adopted last, or is being adopted."""
        self._adopting: Shares = {}
        self._names: dict[bytes, str] = {}

    def assign(self, assignment: Assignment) -> None:
        """Take an assignment."""
        parts = sorted(assignment.topic_partitions, key=lambda part: part.topic_id)
        assigned = {part.topic_id: tuple(sorted(set(part.partitions))) for part in parts}
        if self._assigned is None or assigned != self._assigned:
            self._assigned = assigned

    def name(self, names: Mapping[bytes, str]) -> None:
        """Take the names of topics; those of the member's own are not forgotten."""
        own = {*(self._assigned or ()), *self.adopted, *self._adopting}
        kept = {one: name for one, name in self._names.items() if one in own}
        self._names = {**kept, **names}

    def forget(self) -> None:
        """Forget everything that was assigned, because the membership is lost."""
        self.adopted, self._adopting = {}, {}
        self._assigned = self._begun = None

    def is_nameless(self) -> bool:
        """Return whether topics of the assignment have no name yet."""
        return any(topic_id not in self._names for topic_id in self._assigned or ())

    def is_outdated(self, topics: Iterable[str]) -> bool:
        """Return whether the application has to adopt something."""
        if self._assigned is None:
            return False
        return self._begun is not self._assigned or self._named(topics) != self.adopted

    def adopt(self, topics: Iterable[str], owned: Partitions) -> Adopt:
        """Begin to adopt the assignment. `owned`: what the application holds."""
        self._begun = self._assigned
        self._adopting = self._named(topics)
        wanted = {
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in self._adopting.items()
            for number in numbers
        }
        held = set(owned)
        return Adopt(tuple(sorted(held - wanted)), tuple(sorted(wanted - held)))

    def end_adoption(self) -> None:
        """Note that the application has adopted it."""
        self.adopted = self._adopting

    def claimed(self, topics: Iterable[str]) -> Shares:
        """Return what the coordinator is told: what the member has, and what it will take.

        A coordinator gives to others what a member does not name, at once. So a new partition is
        named before the application has it, or its topic has a name: an earlier assignment may be
        acknowledged meanwhile. Java names only what was adopted, and may read a partition that
        somebody else has too, until the next answer.
        """
        claimed = {topic_id: set(numbers) for topic_id, numbers in self.adopted.items()}
        nameless = {
            topic_id: numbers
            for topic_id, numbers in (self._assigned or {}).items()
            if topic_id not in self._names
        }
        for share in (self._adopting, self._named(topics), nameless):
            for topic_id, numbers in share.items():
                claimed.setdefault(topic_id, set()).update(numbers)
        return {topic_id: tuple(sorted(claimed[topic_id])) for topic_id in sorted(claimed)}

    def _named(self, topics: Iterable[str]) -> Shares:
        wanted = set(topics)
        return {
            topic_id: numbers
            for topic_id, numbers in (self._assigned or {}).items()
            if self._names.get(topic_id) in wanted
        }
