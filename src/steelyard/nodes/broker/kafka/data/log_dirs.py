"""35 DescribeLogDirs (versions 1-5) and 46 ListPartitionReassignments (0): what the disk holds.

There is one log directory, and partitions never move. The size of the disk is not reported (-1).
Source: core/kafka/server/ReplicaManager.scala describeLogDirs.
"""

from __future__ import annotations

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.store.store import Store
from steelyard.wire.kafka.messages.cluster import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from steelyard.wire.kafka.messages.logs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from steelyard.wire.kafka.schema import ApiMessage

FOLDER = "logs"
"""Below the broker's data directory, whose path no client needs to know."""


class LogDirs:
    """Handlers of DescribeLogDirs and ListPartitionReassignments."""

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self._store = store
        self._cluster = cluster

    @serves(DescribeLogDirsRequest)
    def describe_log_dirs(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        message = call.read(DescribeLogDirsRequest)
        wanted: dict[str, set[int]] | None = None
        if message.topics is not None:
            wanted = {}
            for asked in message.topics:
                wanted.setdefault(asked.topic, set()).update(asked.partitions)
        topics = []
        for name in sorted(self._cluster.names() if wanted is None else wanted):
            partitions = [
                DescribeLogDirsPartition(partition, self._size(name, queue_id))
                for partition, queue_id in self._cluster.local_partitions(name)
                if wanted is None or partition in wanted[name]
            ]
            if partitions:
                topics.append(DescribeLogDirsTopic(name, partitions))
        return DescribeLogDirsResponse(results=[DescribeLogDirsResult(0, FOLDER, topics)])

    def _size(self, topic: str, queue_id: int) -> int:
        log = self._store.log(topic, queue_id)
        return 0 if log is None else log.size()

    @serves(ListPartitionReassignmentsRequest)
    def list_partition_reassignments(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage:
        return ListPartitionReassignmentsResponse(error_message=None)
