"""What the parts of a consumer share: its settings, its calls to brokers, and what each call is for."""

from __future__ import annotations

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
"""Far above one pull per queue: what is in flight is limited by queues and listener threads."""


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


class LastCommitSent(msgspec.Struct, frozen=True):
    """The commit that ends a holding (15): the queue's lock is let go once it is answered.

    `handed`: the offset behind the last message that the listener was handed, for our brokers' ledger.
    """

    queue: MessageQueue
    epoch: int
    handed: int


class LocksAsked(msgspec.Struct, frozen=True):
    """Lock or renew these queues (41), sent at `at`."""

    address: Address
    queues: tuple[MessageQueue, ...]
    at: int


class LocksLetGo(msgspec.Struct, frozen=True):
    """Unlock these queues (42): our own, or those of a `client_id` that has departed."""

    address: Address
    client_id: str
    queues: tuple[MessageQueue, ...]


class PresentAsked(msgspec.Struct, frozen=True):
    """Who of the group is known to the broker that refuses a lock (38)?"""

    address: Address


class ConditionAsked(msgspec.Struct, frozen=True):
    """Can the broker filter by the condition that this topic is subscribed by (46)?"""

    topic: str
    address: Address


class SentBack(msgspec.Struct, frozen=True):
    """A failed message goes back to its broker (36): the one at `position` of return `number`."""

    number: int
    position: int


class OffsetTold(msgspec.Struct, frozen=True):
    """A commit (15) that the application waits for, with others of call `call_id`."""

    queue: MessageQueue
    epoch: int
    call_id: int


class RangeAsked(msgspec.Struct, frozen=True):
    """One end of a queue, the first offset (31) or the one after the last (30), for seek `call_id`."""

    call_id: int
    lowest: bool


class QuestionSent(msgspec.Struct, frozen=True):
    """A call of the application that one request answers."""

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
        """Where messages that failed come from; empty for who sends none back."""
        self.calls: Calls[Purpose] = Calls(in_flight_max=IN_FLIGHT_MAX, signer=signer_of(config))
        self.routes = RouteCache(config.nameservers, rng)
        unregister = headers.UnregisterClientRequestHeader(
            client_id=config.client_id, consumer_group=config.group
        )
        self.client = ClientInstance(config, self.calls, self.routes, unregister, replicas=True)
        self._ticket = 0

    def ticket(self) -> int:
        """A number for what is handed to the application or sent back: unique in this node."""
        self._ticket += 1
        return self._ticket

    def address(self, queue: MessageQueue) -> Address | None:
        """Where to read the queue from, None while its broker is not in the routes."""
        route = self.routes.route(queue.topic)
        return None if route is None else route.readers.get(queue.broker_name)

    def master(self, queue: MessageQueue) -> Address | None:
        """Who has the queue's lock, None while there is no master in the routes."""
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
        """Send a request without a body; the outcome comes to the node under `purpose`."""
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
