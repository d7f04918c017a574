"""What the parts of a consumer share: its settings, its calls to brokers, and what each call is for."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.config import ConsumerConfig
from steelyard.errors import ConfigError
from steelyard.nodes.calls import Calls
from steelyard.nodes.route_cache import RouteAsked, RouteCache, question
from steelyard.nodes.seam import Address, Effect
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

RETRY_PREFIX = "%RETRY%"

IN_FLIGHT_MAX = 1 << 20
"""Far above one pull per queue: what is in flight is limited by queues and listener threads."""


class HeartbeatSent(msgspec.Struct, frozen=True):
    address: Address


class Unregistered(msgspec.Struct, frozen=True):
    address: Address


class MembersAsked(msgspec.Struct, frozen=True):
    """The member list (38) for one topic of rebalance number `run`."""

    topic: str
    run: int


class OffsetAsked(msgspec.Struct, frozen=True):
    """The group's committed offset of a queue (14)."""

    queue: MessageQueue
    epoch: int


class StartAsked(msgspec.Struct, frozen=True):
    """Where to start without a committed offset (30, 29)."""

    queue: MessageQueue
    epoch: int


class PullSent(msgspec.Struct, frozen=True):
    queue: MessageQueue
    epoch: int
    offset: int


class SentBack(msgspec.Struct, frozen=True):
    """A failed message goes back to its broker (36): the one at `position` of return `number`."""

    number: int
    position: int


Purpose = (
    PullSent
    | RouteAsked
    | HeartbeatSent
    | Unregistered
    | MembersAsked
    | OffsetAsked
    | StartAsked
    | SentBack
)


class Peers:
    """Nameservers and brokers as one consumer sees them."""

    def __init__(self, config: ConsumerConfig, rng: Random) -> None:
        if not config.group:
            raise ConfigError("a consumer needs a group")
        if not config.client_id:
            raise ConfigError("a consumer needs a client_id, unique in its group")
        if not config.subscriptions:
            raise ConfigError("a consumer needs a subscription")
        self.config = config
        self.retry_topic = RETRY_PREFIX + config.group
        self.calls: Calls[Purpose] = Calls(in_flight_max=IN_FLIGHT_MAX)
        self.routes = RouteCache(config.nameservers, rng)

    def address(self, queue: MessageQueue) -> Address | None:
        """Where to read the queue from, None while its broker is not in the routes."""
        route = self.routes.route(queue.topic)
        return None if route is None else route.readers.get(queue.broker_name)

    def ask(
        self,
        address: Address,
        code: RequestCode,
        header: headers.Header,
        purpose: Purpose,
        now: int,
        timeout_ms: int | None = None,
    ) -> list[Effect]:
        """Send a request without a body; the outcome comes to the node under `purpose`."""
        command = Command(code=code, ext=headers.write(header))
        return self.call(address, command, purpose, now, timeout_ms)

    def call(
        self,
        address: Address,
        command: Command,
        purpose: Purpose,
        now: int,
        timeout_ms: int | None = None,
    ) -> list[Effect]:
        if timeout_ms is None:
            timeout_ms = self.config.call_timeout_ms
        return self.calls.call(address, command, purpose, now, timeout_ms)

    def ask_routes(self, asked: Iterable[RouteAsked], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for item in asked:
            effects += self.call(item.nameserver, question(item), item, now)
        return effects
