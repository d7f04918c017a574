"""The leader of a group: it computes all assignments, and watches the members' topics.

Source: ConsumerCoordinator.java (onLeaderElected, rejoinNeededOrPending).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steelyard.allocate.assignors.plan import Assignor, Subscriber
from steelyard.groups.kafka.member.classic.requests import by_topic
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    read_subscription,
    write_assignment,
)
from steelyard.wire.kafka.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequestAssignment,
)


class Lead:
    """The leadership of one generation."""

    def __init__(self, response: JoinGroupResponse) -> None:
        """Take the members in a JoinGroup response. Raises ProtocolError for bad metadata."""
        self._members = _subscribers(response.members)
        self._keeps_shares = response.skip_assignment
        self.topics = tuple(sorted({topic for one in self._members for topic in one.topics}))
        """All topics of the group, sorted."""
        self._watched: dict[str, int] = {}

    @property
    def watched(self) -> tuple[str, ...]:
        """Return the topics from which the assignments were computed."""
        return tuple(self._watched)

    def shares(
        self, assignor: Assignor, partitions: Mapping[str, int]
    ) -> tuple[SyncGroupRequestAssignment, ...]:
        """Compute every member's assignment, once. `partitions`: of the known topics."""
        self._watched = {topic: partitions.get(topic, 0) for topic in self.topics}
        members, self._members = self._members, []
        # a static leader returned: the group keeps its assignments (KIP-814)
        if self._keeps_shares:
            return ()
        known = {topic: partitions[topic] for topic in self.topics if topic in partitions}
        assignment = assignor.assign(members, known)
        return tuple(
            SyncGroupRequestAssignment(
                member, write_assignment(ConsumerProtocolAssignment(by_topic(share)))
            )
            for member, share in sorted(assignment.items())
        )

    def is_outdated(self, partitions: Mapping[str, int]) -> bool:
        """Return whether a topic's number of partitions differs from the one used."""
        return any(partitions.get(topic, count) != count for topic, count in self._watched.items())


def _subscribers(members: Iterable[JoinGroupResponseMember]) -> list[Subscriber]:
    """Return the members as input for an assignor."""
    found = []
    for member in members:
        said = read_subscription(member.metadata)
        found.append(
            Subscriber(
                member.member_id,
                said.topics,
                tuple(
                    TopicPartition(part.topic, number)
                    for part in said.owned_partitions
                    for number in part.partitions
                ),
                said.generation_id,
                member.group_instance_id,
                said.rack_id,
                said.user_data,
            )
        )
    return found
