"""3 Metadata (versions 0-13) and 60 DescribeCluster (0-2): brokers, topics and leaders.

- A requested topic that does not exist is created if the client and auto.create.topics.enable allow
  it. The answer describes it already (Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION first), or is
  LEADER_NOT_AVAILABLE while too few brokers are up.
- A partition has one replica, its leader. While that broker is down there is no leader:
  LEADER_NOT_AVAILABLE.
- Leader epochs are 0: a partition never moves.
- DescribeCluster refuses types of endpoints other than brokers. There are no fenced brokers.
- The authorized operations are all that exist; with an authorizer, `access/needs` replaces them and
  hides topics.
Source: core/kafka/server/KafkaApis.scala handleTopicMetadataRequest, handleDescribeCluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steelyard.config import KafkaConfig
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_names import name_fault
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.turns import Steps, finish
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    METADATA,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
"""All existing operations, as bits. Source: AclOperation.java, AclEntry.supportedOperations."""

BROKERS = 1
"""The type of endpoints that DescribeCluster describes here; 2 are controllers."""


STEP_TOPICS = 500
STEP_PARTITIONS = 4_000
"""Topics and partitions described in one step, which takes about 4 ms."""


def placed(cluster: Cluster, topic: KafkaTopic) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the leader of each partition, -1 while its broker is down, and its replicas."""
    for name, _ in topic.layout.leaders():
        broker = cluster.brokers.get(name)
        replicas = () if broker is None else (broker.node_id,)
        yield broker.node_id if broker is not None and broker.live else -1, replicas


class MetadataHandlers:
    """Handlers of Metadata and DescribeCluster."""

    def __init__(
        self,
        config: KafkaConfig,
        cluster: Cluster,
        changes: Changes,
        durability: Durability,
        forwarding: Forwarding,
    ) -> None:
        self._durability = durability
        self._config = config
        self._cluster = cluster
        self._changes = changes
        self._forwarding = forwarding
        forwarding.serve(METADATA.key, self.metadata)

    @serves(MetadataRequest)
    def metadata_in_steps(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | Steps[ApiMessage] | None:
        """Answer like `metadata`, but in steps if no other broker is needed."""
        message = call.read(MetadataRequest)
        wanted = message.topics
        if wanted is None or (call.version == 0 and not wanted):
            names = sorted(self._cluster.names())
            wanted = [MetadataRequestTopic(NO_ID, name) for name in names]
        elif (
            len(wanted) < STEP_TOPICS
            or message.allow_auto_topic_creation
            or 10 <= call.version < 12
            or self._missing(wanted)
        ):
            return self.metadata(call, now, effects)
        return self._steps(message, wanted, {})

    def metadata(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(MetadataRequest)
        wanted = message.topics
        if wanted is None or (call.version == 0 and not wanted):
            names = sorted(self._cluster.names())
            return self._answer(message, [MetadataRequestTopic(NO_ID, name) for name in names], {})
        if 10 <= call.version < 12 and any(topic.topic_id != NO_ID for topic in wanted):
            return self._answer(message, [], {})  # ids are in the answers of 10 and 11 only
        missing = self._missing(wanted)
        if not missing:
            return self._answer(message, wanted, {})
        if self._forwarding.forward(call, self._as_known, now, effects):
            return None  # the controller knows all topics
        if not (message.allow_auto_topic_creation and self._config.auto_create_topics_enable):
            return self._answer(message, wanted, {})

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            self._durability.answer(call, self._answer(message, wanted, faults), effects)

        topics = [self._changes.plans.new_topic(name) for name in missing]
        self._changes.put(topics, then, now, effects)
        return None

    def _as_known(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        """Answer with what this broker knows."""
        message = call.read(MetadataRequest)
        return self._answer(message, message.topics or (), {})

    def _missing(self, wanted: Sequence[MetadataRequestTopic]) -> list[str]:
        """Return the topics that do not exist and may be created."""
        names = dict.fromkeys(topic.name for topic in wanted if topic.topic_id == NO_ID)
        return [
            name
            for name in names
            if name is not None
            and self._cluster.topic(name) is None
            and name_fault(self._cluster, name) is None
        ]

    def _answer(
        self, message: MetadataRequest, wanted: Sequence[MetadataRequestTopic], faults: Faults
    ) -> MetadataResponse:
        return finish(self._steps(message, wanted, faults))

    def _steps(
        self, message: MetadataRequest, wanted: Sequence[MetadataRequestTopic], faults: Faults
    ) -> Steps[MetadataResponse]:
        topics = []
        work = 0
        for topic in wanted:
            told = self._topic(
                topic, faults, operations=message.include_topic_authorized_operations
            )
            topics.append(told)
            work += STEP_PARTITIONS // STEP_TOPICS + len(told.partitions)
            if work > STEP_PARTITIONS:
                work = 0
                yield
        cluster = self._cluster
        operations = message.include_cluster_authorized_operations
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(broker.node_id, broker.host, broker.port)
                for broker in cluster.live_brokers()
            ],
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller.node_id,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if operations else NOT_ASKED,
        )

    def _topic(
        self, wanted: MetadataRequestTopic, faults: Faults, *, operations: bool
    ) -> MetadataResponseTopic:
        name = wanted.name
        if wanted.topic_id != NO_ID:
            name = self._cluster.name_of(wanted.topic_id)
            if name is None:
                return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        name = name or ""
        known = self._cluster.topic(name)
        if known is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name in faults:
                error = faults[name][0]
                if error == ErrorCode.NOT_CONTROLLER:
                    # Every client expects this code here, and retries.
                    error = ErrorCode.LEADER_NOT_AVAILABLE
            elif name_fault(self._cluster, name) is not None:
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            return MetadataResponseTopic(error, name)
        return MetadataResponseTopic(
            ErrorCode.NONE,
            known.name,
            known.topic_id,
            known.is_internal,
            self._partitions(known),
            TOPIC_OPERATIONS if operations else NOT_ASKED,
        )

    def _partitions(self, topic: KafkaTopic) -> list[MetadataResponsePartition]:
        return [
            MetadataResponsePartition(
                ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition,
                leader,
                0,
                replicas,
                replicas,
                () if leader >= 0 else replicas,
            )
            for partition, (leader, replicas) in enumerate(placed(self._cluster, topic))
        ]

    @serves(DescribeClusterRequest)
    def describe_cluster(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        message = call.read(DescribeClusterRequest)
        if message.endpoint_type != BROKERS:
            known = message.endpoint_type == 2
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if known
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="The request was sent to an endpoint of the brokers",
                endpoint_type=message.endpoint_type,
            )
        operations = message.include_cluster_authorized_operations
        return DescribeClusterResponse(
            cluster_id=self._cluster.cluster_id,
            controller_id=self._cluster.controller.node_id,
            brokers=[
                DescribeClusterBroker(broker.node_id, broker.host, broker.port)
                for broker in self._cluster.live_brokers()
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if operations else NOT_ASKED,
        )
