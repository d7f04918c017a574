"""Checks the names of topics, with Kafka's error texts.

Source: clients/common/internals/Topic.java, ReplicationControlManager.validateNewTopicNames.
"""

from __future__ import annotations

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.topics import is_kafka_name

CHARACTERS_MAX = 249


def name_fault(cluster: Cluster, name: str) -> str | None:
    """Return why a new topic cannot have this name; None if it can."""
    fault = form_fault(name)
    if fault is not None:
        return fault
    if cluster.is_reserved(name):
        return f"Topic '{name}' is one of the system's own."
    return _collision(cluster, name)


def form_fault(name: str) -> str | None:
    """Return why no topic can have this name; None if one can."""
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
    return None


def _collision(cluster: Cluster, name: str) -> str | None:
    """Return a conflict with an existing name: `.` and `_` are the same in Kafka's metrics."""
    if "." not in name and "_" not in name:
        return None
    plain = name.replace(".", "_")
    for other in cluster.names():
        if other != name and other.replace(".", "_") == plain:
            return f"Topic '{name}' collides with existing topic: {other}"
    return None
