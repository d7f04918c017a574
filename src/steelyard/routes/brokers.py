"""The brokers of a cluster that have a Kafka listener, as nameservers know them."""

from __future__ import annotations

import msgspec


def brokers_namespace(cluster: str) -> str:
    """Return where nameservers keep the brokers of a cluster that have a Kafka listener."""
    return f"STEELYARD_KAFKA_BROKERS@{cluster}"


class BrokerEntry(msgspec.Struct, frozen=True):
    """What a broker says of itself: to the nameservers, as JSON, and to other brokers.

    `address`: of its Kafka listener; `remoting`: of its RocketMQ listener.
    """

    name: str
    node_id: int
    address: str
    remoting: str

    def __post_init__(self) -> None:
        if not 0 <= self.node_id < 2**31:
            raise ValueError(f"{self.node_id} is not a node id")
        for address in (self.address, self.remoting):
            host, _, port = address.rpartition(":")
            if not host or not (port.isascii() and port.isdigit() and len(port) <= 5):
                raise ValueError(f"{address[:100]!r} is not an address")
