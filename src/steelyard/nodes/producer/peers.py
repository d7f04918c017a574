"""State shared by a producer's parts: settings, calls to brokers, and their purposes.

Brokers know the group's members (`client_instance`), so that they can ask them for the state of a
transaction, and forward replies to them.
"""

from __future__ import annotations

import msgspec

from steelyard.config import ProducerConfig
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.client_instance import ClientInstance, HeartbeatSent, Unregistered
from steelyard.nodes.route_cache import RouteAsked, RouteCache
from steelyard.nodes.seam import Effect
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.acl import signer_of
from steelyard.wire.remoting.bodies import HeartbeatData, ProducerData

CALLS_EXTRA = 10_000
"""Calls not limited by `in_flight_max`: routes, heartbeats, unregistration, probes of brokers."""


class SendTried(msgspec.Struct, frozen=True):
    """An attempt of the send `call_id`, made at `at`."""

    call_id: int
    queue: MessageQueue
    at: int


class Detected(msgspec.Struct, frozen=True):
    """A request to a broker that failed, to see whether it responds."""

    broker_name: str


class Recalled(msgspec.Struct, frozen=True):
    """The request of the recall `call_id`."""

    call_id: int


Purpose = RouteAsked | SendTried | HeartbeatSent | Unregistered | Detected | Recalled


class Peers:
    """Nameservers and brokers as one producer sees them."""

    def __init__(self, config: ProducerConfig, rng: Random) -> None:
        self.config = config
        self.calls: Calls[Purpose] = Calls(
            in_flight_max=config.in_flight_max + CALLS_EXTRA, signer=signer_of(config)
        )
        self.routes = RouteCache(
            config.nameservers,
            rng,
            default_topic=config.default_topic,
            default_topic_queues=config.default_topic_queues,
        )
        unregister = headers.UnregisterClientRequestHeader(
            client_id=config.client_id, producer_group=config.group
        )
        self.client = ClientInstance(config, self.calls, self.routes, unregister, replicas=False)

    def start(self, now: int, effects: list[Effect]) -> None:
        producer = ProducerData(self.config.group)
        heartbeat = HeartbeatData(self.config.client_id, producer_data_set=(producer,))
        self.client.start(heartbeat, now, effects)

    def check(self) -> None:
        """Assert that calls and routes are in order."""
        self.calls.check()
        self.routes.check()
