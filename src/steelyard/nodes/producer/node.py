"""A producer: what happens to it, and which of its parts is concerned.

After `Stop` nothing new is taken; what is under way ends as it would have; then the brokers are told (35) and
`Stop` is answered.
Source: client/impl/producer/DefaultMQProducerImpl.java, client/impl/factory/MQClientInstance.java (4.9.8, 5.3.3).
"""

from __future__ import annotations

from typing import assert_never

from steelyard.config import ProducerConfig
from steelyard.errors import (
    CallTimeoutError,
    ClosedError,
    MessageError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.nodes.calls.remoting import CALLS_TIMER, Outcome
from steelyard.nodes.producer.contract import (
    EndTransaction,
    FetchQueues,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
    Stop,
)
from steelyard.nodes.producer.detection import DETECT_TIMER
from steelyard.nodes.producer.peers import (
    HEARTBEAT_TIMER,
    ROUTE_TIMER,
    Detected,
    HeartbeatSent,
    Peers,
    Purpose,
    SendTried,
    Unregistered,
)
from steelyard.nodes.producer.requests import REQUESTS_TIMER
from steelyard.nodes.producer.sending import Sending
from steelyard.nodes.producer.transactions import Transactions
from steelyard.nodes.producer.waiting import WAITING_TIMER
from steelyard.nodes.route_cache import RouteAsked
from steelyard.nodes.seam import (
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
)
from steelyard.nodes.starting import START_TIMER, Begin, Starting
from steelyard.produce.rules import check_topic
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway, is_response
from steelyard.wire.remoting.ids import UniqueIds


class ProducerNode:
    """See the module's text."""

    def __init__(self, config: ProducerConfig, ids: UniqueIds, rng: Random) -> None:
        self._config = config
        self._peers = Peers(config, rng)
        self._sending = Sending(self._peers, ids, rng)
        self._transactions = Transactions(self._peers)
        self._starting = Starting(f"nameserver {', '.join(config.nameservers)}")
        self._fetching: dict[int, str] = {}
        self._stop: int | None = None
        self._stopped = False

    def start(self, now: int) -> list[Effect]:
        return self._peers.start(now) + self._sending.detector.start(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects = self._take(event, now)
        return effects if self._stop is None else effects + self._go(now)

    def _take(self, event: Event, now: int) -> list[Effect]:
        match event:
            case Received(link=link, message=Command() as command):
                if is_response(command):
                    outcome = self._peers.calls.replied(command)
                    return [] if outcome is None else self._settle(outcome, now)
                return self._asked_by_broker(link, command, now)
            case Asked():
                return self._asked(event, now)
            case Opened(dialed=True):
                return self._peers.opened(event, now)
            case Refused():
                outcomes, effects = self._peers.refused(event, now)
                return self._settle_all(outcomes, now) + effects
            case Closed():
                outcomes, effects = self._peers.closed(event, now)
                return self._settle_all(outcomes, now) + effects
            case Due(key=key):
                return self._due(key, now)
            case Handled():
                return self._transactions.handled(event)
            case Opened() | Received() | Flushed():
                return []
            case _:
                assert_never(event)

    # -- calls of the program ----------------------------------------------------------------------

    def _asked(self, event: Asked, now: int) -> list[Effect]:
        if self._stop is not None:
            return [Answer(event.call_id, ClosedError("the producer was closed"))]
        match event.call:
            case SendMessages() | SendOneway() | SendHalf() | SendRequest() | SendReply() as call:
                return self._sending.send(event.call_id, call, now)
            case EndTransaction() as call:
                return self._transactions.end(event.call_id, call)
            case Begin() as call:
                return self._starting.asked(event.call_id, call, now) + self._probe(now)
            case FetchQueues() as call:
                return self._fetch(event.call_id, call, now)
            case Stop():
                self._stop = event.call_id
                self._peers.leave()
                return []
            case call:
                raise AssertionError(f"a producer does not know the call {call!r}")

    def _probe(self, now: int) -> list[Effect]:
        """Ask the nameservers something, to see whether they are there."""
        return self._peers.ask_routes(self._peers.routes.probe(self._config.default_topic), now)

    def _fetch(self, call_id: int, call: FetchQueues, now: int) -> list[Effect]:
        topic = call.topic
        try:
            check_topic(topic)
        except MessageError as error:
            return [Answer(call_id, error)]
        route = self._peers.routes.route(topic)
        if route is not None:
            return [Answer(call_id, route.publish)]
        if not self._config.nameservers:
            return [Answer(call_id, RouteError("no nameserver is configured"))]
        self._fetching[call_id] = topic
        timeout_ms = self._config.send_timeout_ms if call.timeout_ms is None else call.timeout_ms
        return self._sending.waiting.add(topic, call_id, now + timeout_ms, now)

    def _fetched(
        self, call_id: int, result: tuple[MessageQueue, ...] | SteelyardError
    ) -> list[Effect]:
        del self._fetching[call_id]
        return [Answer(call_id, result)]

    # -- what brokers ask --------------------------------------------------------------------------

    def _asked_by_broker(self, link: Link, command: Command, now: int) -> list[Effect]:
        address = self._peers.calls.address_of(link)
        if address is not None and command.code == RequestCode.CHECK_TRANSACTION_STATE:
            return self._transactions.asked(address, command)
        if address is not None and command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            name = self._peers.routes.broker_name(address)
            return self._sending.requests.replied(link, command, name, now)
        if is_oneway(command):
            return []
        remark = f" request type {command.code} not supported"
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return [Send(link, Command(code, command.opaque, RESPONSE_FLAG, remark=remark))]

    # -- what became of calls ----------------------------------------------------------------------

    def _settle_all(self, outcomes: list[Outcome[Purpose]], now: int) -> list[Effect]:
        return [effect for outcome in outcomes for effect in self._settle(outcome, now)]

    def _settle(self, outcome: Outcome[Purpose], now: int) -> list[Effect]:
        purpose, reply = outcome.purpose, outcome.reply
        match purpose:
            case SendTried():
                return self._sending.outcome(purpose, outcome.address, reply, now)
            case RouteAsked():
                return self._route_answered(purpose, reply, now)
            case Detected():
                return self._sending.detector.answered(purpose, reply)
            case HeartbeatSent(address=address):
                self._peers.heartbeat_answered(address, reply)
                return []
            case Unregistered(address=address):
                self._peers.goodbye_answered(address)
                return []
            case _:
                assert_never(purpose)

    def _route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        """Whoever waited for the route goes on, or fails."""
        news, effects = self._peers.route_answered(asked, reply, now)
        if not news.done:
            return effects
        if self._starting.open:
            effects += (
                self._starting.reached()
                if news.trouble is None
                else self._starting.failed(news.trouble)
            )
        topic = news.done
        route = self._peers.routes.route(topic)
        error: SteelyardError | None = None
        if route is None:
            self._peers.routes.forget(topic)
            error = news.error or RouteError(f"no route for topic {topic}")
        for call_id in self._sending.waiting.release(topic):
            if call_id in self._sending:
                effects += self._sending.released(call_id, error, now)
            elif route is not None:
                effects += self._fetched(call_id, route.publish)
            elif error is not None:
                effects += self._fetched(call_id, error)
        return effects

    # -- timers ------------------------------------------------------------------------------------

    def _due(self, key: object, now: int) -> list[Effect]:
        if key == CALLS_TIMER:
            outcomes, effects = self._peers.calls.expire(now)
            return effects + self._settle_all(outcomes, now)
        if key == WAITING_TIMER:
            return self._waited_too_long(now)
        if key == REQUESTS_TIMER:
            return self._sending.requests.expire(now)
        if key == START_TIMER:
            effects = [] if self._stop is not None else self._starting.due(now)
            return effects + self._probe(now) if self._starting.open else effects
        if key == DETECT_TIMER:
            return [] if self._stop is not None else self._sending.detector.due(now)
        if key == ROUTE_TIMER:
            return self._peers.routes_due(now)
        assert key == HEARTBEAT_TIMER
        return self._peers.heartbeats_due(now)

    def _waited_too_long(self, now: int) -> list[Effect]:
        late, effects = self._sending.waiting.expire(now)
        for call_id in late:
            error = CallTimeoutError("no nameserver answered within the time-out")
            if call_id in self._sending:
                effects += self._sending.released(call_id, error, now)
            else:
                effects += self._fetched(call_id, error)
        return effects

    # -- the end -----------------------------------------------------------------------------------

    def _go(self, now: int) -> list[Effect]:
        """Once nothing is under way any more, unregister."""
        if self._stopped or not self._sending.idle or self._fetching:
            return []
        effects = self._peers.say_goodbye(now)
        if self._peers.gone:
            assert self._stop is not None
            self._stopped = True
            effects.append(Answer(self._stop, None))
        return effects

    def check(self) -> None:
        """Assert that every open call is on its way or waits for a route."""
        self._peers.check()
        self._sending.check()
        self._transactions.check()
        waiting = set(self._sending.waiting.call_ids())
        assert self._fetching.keys() <= waiting
        assert all(call_id in self._sending or call_id in self._fetching for call_id in waiting)
        assert not self._stopped or (self._sending.idle and not self._fetching)
