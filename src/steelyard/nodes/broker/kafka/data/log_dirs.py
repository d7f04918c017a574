"""34 AlterReplicaLogDirs (versions 1-2) and 35 DescribeLogDirs (1-5): what the disk holds.

There is one log directory, FOLDER: a partition of this broker is in it already, and any other is
LOG_DIR_NOT_FOUND. The size of the disk is not reported (-1).
Source: core/kafka/server/ReplicaManager.scala alterReplicaLogDirs, describeLogDirs.
"""

from __future__ import annotations

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.store.store import Store
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from steelyard.wire.kafka.messages.placement import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from steelyard.wire.kafka.schema import ApiMessage

FOLDER = "logs"
"""Below the broker's data directory, whose path no client needs to know."""


class LogDirs:
    """Handlers of AlterReplicaLogDirs and DescribeLogDirs."""

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

    @serves(AlterReplicaLogDirsRequest)
    def alter_replica_log_dirs(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage:
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for asked in call.read(AlterReplicaLogDirsRequest).dirs:
            for topic in asked.topics:
                results.setdefault(topic.name, []).extend(
                    AlterReplicaLogDirPartitionResult(
                        each, self._moved(topic.name, each, asked.path)
                    )
                    for each in topic.partitions
                )
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(*each) for each in results.items()]
        )

    def _moved(self, topic: str, partition: int, path: str) -> ErrorCode:
        """Return the outcome of moving a partition's replica of this broker to a directory."""
        if path != FOLDER:
            return ErrorCode.LOG_DIR_NOT_FOUND
        place = self._cluster.place(topic, partition)
        if isinstance(place, ErrorCode):
            return place
        return ErrorCode.NONE if place.here else ErrorCode.NOT_LEADER_OR_FOLLOWER
