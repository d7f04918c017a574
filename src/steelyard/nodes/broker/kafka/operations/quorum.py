"""55 DescribeQuorum (versions 0-2) and 64 UnregisterBroker (0): who decides on partitions.

There is no metadata log. Partitions are assigned by the controller, the live broker with the lowest
node id, once a quorum of all brokers agrees (`cluster/membership`): so all brokers are voters, the
controller leads, offsets and the epoch are 0, and a broker that is down has never caught up.

Brokers are not unregistered: nobody else has a copy of their partitions.
Source: raft/KafkaRaftClient.java handleDescribeQuorumRequest,
metadata/controller/ClusterControlManager.java.
"""

from __future__ import annotations

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.controllers import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    ReplicaState,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

METADATA_TOPIC = "__cluster_metadata"
"""The topic of KRaft's metadata log, of one partition; it does not exist here."""
_NOT_HOSTED = "This server does not host this topic-partition."


class Quorum:
    """Handlers of DescribeQuorum and UnregisterBroker. `listener`: what the brokers' is called."""

    def __init__(self, cluster: Cluster, listener: str) -> None:
        self._cluster = cluster
        self._listener = listener

    @serves(DescribeQuorumRequest)
    def describe_quorum(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        asked = call.read(DescribeQuorumRequest).topics
        named = [
            (each.topic_name, part.partition_index) for each in asked for part in each.partitions
        ]
        if named == [(METADATA_TOPIC, 0)]:
            return DescribeQuorumResponse(
                topics=[DescribedQuorumTopic(METADATA_TOPIC, [self._partition(now)])],
                nodes=[
                    QuorumNode(each.node_id, [QuorumListener(self._listener, each.host, each.port)])
                    for each in self._cluster.live_brokers()
                ],
            )
        return DescribeQuorumResponse(
            topics=[
                DescribedQuorumTopic(
                    topic.topic_name,
                    [
                        DescribedQuorumPartition(
                            part.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HOSTED
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in asked
            ]
        )

    def _partition(self, now: int) -> DescribedQuorumPartition:
        cluster = self._cluster
        voters = [
            ReplicaState(
                broker.node_id,
                last_fetch_timestamp=now if broker.live else -1,
                last_caught_up_timestamp=now if broker.live else -1,
            )
            for broker in sorted(cluster.brokers.values(), key=lambda broker: broker.node_id)
            if cluster.membership.counts(broker.name)
        ]
        leader = cluster.controller.node_id
        return DescribedQuorumPartition(0, leader_id=leader, current_voters=voters)

    @serves(UnregisterBrokerRequest)
    def unregister_broker(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        node_id = call.read(UnregisterBrokerRequest).broker_id
        if all(broker.node_id != node_id for broker in self._cluster.brokers.values()):
            text = f"Broker ID {node_id} is not currently registered"
            return UnregisterBrokerResponse(0, ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        text = (
            f"Broker ID {node_id} stays: no other broker has a copy of its partitions. Move them,"
            " and start the brokers without it."
        )
        return UnregisterBrokerResponse(0, ErrorCode.POLICY_VIOLATION, text)
