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
from steelyard.nodes.calls.remoting import Calls, Outcome
from steelyard.nodes.route_cache import RouteAsked, RouteCache, RouteNews, RoutePace, question
from steelyard.nodes.seam import Address, Closed, Effect, Opened, Refused, SetTimer
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

    def start(self, now: int) -> list[Effect]:
        return [
            SetTimer(ROUTE_TIMER, self._pace.next(now)),
            SetTimer(HEARTBEAT_TIMER, now + self.config.heartbeat_interval_ms),
        ]

    # -- routes ------------------------------------------------------------------------------------

    def ask_routes(self, asked: Iterable[RouteAsked], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for item in asked:
            timeout_ms = self.config.call_timeout_ms
            effects += self.calls.call(item.nameserver, question(item), item, now, timeout_ms)
        return effects

    def route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int
    ) -> tuple[RouteNews, list[Effect]]:
        """Take an answer in. Whoever waits for the route of `news.done` goes on after the effects."""
        news = self.routes.answered(asked, reply, now)
        effects = self.ask_routes(news.again, now)
        effects += news.tell
        if news.done:
            strangers = [a for a in self.routes.masters() if a not in self._greeted]
            effects += self._greet(strangers, now)
        return news, effects

    def routes_due(self, now: int) -> list[Effect]:
        if self._leaving:
            return []
        again = SetTimer(ROUTE_TIMER, self._pace.next(now))
        return [again, *self.ask_routes(self.routes.refresh(), now)]

    def _doubt(self, address: Address, now: int) -> list[Effect]:
        """A broker may have stopped: learn soon whether it is still in the routes."""
        if self._leaving or address not in self.routes.masters():
            return []
        soon = self._pace.hurry(now)
        return [] if soon is None else [SetTimer(ROUTE_TIMER, soon)]

    # -- links -------------------------------------------------------------------------------------

    def opened(self, event: Opened, now: int) -> list[Effect]:
        """A dialed link is there. A broker is greeted before it gets what waited for the link."""
        effects = self.calls.opened(event)
        if event.address in self._greeted or event.address not in self.routes.masters():
            return effects
        return self._greet([event.address], now) + effects

    def refused(self, event: Refused, now: int) -> tuple[list[Outcome[Purpose]], list[Effect]]:
        """Nobody at the address."""
        return self.calls.refused(event), self._doubt(event.address, now)

    def closed(self, event: Closed, now: int) -> tuple[list[Outcome[Purpose]], list[Effect]]:
        """A link died; a broker at its other end has forgotten this producer."""
        address = self.calls.address_of(event.link)
        if address is None:
            return [], []
        self._greeted.pop(address, None)
        return self.calls.closed(event), self._doubt(address, now)

    # -- heartbeats and unregistering ----------------------------------------------------------------

    def heartbeats_due(self, now: int) -> list[Effect]:
        if self._leaving:
            return []
        again = SetTimer(HEARTBEAT_TIMER, now + self.config.heartbeat_interval_ms)
        return [again, *self._greet(self.routes.masters(), now)]

    def _greet(self, addresses: list[Address], now: int) -> list[Effect]:
        """Heartbeats, by which a broker knows who sends to it."""
        if self._leaving or not addresses:
            return []
        body = HeartbeatData(
            self.config.client_id, producer_data_set=(ProducerData(self.config.group),)
        )
        command = Command(code=RequestCode.HEART_BEAT, body=fastjson.write(body))
        effects: list[Effect] = []
        for address in addresses:
            self._greeted[address] = None
            purpose = HeartbeatSent(address)
            timeout_ms = self.config.call_timeout_ms
            effects += self.calls.call(address, command, purpose, now, timeout_ms)
        return effects

    def heartbeat_answered(self, address: Address, reply: Command | RemotingError) -> None:
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            self._greeted.pop(address, None)

    def leave(self) -> None:
        """No more heartbeats, and no more interest in news."""
        self._leaving = True

    def say_goodbye(self, now: int) -> list[Effect]:
        """Unregister from every broker that knows this producer; done once `gone`."""
        header = headers.UnregisterClientRequestHeader(
            client_id=self.config.client_id, producer_group=self.config.group
        )
        command = Command(code=RequestCode.UNREGISTER_CLIENT, ext=headers.write(header))
        effects: list[Effect] = []
        for address in list(self._greeted):
            self._goodbyes.add(address)
            purpose = Unregistered(address)
            timeout_ms = self.config.call_timeout_ms
            effects += self.calls.call(address, command, purpose, now, timeout_ms)
        self._greeted.clear()
        return effects

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
