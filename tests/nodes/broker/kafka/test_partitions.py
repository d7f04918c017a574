"""What brokers know of a partition that another one leads."""

from __future__ import annotations

from tests.nodes.broker.kafka.conftest import KafkaRig
from tests.nodes.broker.kafka.test_markers import side

from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.routes import layout
from steelyard.routes.brokers import BrokerEntry
from steelyard.wire.kafka.errors import ErrorCode

FAR = "far"


def test_a_leader_is_known_when_it_is_met_and_when_it_changes(rig: KafkaRig) -> None:
    """A topic's layout may come from a nameserver before its broker does."""
    cluster = side(rig).cluster
    cluster.learn(KafkaTopic(FAR, bytes(range(16)), layout.read("broker-z:1"), {}))
    partitions = Partitions(cluster, rig.node._parts.topics, rig.store)

    def found() -> tuple[int, int]:
        partition = partitions.find(FAR, 0)
        return partition.fault, partition.leader

    assert found() == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    for node_id in (77, 78):
        cluster.meet(BrokerEntry("broker-z", node_id, "10.0.0.9:9092", "10.0.0.9:10911"))
        assert found() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, node_id)
