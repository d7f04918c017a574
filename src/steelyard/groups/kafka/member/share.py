"""A member's share of the partitions: what it holds, what it was given, and what it gives up for what comes.

An eager member gives everything up before it joins; a cooperative one keeps what it still subscribes to, and gives up
what the new share lacks once it has that. Source: ConsumerCoordinator.java (onJoinPrepare, onJoinComplete); KIP-429.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steelyard.allocate.assignors.plan import Assignor, RebalanceProtocol
from steelyard.groups.kafka.member.events import Adopt, Partitions, Prepare
from steelyard.groups.kafka.member.states import NO_GENERATION
from steelyard.types import TopicPartition
from steelyard.wire.kafka.messages.consumer_protocol import read_assignment


class Share:
    """See the module's text."""

    def __init__(self, assignors: Sequence[Assignor]) -> None:
        self.owned: Partitions = ()
        """What the application holds."""
        self.assigned: Partitions = ()
        """What the member was given last."""
        self.generation = NO_GENERATION
        """In which it was given that."""
        # One assignor that is eager makes the member eager.
        protocol = min(assignor.rebalance_protocol for assignor in assignors)
        self.is_cooperative = protocol >= RebalanceProtocol.COOPERATIVE

    def prepare(self, topics: Iterable[str], *, is_member: bool) -> Prepare:
        """What goes before the group is joined; without a membership all of it is lost."""
        if not is_member:
            return Prepare((), self.owned, commit=False)
        if not self.is_cooperative:
            return Prepare(self.owned, (), commit=True)
        wanted = set(topics)
        revoked = tuple(part for part in self.owned if part.topic not in wanted)
        return Prepare(revoked, (), commit=True)

    def release(self, released: Partitions) -> None:
        """These are not held any more."""
        gone = set(released)
        self.owned = tuple(part for part in self.owned if part not in gone)

    def assign(self, assigned: Partitions, generation: int) -> Adopt:
        """The member is given this: what goes for it, and what comes."""
        self.assigned, self.generation = assigned, generation
        held, given = set(self.owned), set(assigned)
        return Adopt(
            tuple(part for part in self.owned if part not in given),
            tuple(part for part in assigned if part not in held),
        )

    def forget_assigned(self) -> None:
        """The membership is lost: what was given counts no more."""
        self.assigned, self.generation = (), NO_GENERATION


def read_share(data: bytes) -> Partitions:
    """What a member was given, sorted. Raises ProtocolError."""
    return tuple(
        sorted(
            {
                TopicPartition(part.topic, number)
                for part in read_assignment(data).assigned_partitions
                for number in part.partitions
            }
        )
    )
