"""A member's partitions: held, assigned, and to be revoked.

An eager member revokes everything before it joins; a cooperative one keeps what it still subscribes
to, and revokes what the new assignment lacks once it has received it. Source:
ConsumerCoordinator.java (onJoinPrepare, onJoinComplete); KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.allocate.assignors.plan import Assignor, RebalanceProtocol
from steelyard.groups.kafka.member.classic.states import NO_GENERATION
from steelyard.groups.kafka.member.events import Adopt, Partitions, Prepare
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import read_assignment


class Share:
    """The partitions of a member."""

    def __init__(self, assignors: Sequence[Assignor]) -> None:
        self.owned: Partitions = ()
        """The partitions that the application holds."""
        self.assigned: Partitions = ()
        """The last assignment."""
        self.generation = NO_GENERATION
        """The generation of that assignment."""
        # A single eager assignor makes the member eager.
        protocol = min(assignor.rebalance_protocol for assignor in assignors)
        self.is_cooperative = protocol >= RebalanceProtocol.COOPERATIVE

    def prepare(self, topics: Iterable[str], *, is_member: bool) -> Prepare:
        """Return what to do before joining; without a membership all partitions are lost."""
        if not is_member:
            return Prepare((), self.owned, commit=False)
        if not self.is_cooperative:
            return Prepare(self.owned, (), commit=True)
        wanted = set(topics)
        revoked = tuple(part for part in self.owned if part.topic not in wanted)
        return Prepare(revoked, (), commit=True)

    def release(self, released: Partitions) -> None:
        """Note that these are no longer held."""
        gone = set(released)
        self.owned = tuple(part for part in self.owned if part not in gone)

    def assign(self, assigned: Partitions, generation: int) -> Adopt:
        """Return what to revoke and what to take for a new assignment."""
        self.assigned, self.generation = assigned, generation
        held, given = set(self.owned), set(assigned)
        return Adopt(
            tuple(part for part in self.owned if part not in given),
            tuple(part for part in assigned if part not in held),
        )

    def forget_assigned(self) -> None:
        """Forget the assignment, because the membership is lost."""
        self.assigned, self.generation = (), NO_GENERATION


def read_share(data: bytes) -> Partitions:
    """Read an assignment, sorted. Raises ProtocolError."""
    return tuple(
        sorted(
            {
                TopicPartition(part.topic, number)
                for part in read_assignment(data).assigned_partitions
                for number in part.partitions
            }
        )
    )
