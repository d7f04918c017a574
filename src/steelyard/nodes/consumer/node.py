"""A push consumer (concurrent): joins a group, holds its share of the queues, feeds the listener.

From the start: routes of all topics and of the group's retry topic (105) → heartbeats to every broker
in them (34) → the first rebalance (38) → per queue: where to start (14, 30 or 29) → pulls (11). The
parts and what they decide: `membership` (who knows us), `balance` (what to hold), `holdings` (where to
start, commits), `pulling` (the pull loops), `delivery` (the listener). This module only passes events on.

A rebalance runs at the start, on a notification (40), when a route changed, when a broker knows this
member again, and every `rebalance_interval_ms`, lest a notification was lost.

`Stop`: no more pulling and handing; wait, at most `stop_timeout_ms`, for what the listener has; commit
(15); unregister from every broker (35); answer. After that nothing is sent any more.
"""

from __future__ import annotations

from typing import assert_never

from steelyard.allocate import registry
from steelyard.allocate.plan import Strategy
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ProtocolError, RemotingError
from steelyard.groups.ownership import State, diff
from steelyard.groups.rebalancer import Decision
from steelyard.nodes.calls import CALLS_TIMER, Outcome
from steelyard.nodes.consumer.balance import REBALANCE_TIMER, Balance
from steelyard.nodes.consumer.concurrent import ConcurrentDelivery
from steelyard.nodes.consumer.contract import ConsumeBatch, ConsumerState, Describe, Stop
from steelyard.nodes.consumer.delivery import Delivery, DeliveryTimer
from steelyard.nodes.consumer.holdings import Held, Holdings, LookAgain
from steelyard.nodes.consumer.membership import Membership, subscriptions_of
from steelyard.nodes.consumer.peers import (
    HeartbeatSent,
    MembersAsked,
    OffsetAsked,
    Peers,
    PullSent,
    Purpose,
    SentBack,
    StartAsked,
    Unregistered,
)
from steelyard.nodes.consumer.pulling import Pulling
from steelyard.nodes.route_cache import RouteAsked, RoutePace
from steelyard.nodes.seam import (
    Address,
    Answer,
    Asked,
    Closed,
    Due,
    Effect,
    Event,
    Flushed,
    Handled,
    Link,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
    Tell,
)
from steelyard.types import Random
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway, is_response

__all__ = ["ConsumeBatch", "ConsumerNode", "ConsumerState", "Describe", "Stop"]

ROUTE_TIMER = "routes"
HEARTBEAT_TIMER = "heartbeats"
COMMIT_TIMER = "commits"
STOP_TIMER = "stop"


