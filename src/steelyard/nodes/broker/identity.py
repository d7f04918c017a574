"""The broker's identity in its data directory, and the cluster id for Kafka's clients."""

from __future__ import annotations

import base64
import hashlib

from steelyard.config import BrokerConfig
from steelyard.store.identity import Identity


def identity_of(config: BrokerConfig) -> Identity:
    """Return what the broker's data directory must say, or will say from now on."""
    node_id = -1 if config.kafka is None else config.kafka.node_id
    return Identity(config.cluster, cluster_id(config.cluster), config.name, node_id)


def cluster_id(cluster: str) -> str:
    """Return an id of 22 characters, like Kafka's Uuid; it depends only on the cluster's name."""
    digest = hashlib.sha256(cluster.encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
