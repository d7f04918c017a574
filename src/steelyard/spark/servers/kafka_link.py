"""Connections of Spark's workers to the Kafka listeners of brokers."""

from __future__ import annotations

from steelyard.driver.blocking_links import KafkaLink
from steelyard.spark.options.access import Access
from steelyard.spark.servers.link import connect

CLIENT_ID = "steelyard-spark"


def kafka_link(address: str, timeout_ms: int, access: Access) -> KafkaLink:
    """Return a new connection, on which `access.login` has logged in.

    Raises as `link.connect`, and AuthenticationError if the login is refused.
    """
    link = KafkaLink(address, connect(address, timeout_ms, access), CLIENT_ID)
    if access.login is not None:
        link.log_in(access.login)
    return link
