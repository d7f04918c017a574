"""The sticky plan for different subscriptions: as balanced as possible, from current holdings.

All partitions of a topic are equivalent to its readers, so the plan is computed as numbers: how
many partitions of each topic each member has. There are four steps.

1. Members have what they hold. Unheld partitions go one by one to the reader of the topic that has
   fewest; topics with few readers come first.
2. While a member A can pass a partition to one that has at least two fewer, it does. If no reader
   of A's own topics has so few, A passes one to B, which passes one of another topic to C, and so
   on along a chain. No member passes on a partition that it held.
3. The same again, but now members also pass on partitions that they held, along the chain that
   takes fewest of those.
4. Each member keeps as many of its own partitions as its numbers say, and the rest is assigned.

The members with most partitions come first in steps 2 and 3. If no chain relieves one of them, none
will ever relieve any member that its chains can reach: all of these are settled, so that each
unsuccessful search is made once.

Laws: complete, disjoint, only to readers; no chain of moves improves the balance, so the sum of
squared sizes is minimal (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and
load balancing, 2003). Each move lowers that sum by at least two, so the search terminates
(librdkafka's did not, issue 4783). Few partitions move, though not always the minimum for this
balance. Kafka's own search considers single moves only and may stop earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heapreplace

from steelyard.allocate.assignors.holdings import CurrentAssignment
from steelyard.allocate.assignors.plan import Assignment, unclaimed

_NOTHING = -1


def assign(group: CurrentAssignment) -> Assignment:
    balance = _Balance(group)
    balance.share_out()
    balance.level(only_new=True)
    balance.level(only_new=False)
    return _deal(group, balance)


class _Balance:
    """Number of partitions of each topic per member. Members and topics are list positions."""

    def __init__(self, group: CurrentAssignment) -> None:
        position_of = {member: position for position, member in enumerate(group.members)}
        self.topics = sorted(group.partitions, key=lambda topic: len(group.readers[topic]))
        self._sizes = [group.partitions[topic] for topic in self.topics]
        self._readers = [
            [position_of[member] for member in group.readers[topic]] for topic in self.topics
        ]
        topic_of = {topic: position for position, topic in enumerate(self.topics)}
        self._held: list[dict[int, int]] = [{} for _ in group.members]
        for member, partitions in group.held.items():
            counts = self._held[position_of[member]]
            for partition in partitions:
                topic = topic_of[partition.topic]
                counts[topic] = counts.get(topic, 0) + 1
        self.has = [dict(counts) for counts in self._held]
        self._loads = [sum(counts.values()) for counts in self._held]
        self._least: list[list[tuple[int, int]]] = []
        self._only_new = False
        self._settled: set[int] = set()
        self._with_load: list[list[int]] = []

    def share_out(self) -> None:
        """Step 1."""
        unheld = list(self._sizes)
        for counts in self._held:
            for topic, count in counts.items():
                unheld[topic] -= count
        for topic, readers in enumerate(self._readers):
            least = [(self._loads[member], member) for member in readers]
            heapify(least)
            for _ in range(unheld[topic]):
                load, member = least[0]
                self._add(member, topic, 1)
                heapreplace(least, (load + 1, member))
            for load, member in least:
                self._loads[member] = load

    def level(self, only_new: bool) -> None:
        """Step 2, or with `only_new` False step 3."""
        self._only_new = only_new
        self._settled = set()
        self._least = [[(self._loads[member], member) for member in who] for who in self._readers]
        for least in self._least:
            heapify(least)
        self._with_load = [[] for _ in range(max(self._loads, default=0) + 1)]
        for member, load in enumerate(self._loads):
            self._with_load[load].append(member)
        for load in range(len(self._with_load) - 1, 1, -1):
            # A member is listed twice if it got a partition, gave it away and got another.
            givers = dict.fromkeys(
                member
                for member in self._with_load[load]
                if self._loads[member] == load and member not in self._settled
            )
            if givers and load < min(self._loads) + 2:
                return
            for giver in list(givers):
                if self._hand_over_directly(giver):
                    del givers[giver]
            while givers and (giver_found := self._hand_over_by_chain(givers, load)) is not None:
                del givers[giver_found]

    def _hand_over_directly(self, giver: int) -> bool:
        """Move a partition to the reader with fewest among all topics of `giver`, if that helps."""
        low = self._loads[giver] - 2
        ways = [
            (takes, self._loads[receiver], topic, receiver)
            for topic in self.has[giver]
            if not ((takes := self._takes_held(giver, topic)) and self._only_new)
            and self._loads[receiver := self._least_of(topic)] <= low
        ]
        if not ways:
            return False
        _, _, topic, receiver = min(ways)
        self._add(giver, topic, -1)
        self._add(receiver, topic, 1)
        self._count(giver, receiver)
        return True

    def _hand_over_by_chain(self, givers: Iterable[int], load: int) -> int | None:
        """Relieve one of `givers`, which have that load, and return it.

        Or settle all they can reach.
        """
        came_from: dict[int, int] = {}  # topic: the member that passes on a partition of it
        got: dict[int, int] = dict.fromkeys(givers, _NOTHING)  # member: the topic that it receives
        found: deque[tuple[int, int]] = deque()  # topics, and members that have some of them
        for giver in givers:
            self._reach(giver, found)
        while found:
            topic, member = found.popleft()
            if topic in came_from:
                continue
            came_from[topic] = member
            receiver = self._least_of(topic)
            if self._loads[receiver] <= load - 2:
                got[receiver] = topic
                return self._hand_along(receiver, came_from, got)
            for reader in self._readers[topic]:
                if reader not in got and reader not in self._settled:
                    got[reader] = topic
                    self._reach(reader, found)
        self._settled.update(got)
        return None

    def _reach(self, member: int, found: deque[tuple[int, int]]) -> None:
        """Add what `member` can pass on; options that cost nothing held come before the others."""
        for topic in self.has[member]:
            if not self._takes_held(member, topic):
                found.appendleft((topic, member))
            elif not self._only_new:
                found.append((topic, member))

    def _hand_along(self, receiver: int, came_from: dict[int, int], got: dict[int, int]) -> int:
        member = receiver
        while (topic := got[member]) != _NOTHING:
            giver = came_from[topic]
            self._add(giver, topic, -1)
            self._add(member, topic, 1)
            member = giver
        self._count(member, receiver)
        return member

    def _least_of(self, topic: int) -> int:
        """Return a reader with as few partitions as any that may still get one.

        Members that passed some on are listed with their former number, but they have too many to
        get any more.
        """
        least = self._least[topic]
        load, member = least[0]
        while load != self._loads[member]:
            heapreplace(least, (self._loads[member], member))
            load, member = least[0]
        return member

    def _takes_held(self, member: int, topic: int) -> bool:
        """Return whether `member` loses a partition that it held if it passes one on."""
        return self.has[member][topic] <= self._held[member].get(topic, 0)

    def _count(self, giver: int, receiver: int) -> None:
        for member, change in ((giver, -1), (receiver, 1)):
            self._loads[member] += change
            self._with_load[self._loads[member]].append(member)

    def _add(self, member: int, topic: int, change: int) -> None:
        counts = self.has[member]
        count = counts.get(topic, 0) + change
        if count:
            counts[topic] = count
        else:
            del counts[topic]


def _deal(group: CurrentAssignment, balance: _Balance) -> Assignment:
    """Step 4."""
    assignment: Assignment = {}
    wanting: dict[str, deque[tuple[str, int]]] = {topic: deque() for topic in balance.topics}
    for member, has in zip(group.members, balance.has, strict=True):
        counts = {balance.topics[topic]: count for topic, count in has.items()}
        kept = assignment[member] = []
        for partition in sorted(group.held[member]):
            if counts.get(partition.topic):
                counts[partition.topic] -= 1
                kept.append(partition)
        for topic, count in counts.items():
            if count:
                wanting[topic].append((member, count))
    for partition in unclaimed(assignment, group.partitions):
        takers = wanting[partition.topic]
        member, count = takers.popleft()
        assignment[member].append(partition)
        if count > 1:
            takers.append((member, count - 1))
    return assignment
