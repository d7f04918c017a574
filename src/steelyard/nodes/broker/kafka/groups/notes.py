"""What the rebalance ledger learns of Kafka's groups.

A member's id is recorded as its client, and a partition as the queue that it is on this broker, so
that the records of both dialects of a topic agree. A Fetch does not name its group: the reader of a
partition is the member that it is assigned to and that has the client id and host of the fetching
client. If several groups have such a member (client ids are often left at their defaults), each of
the client's connections stands for another group, at first the one whose committed offset is
nearest.

A delivery is noted by the broker that has the partition, also for groups of other coordinators
(`readers`). A commit is noted by the coordinator, wherever the partition is.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.groups.kafka import effects as news
from steelyard.groups.kafka.groups import Asker, CoordinatedGroups
from steelyard.groups.kafka.offsets import Offsets
from steelyard.ledger.events import (
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
)
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.readers import Readers
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.seam import Link
from steelyard.types import TopicPartition

READERS_MAX = 100_000
"""Most (connection, partition) pairs to remember; beyond it, all are found anew."""

Reader = tuple[str, str]
"""Group id and member id."""


class Notes:
    """What the ledger is told of Kafka's groups; see the module docstring."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        groups: CoordinatedGroups,
        offsets: Offsets,
        others: Readers,
    ) -> None:
        """Note what happens in the groups of this coordinator, and deliveries to others.

        `groups`, `offsets`: of this coordinator. `others`: what is known of the groups of others.
        """
        self._ledger = ledger
        self._cluster = cluster
        self._groups = groups
        self._offsets = offsets
        self._others = others
        self._readers: dict[Link, dict[TopicPartition, Reader | None]] = {}
        self._taken: set[tuple[str, TopicPartition]] = set()
        """Groups and partitions whose reader is known."""
        self._forget()

    # -- members and rebalances ------------------------------------------------------------------

    def happened(self, event: news.Effect, now: int, flaps: int = 0) -> None:
        """Note what the coordinator did. `flaps`: of a member that joined."""
        broker, note = self._ledger.broker, self._ledger.note
        match event:
            case news.Joined(group, member, cause, members, topics):
                who = member.member_id
                note(MemberJoined(now, broker, group, who, cause, members, topics, flaps))
                self._resumed(group, topics.__contains__, now)
            case news.Left(group, member, cause, members, heard_at):
                # The name for the same cause in RocketMQ's groups.
                cause = "unregistered" if cause == news.LEFT else cause
                left = MemberLeft(now, broker, group, member, cause, members, heard_at)
                self._ledger.left(left)
            case news.Began(group, generation, cause, members):
                trigger, text = cause.trigger, cause.text
                note(RebalanceBegan(now, broker, group, generation, trigger, text, members))
            case news.Ended(group, generation, protocol, began_at, members):
                duration = now - began_at
                note(RebalanceEnded(now, broker, group, generation, protocol, duration, members))
            case news.Moved(group, member, offsets):
                for topic, partition, offset in offsets:
                    self._committed(group, member, topic, partition, offset, now)

    def _committed(
        self, group: str, member: str, topic: str, partition: int, offset: int, now: int
    ) -> None:
        queue = self._cluster.queue_of(TopicPartition(topic, partition))
        if queue is not None:
            broker, queue_id = queue
            self._ledger.committed_by(group, topic, queue_id, offset, member, now, broker=broker)

    def resume(self, now: int) -> None:
        """Have the ledger watch what the groups read whose members are known at the start."""
        for group in self._groups:
            if not group.is_empty:
                self._resumed(group.group_id, group.subscribes_to, now)

    def _resumed(self, group: str, reads: Callable[[str], bool], now: int) -> None:
        committed = []
        for partition, known in self._offsets.of_group(group).items():
            place = self._cluster.queue_of(partition) if reads(partition.topic) else None
            if place is not None and place[0] == self._ledger.broker:
                committed.append((partition.topic, place[1], known.offset))
        self._ledger.resumed(group, committed, now)

    # -- deliveries ------------------------------------------------------------------------------

    def delivered(self, delivery: Delivered, partition: TopicPartition, now: int) -> None:
        """Note that a Fetch of the partition's reader found messages."""
        self._ledger.delivered(delivery, delivery.first, now)
        self._others.delivered(delivery.group, partition, delivery.next)

    def reader(self, asker: Asker, partition: TopicPartition, offset: int) -> Reader | None:
        """Return the member that fetches at this offset; None for a client without a group."""
        if self._version != self._newest or self._count >= READERS_MAX:
            self._forget()
        known = self._readers.setdefault(asker.link, {})
        if partition not in known:
            known[partition] = self._find(asker, partition, offset)
            self._count += 1
        return known[partition]

    def _find(self, asker: Asker, partition: TopicPartition, offset: int) -> Reader | None:
        found: list[tuple[int, str, str]] = []
        for group in self._with_members:
            member = group.member_at(asker.client_id, asker.host, partition)
            if member is not None and (group.group_id, partition) not in self._taken:
                committed = self._offsets.get(group.group_id, partition)
                distance = abs(offset - (0 if committed is None else committed.offset))
                found.append((distance, group.group_id, member))
        for group_id, other in self._others.of(partition):
            same = (other.client_id, other.host) == (asker.client_id, asker.host)
            if same and (group_id, partition) not in self._taken:
                found.append((abs(offset - other.position), group_id, other.member_id))
        if not found:
            return None
        _, group_id, member = min(found)
        self._taken.add((group_id, partition))
        return group_id, member

    def closed(self, link: Link) -> None:
        """Forget the readers of a closed connection."""
        for partition, reader in self._readers.pop(link, {}).items():
            self._count -= 1
            if reader is not None:
                self._taken.discard((reader[0], partition))

    @property
    def _newest(self) -> tuple[int, int]:
        return self._groups.version, self._others.version

    def _forget(self) -> None:
        self._version = self._newest
        # Most groups may be those of past runs, of which only the offsets are left.
        self._with_members = [group for group in self._groups if not group.is_empty]
        self._readers.clear()
        self._taken.clear()
        self._count = 0
