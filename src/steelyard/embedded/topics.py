"""Topics of Kafka clients: those whose names RocketMQ does not allow."""

from __future__ import annotations

from steelyard.embedded.administrator import OperatorAccess
from steelyard.embedded.kafka_connection import KafkaConnection
from steelyard.errors import KafkaError
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import METADATA, MetadataRequest, MetadataResponse
from steelyard.wire.kafka.messages.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TIMEOUT_MS = 10_000
"""Time that the broker has."""


def create_kafka_topic(access: OperatorAccess, bootstrap: str, topic: str, queues: int) -> int:
    """Create a topic with `queues` partitions for each broker; return how many it has.

    Raises KafkaError if the topic exists or may not have this name.
    """
    with KafkaConnection(bootstrap.partition(",")[0], access) as link:
        cluster = link.call(METADATA, MetadataRequest(topics=()), MetadataResponse)
    (controller,) = (one for one in cluster.brokers if one.node_id == cluster.controller_id)
    count = queues * len(cluster.brokers)
    request = CreateTopicsRequest((CreatableTopic(topic, count, -1),), TIMEOUT_MS)
    with KafkaConnection(f"{controller.host}:{controller.port}", access) as link:
        (answer,) = link.call(CREATE_TOPICS, request, CreateTopicsResponse).topics
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(answer.error_code, f"topic {topic}: {answer.error_message}")
    return count
