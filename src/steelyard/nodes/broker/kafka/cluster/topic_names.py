"""What is wrong with the name of a topic, in Kafka's words.

Source: clients/common/internals/Topic.java, ReplicationControlManager.validateNewTopicNames.
"""

from __future__ import annotations

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.topics import is_kafka_name

CHARACTERS_MAX = 249


def name_fault(cluster: Cluster, name: str) -> str | None:
    """None for a name that a new topic may have."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > CHARACTERS_MAX:
        return (
            f"Topic name is invalid: the length of '{name[:300]}' is longer than the max allowed"
            f" length {CHARACTERS_MAX}"
        )
    if not is_kafka_name(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than"
            " ASCII alphanumerics, '.', '_' and '-'"
        )
    if cluster.is_reserved(name):
        return f"Topic '{name}' is one of the system's own."
    return _collision(cluster, name)


def _collision(cluster: Cluster, name: str) -> str | None:
    """A `.` and a `_` in the same place make two names one in Kafka's metrics, so both cannot be."""
    if "." not in name and "_" not in name:
        return None
    plain = name.replace(".", "_")
    for other in cluster.names():
        if other != name and other.replace(".", "_") == plain:
            return f"Topic '{name}' collides with existing topic: {other}"
    return None
