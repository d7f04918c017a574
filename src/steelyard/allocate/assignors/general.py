"""The sticky plan where members subscribe to different topics: as balanced as it can be, from what they hold now.

All partitions of a topic are alike to the members that read it, so the plan is made of numbers: how many
partitions of each topic each member has. Four steps lead to it.

1. Everybody has what it holds. What nobody holds goes one by one to whoever has least among the readers of its
   topic; topics with few readers come first.
2. As long as a member A can hand a partition to one that has at least two fewer, it does. Where no reader of A's
   own topics has so few, A hands one to B, which hands one of another topic to C, and so on along a chain.
   Nobody hands on what it held.
3. The same once more; now members hand on what they held too, but along the chain that takes least of that.
4. Everybody keeps as many of its own partitions as its numbers say, and the rest is dealt out.

The members with most come first in steps 2 and 3. Where no chain leads down from one of them, none ever will from
any member that its chains can reach: they are all settled, so that each search without success is made once.

Laws: complete, disjoint, only to readers; no chain of hand-overs makes it more balanced, which is the least sum of
squared sizes there is (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing,
2003). Each hand-over lowers that sum by two at least, so that there is an end (librdkafka's search had none,
issue 4783). Few partitions move, though not always the fewest that this balance allows. Kafka's own search looks at
single hand-overs only: it may stop earlier.
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
    """How many partitions of each topic each member has. Members and topics are positions in lists."""

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
            # A member stands here twice if it got a partition, gave it away and got another.
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
        """Move a partition to the reader with least of all topics of `giver`, if that evens them out."""
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
        """Relieve one of `givers`, which have that load, and say which; or settle all whom they can reach."""
        came_from: dict[int, int] = {}  # topic: the member that hands on a partition of it
        got: dict[int, int] = dict.fromkeys(givers, _NOTHING)  # member: the topic that it is handed
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
        """What `member` can hand on. What takes away nothing that is held comes before all that does."""
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
        """A reader with as few partitions as any that may still get one.

        Members that handed some over stand there with what they had, but they have too many to get any more.
        """
        least = self._least[topic]
        load, member = least[0]
        while load != self._loads[member]:
            heapreplace(least, (self._loads[member], member))
            load, member = least[0]
        return member

    def _takes_held(self, member: int, topic: int) -> bool:
        """Whether `member` loses a partition that it held if it hands one on."""
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
