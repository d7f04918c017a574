"""uniform: the coordinator's assignor for KIP-848 groups: even shares first, few moves second.

Members sort by `member_order`, topics and partitions by name and number. `owned` is the member's
target assignment, whether or not it has it yet.

If all members subscribe to the same topics, with n partitions and m members: each keeps what it has
up to its quota, which is `n div m`, and one more for `n mod m` of them, first those that have more
already. The rest goes to members below their quota, in order. Law: sizes differ by at most one,
with as few moves as that requires.

If subscriptions differ: each member keeps what it still subscribes to; free partitions go to the
subscriber that has fewest, topics with many partitions per subscriber first; then partitions of a
topic move from the subscriber with most to the one with fewest while their sizes differ by more
than one, topic after topic, until nothing moves or `ROUNDS_MAX` rounds are over. Law: complete;
even among the subscribers of each topic, as far as the rounds reach.

Source: group-coordinator/assignor/UniformHomogeneousAssignmentBuilder.java,
UniformHeterogeneousAssignmentBuilder.java. Kafka processes members and topics in the order of its
hash tables, so the members with one more may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from steelyard.allocate.assignors.plan import (
    Assignment,
    Subscriber,
    java_order,
    member_order,
    topics_of,
    unclaimed,
)
from steelyard.types import TopicPartition

ROUNDS_MAX = 16
"""Kafka's MAX_ITERATION_COUNT."""


def assign(subscribers: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    members = sorted(subscribers, key=member_order)
    readers = topics_of(members, partitions)
    if not readers:
        return {member.member: [] for member in members}
    ranks = {topic: rank for rank, topic in enumerate(readers)}
    if all(len(subscribed) == len(members) for subscribed in readers.values()):
        assignment = _assign_alike(members, {topic: partitions[topic] for topic in readers})
    else:
        assignment = _Uneven(members, readers, partitions).assign()
    for share in assignment.values():
        share.sort(key=lambda partition: (ranks[partition.topic], partition.partition))
    return assignment


def _held(
    members: Sequence[Subscriber], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return each member's existing partitions; if two members name one, the first has it."""
    ranks = {topic: rank for rank, topic in enumerate(partitions)}
    taken: set[TopicPartition] = set()
    held: dict[str, list[TopicPartition]] = {}
    for member in members:
        topics = frozenset(member.topics)
        share = [
            partition
            for partition in set(member.owned)
            if 0 <= partition.partition < partitions.get(partition.topic, 0)
            and partition.topic in topics
            and partition not in taken
        ]
        share.sort(key=lambda partition: (ranks[partition.topic], partition.partition))
        taken.update(share)
        held[member.member] = share
    return held


def _assign_alike(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Assign partitions to members that all subscribe to all of them."""
    held = _held(members, partitions)
    free = unclaimed(held, partitions)
    size, longer = divmod(sum(partitions.values()), len(members))
    quota: dict[str, int] = {}
    # Members above the short quota keep one more; any remaining extras go to the first of the
    # others.
    for has_more in (True, False):
        for member in members:
            if (len(held[member.member]) > size) == has_more:
                quota[member.member] = size + (longer > 0)
                longer -= longer > 0
    for member in members:
        share = held[member.member]
        free += share[quota[member.member] :]
        del share[quota[member.member] :]
    position = 0
    for member in members:
        share = held[member.member]
        wanted = quota[member.member] - len(share)
        share += free[position : position + wanted]
        position += wanted
    assert position == len(free), "a partition was left over"
    return held


class _Uneven:
    """The assignment of members with different subscriptions; members are list positions."""

    def __init__(
        self,
        members: Sequence[Subscriber],
        readers: Mapping[str, Sequence[Subscriber]],
        partitions: Mapping[str, int],
    ) -> None:
        self._names = [member.member for member in members]
        position_of = {name: position for position, name in enumerate(self._names)}
        self._readers = {
            topic: [position_of[subscriber.member] for subscriber in subscribed]
            for topic, subscribed in readers.items()
        }
        self._partitions = {topic: partitions[topic] for topic in self._topics_in_order(partitions)}
        held = _held(members, self._partitions)
        self._free = unclaimed(held, self._partitions)
        self._sizes = [len(held[name]) for name in self._names]
        self._owner_of = {
            partition: position_of[name] for name, share in held.items() for partition in share
        }

    def _topics_in_order(self, partitions: Mapping[str, int]) -> list[str]:
        def order(topic: str) -> tuple[float, int, bytes]:
            readers = len(self._readers[topic])
            return (-partitions[topic] / readers, readers, java_order(topic))

        return sorted(self._readers, key=order)

    def assign(self) -> Assignment:
        self._give_free()
        for _ in range(ROUNDS_MAX):
            moved = [topic for topic in self._partitions if self._balance(topic)]
            if not moved:
                break
        assignment: Assignment = {name: [] for name in self._names}
        for partition, owner in self._owner_of.items():
            assignment[self._names[owner]].append(partition)
        return assignment

    def _give_free(self) -> None:
        free: dict[str, list[TopicPartition]] = {}
        for partition in self._free:
            free.setdefault(partition.topic, []).append(partition)
        for topic, partitions in free.items():
            least = [(self._sizes[reader], reader) for reader in self._readers[topic]]
            heapify(least)
            for partition in partitions:
                size, reader = heappop(least)
                self._owner_of[partition] = reader
                self._sizes[reader] = size + 1
                heappush(least, (size + 1, reader))

    def _balance(self, topic: str) -> bool:
        """Move partitions of a topic from who has most to who has least.

        False where none had to.
        """
        readers = self._readers[topic]
        movable: dict[int, list[TopicPartition]] = {reader: [] for reader in readers}
        for number in range(self._partitions[topic]):
            partition = TopicPartition(topic, number)
            movable[self._owner_of[partition]].append(partition)
        least = [(self._sizes[reader], reader) for reader in readers]
        most = [(-self._sizes[reader], -reader) for reader in readers if movable[reader]]
        heapify(least)
        heapify(most)
        moved = False
        while most:
            size, giver = -most[0][0], -most[0][1]
            if not movable[giver] or size != self._sizes[giver]:
                heappop(most)  # nothing left to give, or it has got some since
                continue
            while least[0][0] != self._sizes[least[0][1]]:
                heappop(least)
            taker = least[0][1]
            if size - self._sizes[taker] <= 1:
                break
            partition = movable[giver].pop()
            self._owner_of[partition] = taker
            self._sizes[giver] -= 1
            self._sizes[taker] += 1
            for reader in (giver, taker):
                heappush(least, (self._sizes[reader], reader))
            heappush(most, (-self._sizes[giver], -giver))
            moved = True
        return moved
