"""The duties of every client besides its own work: following routes, and heartbeats to brokers.

- Routes are requested every `route_poll_ms`, and soon after a broker may have stopped
  (`RoutePace`).
- Heartbeats (34) go to all brokers in the routes every `heartbeat_interval_ms`, and at once to one
  that does not know the client. A broker forgets a client when its link closes, so the first
  request on a new link is a heartbeat.
- `leave` unregisters (35) from every broker that knows the client, but not while a heartbeat is in
  flight: Apache's brokers process the two request types in separate queues, and a heartbeat
  processed last would leave a stopped client in its group, with a share of the queues, for two
  minutes (BrokerController.registerProcessor).

Source: client/impl/factory/MQClientInstance.java `updateTopicRouteInfoFromNameServer`,
`sendHeartbeatToAllBroker`, `unregisterClient`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from steelyard.config import ClientConfig
from steelyard.errors import RemotingError
from steelyard.nodes.route_cache import RouteAsked, RouteCache, RouteNews, RoutePace, question
from steelyard.nodes.seam import Address, Effect, Link, Opened, Send, SetTimer
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import HeartbeatData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway

ROUTE_TIMER = "routes"
HEARTBEAT_TIMER = "heartbeats"


class HeartbeatSent(msgspec.Struct, frozen=True):
    address: Address


class Unregistered(msgspec.Struct, frozen=True):
    address: Address


class Caller(Protocol):
    """The `Calls` of any node that files requests under these purposes, among others."""

    def call(
        self,
        address: Address,
        request: Command,
        purpose: RouteAsked | HeartbeatSent | Unregistered,
        now: int,
        timeout_ms: int,
        effects: list[Effect],
    ) -> None: ...

    def opened(self, event: Opened, effects: list[Effect]) -> None: ...

    def address_of(self, link: Link) -> Address | None: ...


class ClientInstance:
    """Routes and heartbeats of one client. Call `start` before anything else.

    `replicas`: the client also talks to replicas where a master is missing. `unregister`: the
    request sent at the end.
    """

    def __init__(
        self,
        config: ClientConfig,
        calls: Caller,
        routes: RouteCache,
        unregister: headers.UnregisterClientRequestHeader,
        *,
        replicas: bool,
    ) -> None:
        self._config = config
        self._calls = calls
        self._routes = routes
        self._replicas = replicas
        self._pace = RoutePace(config.route_poll_ms)
        self._heartbeat: Command | None = None
        self._unregister = Command(
            code=RequestCode.UNREGISTER_CLIENT, ext=headers.write(unregister)
        )
        self._known: dict[Address, None] = {}
        self._pending: dict[Address, None] = {}
        self._leaving: dict[Address, None] = {}
        self._closing = False

    def start(self, heartbeat: HeartbeatData, now: int, effects: list[Effect]) -> None:
        """Start both timers."""
        self._heartbeat = Command(code=RequestCode.HEART_BEAT, body=fastjson.write(heartbeat))
        effects += [
            SetTimer(ROUTE_TIMER, self._pace.next(now)),
            SetTimer(HEARTBEAT_TIMER, now + self._config.heartbeat_interval_ms),
        ]

    def due(self, key: object, now: int, effects: list[Effect]) -> None:
        """Handle one of the two timers."""
        if key == ROUTE_TIMER:
            effects.append(SetTimer(ROUTE_TIMER, self._pace.next(now)))
            self.ask_routes(self._routes.refresh(), now, effects)
        else:
            assert key == HEARTBEAT_TIMER, f"timer {key!r} is not ours"
            effects.append(SetTimer(HEARTBEAT_TIMER, now + self._config.heartbeat_interval_ms))
            self.register(self.brokers(), now, effects)

    # -- routes ------------------------------------------------------------------------------------

    def brokers(self) -> list[Address]:
        """Return the brokers of all routes, sorted."""
        return self._routes.readers() if self._replicas else self._routes.masters()

    def ask_routes(self, asked: Iterable[RouteAsked], now: int, effects: list[Effect]) -> None:
        for item in asked:
            timeout_ms = self._config.call_timeout_ms
            self._calls.call(item.nameserver, question(item), item, now, timeout_ms, effects)

    def route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> RouteNews:
        """Take a response. After this, whatever waits for the route of `news.done` continues."""
        news = self._routes.answered(asked, reply, now, effects)
        self.ask_routes(news.again, now, effects)
        return news

    def poll_soon(self, now: int, effects: list[Effect]) -> None:
        """Request the routes soon, because they will change."""
        soon = self._pace.hurry(now)
        if soon is not None:
            effects.append(SetTimer(ROUTE_TIMER, soon))

    def doubt(self, address: Address | None, now: int, effects: list[Effect]) -> None:
        """Find out soon whether a broker that may have stopped is still in the routes."""
        if not self._closing and address in self.brokers():
            self.poll_soon(now, effects)

    # -- links -------------------------------------------------------------------------------------

    def opened(self, event: Opened, now: int, effects: list[Effect]) -> None:
        """Take a dialed link. The heartbeat goes first, so that the broker knows the client."""
        waiting: list[Effect] = []
        self._calls.opened(event, waiting)
        if event.address in self.brokers():
            self.register_at_strangers([event.address], now, effects)
        effects += waiting

    def lost(self, link: Link) -> Address | None:
        """Take a closing link: the broker has forgotten this client, or will.

        Returns its address, None for foreign links.
        """
        address = self._calls.address_of(link)
        if address is not None:
            self._known.pop(address, None)
        return address

    def refuse(self, link: Link, request: Command, effects: list[Effect]) -> None:
        """Refuse a broker's request that this client does not support."""
        if not is_oneway(request):
            remark = f" request type {request.code} not supported"
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            effects.append(Send(link, Command(code, request.opaque, RESPONSE_FLAG, remark=remark)))

    # -- heartbeats --------------------------------------------------------------------------------

    def register(self, addresses: Iterable[Address], now: int, effects: list[Effect]) -> None:
        """Send heartbeats to the brokers that have none in flight."""
        assert self._heartbeat is not None
        timeout_ms = self._config.call_timeout_ms
        for address in addresses:
            if address not in self._pending:
                self._pending[address] = None
                purpose = HeartbeatSent(address)
                self._calls.call(address, self._heartbeat, purpose, now, timeout_ms, effects)

    def register_at_strangers(
        self, addresses: Iterable[Address], now: int, effects: list[Effect]
    ) -> None:
        """Send heartbeats to brokers that do not know this client, unless one was just sent."""
        if not self._closing:
            self.register([a for a in addresses if a not in self._known], now, effects)

    def registered(
        self, address: Address, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> bool:
        """Take the outcome of a heartbeat. True: the broker did not know this client before."""
        del self._pending[address]
        if address in self._leaving:
            if isinstance(reply, RemotingError):
                self.left(address)
            else:
                self._leave(address, now, effects)
            return False
        if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
            self._known.pop(address, None)
            return False
        fresh = address not in self._known
        self._known[address] = None
        return fresh

    @property
    def pending(self) -> bool:
        """Return whether a heartbeat is in flight."""
        return bool(self._pending)

    def is_known(self) -> bool:
        """Return whether one of the brokers in the routes knows this client."""
        return any(address in self._known for address in self.brokers())

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop registering at brokers, because the client is about to stop."""
        self._closing = True

    def leave(self, now: int, effects: list[Effect]) -> None:
        """Unregister from every broker; done once `leaving` is false."""
        self._leaving = self._known | self._pending
        self._known = {}
        for address in self._leaving:
            if address not in self._pending:
                self._leave(address, now, effects)

    def _leave(self, address: Address, now: int, effects: list[Effect]) -> None:
        purpose, timeout_ms = Unregistered(address), self._config.call_timeout_ms
        self._calls.call(address, self._unregister, purpose, now, timeout_ms, effects)

    def left(self, address: Address) -> None:
        """Note that the broker has forgotten this client, or will never respond."""
        self._leaving.pop(address, None)

    @property
    def leaving(self) -> bool:
        """Return whether a broker has yet to respond to the unregistration."""
        return bool(self._leaving)
