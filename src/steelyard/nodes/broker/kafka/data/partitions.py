"""Finds the queue behind a partition, for its writers and readers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, PartitionPlace
from steelyard.nodes.broker.topics import TopicConfigs
from steelyard.store.log import Log
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.schema import NO_ID
from steelyard.wire.remoting.names import PERM_READ, PERM_WRITE

LEADER_EPOCH = 0
"""The leader epoch of every partition: its leader never changes."""
NO_EPOCH = -1

MetadataVersion = tuple[int, int, int]
"""The versions of the cluster's topics, its brokers, and this broker's own topics."""


class Partition(msgspec.Struct, gc=False):
    """A partition as clients may use it. `fault`: why it cannot be used here, NONE if it can."""

    topic: str
    index: int
    queue_id: int
    leader: int
    fault: ErrorCode
    readable: bool
    writable: bool
    log: Log | None
    """None until something is written to it."""

    @property
    def read_fault(self) -> ErrorCode:
        """Return why it cannot be read here, NONE if it can."""
        if self.fault or self.readable:
            return self.fault
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Partitions:
    """The partitions found so far, until a topic or broker of the cluster changes."""

    def __init__(self, cluster: Cluster, topics: TopicConfigs, store: Store) -> None:
        self.cluster = cluster
        self._topics = topics
        self._store = store
        self._version: MetadataVersion = (-1, -1, -1)
        self._known: dict[tuple[str, int], Partition] = {}

    @property
    def version(self) -> MetadataVersion:
        """Return the version of the metadata; under another one, partitions must be found again."""
        cluster = self.cluster
        return cluster.version, cluster.brokers_version, self._topics.version.counter

    def find(self, topic: str, index: int) -> Partition:
        version = self.version
        if version != self._version:
            self._version = version
            self._known = {}
        partition = self._known.get((topic, index))
        if partition is None:
            partition = self._find(topic, index)
            if partition.fault != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._known[topic, index] = partition
        elif partition.log is None:
            self.look_again(partition)
        return partition

    def look_again(self, partition: Partition) -> None:
        """Look for the log of a partition, which may have been written to meanwhile."""
        partition.log = self._store.log(partition.topic, partition.queue_id)

    def _find(self, topic: str, index: int) -> Partition:
        place = self.cluster.place(topic, index)
        if not isinstance(place, PartitionPlace):
            return Partition(topic, index, -1, -1, place, False, False, None)
        if not place.here:
            fault = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return Partition(topic, index, -1, place.node_id, fault, False, False, None)
        config = self._topics.get(topic)
        permission = 0 if config is None else config.perm
        return Partition(
            topic,
            index,
            place.queue_id,
            place.node_id,
            ErrorCode.NONE,
            bool(permission & PERM_READ),
            bool(permission & PERM_WRITE),
            self._store.log(topic, place.queue_id),
        )

    def topic_of(self, name: str, topic_id: bytes) -> str | None:
        """Return the topic that a request names, by id if it has one; None for an unknown id."""
        return name if topic_id == NO_ID else self.cluster.name_of(topic_id)

    def endpoints(self, leaders: Sequence[int]) -> list[tuple[int, str, int]]:
        """Return (node id, host, port) of those of these leaders that are up."""
        found = []
        for node_id in sorted(set(leaders)):
            broker = self.cluster.live(node_id)
            if broker is not None:
                found.append((node_id, broker.host, broker.port))
        return found


def epoch_fault(epoch: int) -> ErrorCode:
    """Return what is wrong with the leader epoch that a client sent, or NONE.

    Source: Partition.checkCurrentLeaderEpoch.
    """
    if epoch in (NO_EPOCH, LEADER_EPOCH):
        return ErrorCode.NONE
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > LEADER_EPOCH else ErrorCode.FENCED_LEADER_EPOCH
