"""Where partitions lie: APIs 43 (versions 0-2), 45 (0-1) and 46 (0).

A partition has one replica, on the broker that its topic's layout names, and never moves.

- 43 ElectLeaders: no election is needed where the leader is up. While it is down there is nobody to
  elect: PREFERRED_LEADER_NOT_AVAILABLE, and ELIGIBLE_LEADERS_NOT_AVAILABLE for an unclean election.
  Without a list of partitions the answer has those only that need an election, as in Kafka.
- 45 AlterPartitionReassignments: the replica that a partition has is accepted, any other is
  INVALID_REPLICA_ASSIGNMENT, and there is no reassignment to cancel.
- 46 ListPartitionReassignments: there are none.
Source: metadata/controller/ReplicationControlManager.java electLeaders,
alterPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.kafka.topics.metadata import placed
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from steelyard.wire.kafka.schema import ApiMessage


class ElectionType(IntEnum):
    """Source: clients/common/ElectionType.java."""

    PREFERRED = 0
    UNCLEAN = 1


Replicas = Sequence[tuple[int, Sequence[int]]]
"""Of each partition of a topic: its leader, -1 while it is down, and its replicas."""


class PartitionPlacement:
    """Handlers of ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _replicas(self, topic: str) -> Replicas | None:
        known = self._cluster.topic(topic)
        return None if known is None else list(placed(self._cluster, known))

    @serves(ElectLeadersRequest)
    def elect_leaders(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        message = call.read(ElectLeadersRequest)
        kind = message.election_type
        fault = ErrorCode.NONE if kind in list(ElectionType) else ErrorCode.INVALID_REQUEST
        if message.topic_partitions is None:
            results = [] if fault else [self._elected_in_all(name, kind) for name in self._names()]
            return ElectLeadersResponse(0, fault, results)
        results = []
        for topic in message.topic_partitions:
            replicas = self._replicas(topic.topic)
            parts = [_elected(topic.topic, each, replicas, kind) for each in topic.partitions]
            results.append(ReplicaElectionResult(topic.topic, parts))
        return ElectLeadersResponse(0, fault, results)

    def _names(self) -> list[str]:
        return sorted(self._cluster.names())

    def _elected_in_all(self, topic: str, kind: int) -> ReplicaElectionResult:
        replicas = self._replicas(topic) or ()
        results = [_elected(topic, each, replicas, kind) for each in range(len(replicas))]
        needed = [each for each in results if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        return ReplicaElectionResult(topic, needed)

    @serves(AlterPartitionReassignmentsRequest)
    def alter_partition_reassignments(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage:
        message = call.read(AlterPartitionReassignmentsRequest)
        may_grow = message.allow_replication_factor_change
        responses = []
        for topic in message.topics:
            replicas = self._replicas(topic.name)
            parts = []
            for asked in topic.partitions:
                code, text = ErrorCode.NONE, None
                try:
                    self._check_moved(topic.name, asked, replicas, may_grow=may_grow)
                except RequestRefused as error:
                    code, text = error.code, error.text or None
                parts.append(ReassignablePartitionResponse(asked.partition_index, code, text))
            responses.append(ReassignableTopicResponse(topic.name, parts))
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_grow, error_message=None, responses=responses
        )

    def _check_moved(
        self, topic: str, asked: ReassignablePartition, replicas: Replicas | None, *, may_grow: bool
    ) -> None:
        """Raise RequestRefused unless a partition would stay where it is."""
        if replicas is None:
            text = f"Unable to find a topic named {topic}."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if not 0 <= asked.partition_index < len(replicas):
            text = f"Unable to find partition {topic}:{asked.partition_index}."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if asked.replicas is None:
            raise RequestRefused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
        self._check_brokers(asked.replicas)
        _, current = replicas[asked.partition_index]
        if list(asked.replicas) == list(current):
            return
        if len(asked.replicas) != len(current) and not may_grow:
            text = f"The replication factor is {len(current)} and must not change, as asked."
            raise RequestRefused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        text = (
            f"Partition {topic}-{asked.partition_index} has one replica, on broker"
            f" {', '.join(map(str, current))}, and cannot move: this cluster has no replication."
        )
        raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    def _check_brokers(self, replicas: Sequence[int]) -> None:
        """Raise RequestRefused, in Kafka's words, for brokers that no partition could have."""
        text = "" if replicas else "an empty replica list."
        known = {broker.node_id for broker in self._cluster.brokers.values()}
        seen: set[int] = set()
        for node_id in replicas:
            if node_id in seen:
                text = f"the broker {node_id} more than once."
                break
            if node_id not in known:
                text = f"broker {node_id}, but no such broker is registered."
                break
            seen.add(node_id)
        if text:
            text = f"The manual partition assignment includes {text}"
            raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    @serves(ListPartitionReassignmentsRequest)
    def list_partition_reassignments(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage:
        return ListPartitionReassignmentsResponse(error_message=None)


def _elected(topic: str, partition: int, replicas: Replicas | None, kind: int) -> PartitionResult:
    """Return the outcome of an election, in Kafka's words."""
    if kind == ElectionType.PREFERRED:
        code, text = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "The preferred leader was not available.",
        )
    elif kind == ElectionType.UNCLEAN:
        code, text = (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    else:
        return PartitionResult(
            partition, ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
        )
    if replicas is None:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    elif not 0 <= partition < len(replicas):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = f"No such partition as {topic}-{partition}"
    elif replicas[partition][0] >= 0:
        code = ErrorCode.ELECTION_NOT_NEEDED
        text = "Leader election not needed for topic partition."
    return PartitionResult(partition, code, text)
