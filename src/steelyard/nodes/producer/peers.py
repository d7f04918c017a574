"""Nameservers and brokers as one producer sees them: its calls, its routes, and who knows of it.

A broker that a producer sends to is told who that is, by a heartbeat at once and every 30 s: so that it can ask
the group's members for the state of a transaction, and pass replies on to them. Unregistering (35) ends it.
Source: client/impl/factory/MQClientInstance.java.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.config import ProducerConfig
from steelyard.errors import RemotingError
from steelyard.nodes.calls.remoting import Calls
from steelyard.nodes.route_cache import RouteAsked, RouteCache, RouteNews, RoutePace, question
from steelyard.nodes.seam import Address, Effect, Opened, SetTimer
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.acl import signer_of
from steelyard.wire.remoting.bodies import HeartbeatData, ProducerData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

ROUTE_TIMER = "routes"
HEARTBEAT_TIMER = "heartbeats"

CALLS_EXTRA = 10_000
"""Calls besides those that `in_flight_max` limits: for routes, heartbeats, unregistering, questions to lost brokers."""


class SendTried(msgspec.Struct, frozen=True):
    """An attempt of the send `call_id`, made at `at`."""

    call_id: int
    queue: MessageQueue
    at: int


class HeartbeatSent(msgspec.Struct, frozen=True):
    address: Address


class Unregistered(msgspec.Struct, frozen=True):
    address: Address


class Detected(msgspec.Struct, frozen=True):
    """A broker that failed was asked something, to see whether it answers."""

    broker_name: str


Purpose = RouteAsked | SendTried | HeartbeatSent | Unregistered | Detected


class Peers:
    """See the module's text."""

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
        self._pace = RoutePace(config.route_poll_ms)
        self._greeted: dict[Address, None] = {}
        self._goodbyes: set[Address] = set()
        self._leaving = False

    def start(self, now: int, effects: list[Effect]) -> None:
        effects += [
            SetTimer(ROUTE_TIMER, self._pace.next(now)),
            SetTimer(HEARTBEAT_TIMER, now + self.config.heartbeat_interval_ms),
        ]

    # -- routes ------------------------------------------------------------------------------------

    def ask_routes(self, asked: Iterable[RouteAsked], now: int, effects: list[Effect]) -> None:
        for item in asked:
            timeout_ms = self.config.call_timeout_ms
            self.calls.call(item.nameserver, question(item), item, now, timeout_ms, effects)

    def route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> RouteNews:
        """Take an answer in. Whoever waits for the route of `news.done` goes on after the effects."""
        news = self.routes.answered(asked, reply, now)
        self.ask_routes(news.again, now, effects)
        effects += news.tell
        if news.done:
            strangers = [a for a in self.routes.masters() if a not in self._greeted]
            self._greet(strangers, now, effects)
        return news

    def routes_due(self, now: int, effects: list[Effect]) -> None:
        if self._leaving:
            return
        effects.append(SetTimer(ROUTE_TIMER, self._pace.next(now)))
        self.ask_routes(self.routes.refresh(), now, effects)

    def doubt(self, address: Address, now: int, effects: list[Effect]) -> None:
        """A broker may have stopped: learn soon whether it is still in the routes."""
        if self._leaving or address not in self.routes.masters():
            return
        soon = self._pace.hurry(now)
        if soon is not None:
            effects.append(SetTimer(ROUTE_TIMER, soon))

    # -- links -------------------------------------------------------------------------------------

    def opened(self, event: Opened, now: int, effects: list[Effect]) -> None:
        """A dialed link is there. A broker is greeted before it gets what waited for the link."""
        waiting: list[Effect] = []
        self.calls.opened(event, waiting)
        if event.address not in self._greeted and event.address in self.routes.masters():
            self._greet([event.address], now, effects)
        effects += waiting

    def lost(self, address: Address) -> None:
        """The link died: a broker at its other end has forgotten this producer."""
        self._greeted.pop(address, None)

    # -- heartbeats and unregistering ----------------------------------------------------------------

    def heartbeats_due(self, now: int, effects: list[Effect]) -> None:
        if self._leaving:
            return
        effects.append(SetTimer(HEARTBEAT_TIMER, now + self.config.heartbeat_interval_ms))
        self._greet(self.routes.masters(), now, effects)

    def _greet(self, addresses: list[Address], now: int, effects: list[Effect]) -> None:
        """Heartbeats, by which a broker knows who sends to it."""
        if self._leaving or not addresses:
            return
        body = HeartbeatData(
            self.config.client_id, producer_data_set=(ProducerData(self.config.group),)
        )
        command = Command(code=RequestCode.HEART_BEAT, body=fastjson.write(body))
        for address in addresses:
            self._greeted[address] = None
            purpose = HeartbeatSent(address)
            timeout_ms = self.config.call_timeout_ms
            self.calls.call(address, command, purpose, now, timeout_ms, effects)

    def heartbeat_answered(self, address: Address, reply: Command | RemotingError) -> None:
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            self._greeted.pop(address, None)

    def leave(self) -> None:
        """No more heartbeats, and no more interest in news."""
        self._leaving = True

    def say_goodbye(self, now: int, effects: list[Effect]) -> None:
        """Unregister from every broker that knows this producer; done once `gone`."""
        header = headers.UnregisterClientRequestHeader(
            client_id=self.config.client_id, producer_group=self.config.group
        )
        command = Command(code=RequestCode.UNREGISTER_CLIENT, ext=headers.write(header))
        for address in list(self._greeted):
            self._goodbyes.add(address)
            purpose = Unregistered(address)
            timeout_ms = self.config.call_timeout_ms
            self.calls.call(address, command, purpose, now, timeout_ms, effects)
        self._greeted.clear()

    def goodbye_answered(self, address: Address) -> None:
        self._goodbyes.discard(address)

    @property
    def gone(self) -> bool:
        """Every broker has answered that we unregister, or never will."""
        return not self._goodbyes and not self._greeted

    def check(self) -> None:
        """Assert that calls and routes are in order."""
        self.calls.check()
        self.routes.check()
