"""Topics, made by librdkafka."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.peers.console.serving import Served
from tests.waiting import until


def create_topic(cluster: Served, topic: str, partitions: int) -> None:
    """Make a topic; brokers that have just started may not be ready for it yet."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def created() -> bool:
        try:
            client.create_topics([NewTopic(topic, partitions)], request_timeout=5)[topic].result()
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    until(created, f"topic {topic}")