class ConsumerNode:
    """See the module's text. `allocate`: a strategy in place of the one that `config.strategy` names."""

    def __init__(
        self, config: ConsumerConfig, rng: Random, allocate: Strategy | None = None
    ) -> None:
        self._config = config
        self._peers = Peers(config, rng)
        self._topics = [wanted.topic for wanted in config.subscriptions] + [self._peers.retry_topic]
        subscriptions_of(config, self._peers.retry_topic, version=0)  # a wrong one is told at once
        self._pace = RoutePace(config.route_poll_ms)
        self._membership = Membership(self._peers)
        strategy = registry.strategy(config.strategy) if allocate is None else allocate
        self._balance = Balance(self._peers, self._topics, strategy, rng)
        self._holdings = Holdings(self._peers)
        self._pulling = Pulling(self._peers, self._holdings, self._membership)
        self._delivery: Delivery = ConcurrentDelivery(self._peers)
        self._stop: int | None = None
        self._left = False
        self._stopped = False

    def start(self, now: int) -> list[Effect]:
        subscriptions = subscriptions_of(self._config, self._peers.retry_topic, now)
        self._membership.begin(subscriptions.values())
        self._pulling.begin(subscriptions)
        effects: list[Effect] = [
            SetTimer(ROUTE_TIMER, self._pace.next(now)),
            SetTimer(HEARTBEAT_TIMER, now + self._config.heartbeat_interval_ms),
            SetTimer(COMMIT_TIMER, now + self._config.commit_interval_ms),
        ]
        for topic in self._topics:
            effects += self._peers.ask_routes(self._peers.routes.want(topic), now)
        return effects

    def handle(self, event: Event, now: int) -> list[Effect]:
        match event:
            case Received(link=link, message=Command() as command):
                if is_response(command):
                    outcome = self._peers.calls.replied(command)
                    return [] if outcome is None else self._settle(outcome, now)
                return self._requested(link, command, now)
            case Handled():
                effects = self._delivery.handled(event, now)
                return effects if self._stop is None else effects + self._drained(now)
            case Due(key=key):
                return self._due(key, now)
            case Asked():
                return self._asked(event, now)
            case Opened(dialed=True):
                return self._opened(event, now)
            case Refused(address=address):
                effects = self._settle_all(self._peers.calls.refused(event), now)
                return effects + self._doubt(address, now)
            case Closed():
                return self._closed(event, now)
            case Opened() | Received() | Flushed():
                return []
            case _:
                assert_never(event)

    # -- answers -----------------------------------------------------------------------------------

    def _settle_all(self, outcomes: list[Outcome[Purpose]], now: int) -> list[Effect]:
        return [effect for outcome in outcomes for effect in self._settle(outcome, now)]

    def _settle(self, outcome: Outcome[Purpose], now: int) -> list[Effect]:
        purpose, reply = outcome.purpose, outcome.reply
        match purpose:
            case PullSent():
                held, effects = self._pulling.answered(purpose, outcome.address, reply, now)
                if held is None:
                    return effects
                return self._delivery.offer(held, now) + effects
            case RouteAsked():
                return self._route_answered(purpose, reply, now)
            case HeartbeatSent(address=address):
                fresh, effects = self._membership.greeted(address, reply)
                if fresh and self._peers.routes.route(self._peers.retry_topic) is None:
                    # A broker makes the retry topic of a new group at its first heartbeat.
                    effects += self._poll_soon(now)
                return effects + self._ready(now, fresh)
            case MembersAsked():
                self._balance.answered(purpose, reply)
                return self._rebalance(now)
            case OffsetAsked():
                return self._started(*self._holdings.offset_answered(purpose, reply, now), now)
            case StartAsked():
                return self._started(*self._holdings.start_answered(purpose, reply, now), now)
            case SentBack():
                effects = self._delivery.sent_back(purpose, reply, now)
                return effects if self._stop is None else effects + self._drained(now)
            case Unregistered(address=address):
                self._membership.left(address)
                return self._finish()
            case _:
                assert_never(purpose)

    def _started(self, held: Held | None, effects: list[Effect], now: int) -> list[Effect]:
        return effects if held is None else effects + self._pulling.look(held, now)

    def _route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        news = self._peers.routes.answered(asked, reply)
        effects: list[Effect] = [Tell("WARNING", news.complaint)] if news.complaint else []
        effects += self._peers.ask_routes(news.again, now)
        if self._stop is not None or not news.done:
            return effects
        strangers = self._membership.strangers(self._peers.routes.readers())
        effects += self._membership.greet(strangers, now)
        return effects + self._ready(now, news.changed)

    def _ready(self, now: int, news: bool) -> list[Effect]:
        """A route or a heartbeat was answered. The first rebalance waits until all have been."""
        if self._stop is not None:
            return []
        if self._balance.begun:
            return self._balance.wake(now) if news else []
        if self._peers.routes.asking or self._membership.pending:
            return []
        return self._balance.wake(now)

    # -- rebalance ---------------------------------------------------------------------------------

    def _rebalance(self, now: int) -> list[Effect]:
        """Once all member lists are in: decide, give up, take."""
        if self._stop is not None:
            return []
        decision = self._balance.decision(self._holdings.queues(), now)
        if decision is None:
            return []
        change = diff(self._holdings.queues(), decision.target, self._holdings.stale(now))
        effects = self._holdings.change(change, now)
        effects.append(SetTimer(REBALANCE_TIMER, decision.next_at))
        if change.release or change.acquire:
            text = (
                f"group {self._config.group}: {self._config.client_id} holds"
                f" {len(decision.target)} queues, gave up {len(change.release)},"
                f" took {len(change.acquire)}"
            )
            effects.append(Tell("INFO", text))
        return effects + self._introduce(decision, now)

    def _introduce(self, decision: Decision, now: int) -> list[Effect]:
        """A broker that does not list this member has forgotten it: say again who is here."""
        if not decision.absent:
            return []
        return self._membership.greet(self._peers.routes.readers(), now)

    # -- events ------------------------------------------------------------------------------------

    def _requested(self, link: Link, command: Command, now: int) -> list[Effect]:
        """A broker asks or tells."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            try:
                header = headers.read(headers.ConsumerGroupHeader, command.ext)
            except ProtocolError as error:
                return [Tell("WARNING", f"notification without a group: {error}")]
            if header.consumer_group != self._config.group or self._stop is not None:
                return []
            return self._balance.wake(now)
        if is_oneway(command):
            return []
        remark = f" request type {command.code} not supported"
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        reply = Command(code=code, opaque=command.opaque, flag=RESPONSE_FLAG, remark=remark)
        return [Send(link, reply)]

    def _opened(self, event: Opened, now: int) -> list[Effect]:
        """The heartbeat goes first, so that the broker knows who asks."""
        waiting = self._peers.calls.opened(event)
        if self._stop is not None or event.address not in self._peers.routes.readers():
            return waiting
        strangers = self._membership.strangers([event.address])
        return self._membership.greet(strangers, now) + waiting

    def _closed(self, event: Closed, now: int) -> list[Effect]:
        address = self._peers.calls.address_of(event.link)
        if address is None:
            return []
        self._membership.lost(address)
        effects = self._settle_all(self._peers.calls.closed(event), now)
        return effects + self._doubt(address, now)

    def _doubt(self, address: Address, now: int) -> list[Effect]:
        """A broker may have stopped: learn soon whether it is still in the routes."""
        if self._stop is not None or address not in self._peers.routes.readers():
            return []
        return self._poll_soon(now)

    def _poll_soon(self, now: int) -> list[Effect]:
        soon = self._pace.hurry(now)
        return [] if soon is None else [SetTimer(ROUTE_TIMER, soon)]

    def _due(self, key: object, now: int) -> list[Effect]:
        if key == CALLS_TIMER:
            outcomes, effects = self._peers.calls.expire(now)
            return effects + self._settle_all(outcomes, now)
        if self._stop is not None:
            return self._leave(now) if key == STOP_TIMER else []
        match key:
            case LookAgain():
                held = self._holdings.find(key.queue, key.epoch)
                if held is None:
                    return []
                if held.state is State.ACQUIRING:
                    return self._holdings.acquire(held, now)
                return self._pulling.look(held, now)
            case DeliveryTimer():
                return self._delivery.due(key, now)
            case _ if key == REBALANCE_TIMER:
                return self._balance.begin(now) + self._rebalance(now)
            case _ if key == ROUTE_TIMER:
                again = SetTimer(ROUTE_TIMER, self._pace.next(now))
                return [again, *self._peers.ask_routes(self._peers.routes.refresh(), now)]
            case _ if key == HEARTBEAT_TIMER:
                again = SetTimer(HEARTBEAT_TIMER, now + self._config.heartbeat_interval_ms)
                return [again, *self._membership.greet(self._peers.routes.readers(), now)]
            case _:
                assert key == COMMIT_TIMER, f"timer {key!r} is not ours"
                again = SetTimer(COMMIT_TIMER, now + self._config.commit_interval_ms)
                return [again, *self._holdings.commit_all()]

    # -- calls of the application ------------------------------------------------------------------

    def _asked(self, event: Asked, now: int) -> list[Effect]:
        match event.call:
            case Describe():
                return [Answer(event.call_id, self._describe())]
            case Stop() if self._stop is None:
                self._stop = event.call_id
                self._holdings.drain(now)
                timer = SetTimer(STOP_TIMER, now + self._config.stop_timeout_ms)
                return [timer, *self._drained(now)]
            case Stop():
                return [Answer(event.call_id, ClosedError("the consumer was closed"))]
            case call:
                raise AssertionError(f"a consumer does not know the call {call!r}")

    def _describe(self) -> ConsumerState:
        held = self._holdings.all()
        return ConsumerState(
            client_id=self._config.client_id,
            members=dict(self._balance.members),
            held=tuple(sorted(self._holdings.queues())),
            offsets={
                h.queue: h.process.committable for h in held if h.state is not State.ACQUIRING
            },
        )

    # -- the end -----------------------------------------------------------------------------------

    def _drained(self, now: int) -> list[Effect]:
        """While stopping: leave once the listener has nothing left."""
        busy = any(held.handed for held in self._holdings.all() if held.state is State.DRAINING)
        return [] if busy else self._leave(now)

    def _leave(self, now: int) -> list[Effect]:
        if self._left:
            return []
        self._left = True
        effects: list[Effect] = []
        for held in self._holdings.all():
            effects += self._holdings.release(held, now)
        return effects + self._membership.leave(now) + self._finish()

    def _finish(self) -> list[Effect]:
        if self._stop is None or self._stopped or not self._left or self._membership.leaving:
            return []
        self._stopped = True
        return [Answer(self._stop, None)]

    def check(self) -> None:
        """Assert what must hold of all parts after each event."""
        self._peers.calls.check()
        self._peers.routes.check()
        self._balance.check()
        self._holdings.check()
        self._delivery.check()
        assert not self._left or not self._holdings.queues()
        assert not self._stopped or self._left
