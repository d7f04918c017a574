"""What the parts of a consumer share: settings, calls to brokers, and their purposes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from steelyard.config import ConsumerConfig, LitePullConfig
from steelyard.errors import ConfigError
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.client_instance import ClientInstance, HeartbeatSent, Unregistered
from steelyard.nodes.route_cache import RouteAsked, RouteCache
from steelyard.nodes.seam import Address, Effect
from steelyard.types import MessageModel, MessageQueue, Random
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.acl import signer_of
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.names import retry_topic

IN_FLIGHT_MAX = 1 << 20
"""Far above one pull per queue: queues and listener threads limit what is in flight."""


class MembersAsked(msgspec.Struct, frozen=True):
    """Purpose: the member list (38) for one topic, of rebalance number `run`."""

    topic: str
    run: int


class OffsetAsked(msgspec.Struct, frozen=True):
    """Purpose: the group's committed offset of a queue (14)."""

    queue: MessageQueue
    epoch: int


class StartAsked(msgspec.Struct, frozen=True):
    """Purpose: where to start without a committed offset (30, 29)."""

    queue: MessageQueue
    epoch: int


class PullSent(msgspec.Struct, frozen=True):
    queue: MessageQueue
    epoch: int
    offset: int


class Handed(NamedTuple):
    """What the listener was passed of a queue, for the ledger of our brokers.

    `offset`: the one after the last message; `ms`: the time since then, None if there was none.
    """

    offset: int
    ms: int | None


class LastCommitSent(msgspec.Struct, frozen=True):
    """Purpose: the commit that ends a holding (15); once answered, the queue's lock is released."""

    queue: MessageQueue
    epoch: int
    handed: Handed


class LocksAsked(msgspec.Struct, frozen=True):
    """Purpose: to lock these queues or renew their locks (41), sent at `at`."""

    address: Address
    queues: tuple[MessageQueue, ...]
    at: int


class LocksLetGo(msgspec.Struct, frozen=True):
    """Purpose: to unlock these queues (42): our own, or those of a departed `client_id`."""

    address: Address
    client_id: str
    queues: tuple[MessageQueue, ...]


class PresentAsked(msgspec.Struct, frozen=True):
    """Purpose: the members known to the broker that refuses a lock (38)."""

    address: Address


class ConditionAsked(msgspec.Struct, frozen=True):
    """Purpose: whether the broker can filter this topic as subscribed (46)."""

    topic: str
    address: Address


class SentBack(msgspec.Struct, frozen=True):
    """Purpose: to send a failed message back (36 or 310), at `position` of return `number`."""

    number: int
    position: int


class OffsetTold(msgspec.Struct, frozen=True):
    """Purpose: a commit (15) for which the application waits, with others of call `call_id`."""

    queue: MessageQueue
    epoch: int
    call_id: int


class RangeAsked(msgspec.Struct, frozen=True):
    """Purpose: the first offset of a queue (31), or the one after its last (30), for a seek."""

    call_id: int
    lowest: bool


class QuestionSent(msgspec.Struct, frozen=True):
    """Purpose: a call of the application that one request answers."""

    call_id: int


Purpose = (
    PullSent
    | RouteAsked
    | ConditionAsked
    | HeartbeatSent
    | Unregistered
    | MembersAsked
    | OffsetAsked
    | StartAsked
    | LastCommitSent
    | LocksAsked
    | LocksLetGo
    | PresentAsked
    | SentBack
    | OffsetTold
    | RangeAsked
    | QuestionSent
)


class Peers:
    """Nameservers and brokers as one consumer sees them."""

    def __init__(self, config: ConsumerConfig, rng: Random) -> None:
        if not config.group:
            raise ConfigError("a consumer needs a group")
        if not config.client_id:
            raise ConfigError("a consumer needs a client_id, unique in its group")
        self.config = config
        sends_back = config.message_model is MessageModel.CLUSTERING and not isinstance(
            config, LitePullConfig
        )
        self.retry_topic = retry_topic(config.group) if sends_back else ""
        """Topic from which failed messages return; empty if failed messages are not sent back."""
        self.calls: Calls[Purpose] = Calls(in_flight_max=IN_FLIGHT_MAX, signer=signer_of(config))
        self.routes = RouteCache(config.nameservers, rng)
        unregister = headers.UnregisterClientRequestHeader(
            client_id=config.client_id, consumer_group=config.group
        )
        self.client = ClientInstance(config, self.calls, self.routes, unregister, replicas=True)
        self._ticket = 0

    def ticket(self) -> int:
        """Return a number, unique in this node, for a delivery or a message sent back."""
        self._ticket += 1
        return self._ticket

    def address(self, queue: MessageQueue) -> Address | None:
        """Return the broker to read the queue from, or None while it is not in the routes."""
        route = self.routes.route(queue.topic)
        return None if route is None else route.readers.get(queue.broker_name)

    def master(self, queue: MessageQueue) -> Address | None:
        """Return the broker with the queue's lock, or None while the routes have no master."""
        route = self.routes.route(queue.topic)
        return None if route is None else route.masters.get(queue.broker_name)

    def ask(
        self,
        address: Address,
        code: RequestCode,
        header: headers.Header,
        purpose: Purpose,
        now: int,
        effects: list[Effect],
        timeout_ms: int | None = None,
    ) -> None:
        """Send a request without a body; the node receives the outcome under `purpose`."""
        command = Command(code=code, ext=headers.write(header))
        self.call(address, command, purpose, now, effects, timeout_ms)

    def call(
        self,
        address: Address,
        command: Command,
        purpose: Purpose,
        now: int,
        effects: list[Effect],
        timeout_ms: int | None = None,
    ) -> None:
        if timeout_ms is None:
            timeout_ms = self.config.call_timeout_ms
        self.calls.call(address, command, purpose, now, timeout_ms, effects)
