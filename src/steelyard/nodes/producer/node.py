"""A producer: dispatches events to its parts.

After `Stop` nothing new is accepted; what waits for others is sent; what is in progress finishes
normally; then the client unregisters from the brokers (35) and `Stop` is answered.
Source: client/impl/producer/DefaultMQProducerImpl.java, client/impl/factory/MQClientInstance.java
(4.9.8, 5.3.3).
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
from steelyard.nodes.client_instance import HeartbeatSent, Unregistered
from steelyard.nodes.producer.contract import (
    EndTransaction,
    FetchQueues,
    RecallMessage,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
    Stop,
)
from steelyard.nodes.producer.detection import DETECT_TIMER
from steelyard.nodes.producer.gathering import GATHERING_TIMER, Gathering
from steelyard.nodes.producer.peers import (
    Detected,
    Peers,
    Purpose,
    Recalled,
    SendTried,
)
from steelyard.nodes.producer.recalls import ProducerRecalls
from steelyard.nodes.producer.requests import REQUESTS_TIMER
from steelyard.nodes.producer.sending import Sending
from steelyard.nodes.producer.transactions import LocalTransactions
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
    Measured,
    Opened,
    Received,
    Refused,
)
from steelyard.nodes.starting import START_TIMER, Begin, Starting
from steelyard.produce.rules import check_topic
from steelyard.types import MessageQueue, Random
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command, is_response
from steelyard.wire.remoting.ids import UniqueIds


class ProducerNode:
    """A producer. `ids` makes the unique ids of its messages."""

    def __init__(self, config: ProducerConfig, ids: UniqueIds, rng: Random) -> None:
        self._config = config
        self._peers = Peers(config, rng)
        self._client = self._peers.client
        self._sending = Sending(self._peers, ids, rng)
        self._recalls = ProducerRecalls(self._peers, self._sending.waiting)
        self._gathering = Gathering(config, self._sending)
        self._transactions = LocalTransactions(self._peers)
        self._starting = Starting(f"nameserver {', '.join(config.nameservers)}")
        self._fetching: dict[int, str] = {}
        self._stop: int | None = None
        self._left = False
        self._stopped = False

    def start(self, now: int) -> list[Effect]:
        effects: list[Effect] = []
        self._peers.start(now, effects)
        self._sending.detector.start(now, effects)
        return effects

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        self._take(event, now, effects)
        if self._stop is not None:
            self._go(now, effects)
        return effects

    def _take(self, event: Event, now: int, effects: list[Effect]) -> None:
        match event:
            case Received(link=link, message=Command() as command):
                if is_response(command):
                    outcome = self._peers.calls.replied(link, command)
                    if outcome is not None:
                        self._settle(outcome, now, effects)
                else:
                    self._asked_by_broker(link, command, now, effects)
            case Asked():
                self._asked(event, now, effects)
            case Opened(dialed=True):
                self._client.opened(event, now, effects)
            case Refused():
                self._settle_all(self._peers.calls.refused(event), now, effects)
                self._client.doubt(event.address, now, effects)
            case Closed(link=link):
                lost = self._client.lost(link)
                self._settle_all(self._peers.calls.closed(event), now, effects)
                self._client.doubt(lost, now, effects)
            case Due(key=key):
                self._due(key, now, effects)
            case Handled():
                self._transactions.handled(event, effects)
            case Opened() | Received() | Flushed() | Measured():
                pass
            case _:
                assert_never(event)

    # -- calls of the program ----------------------------------------------------------------------

    def _asked(self, event: Asked, now: int, effects: list[Effect]) -> None:
        if self._stop is not None:
            effects.append(Answer(event.call_id, ClosedError("the producer was closed")))
            return
        match event.call:
            case SendMessages() | SendOneway() | SendHalf() | SendRequest() | SendReply() as call:
                self._gathering.send(event.call_id, call, now, effects)
            case RecallMessage() as call:
                self._recalls.ask(event.call_id, call, now, effects)
            case EndTransaction() as call:
                self._transactions.end(event.call_id, call, effects)
            case Begin() as call:
                self._starting.asked(event.call_id, call, now, effects)
                self._probe(now, effects)
            case FetchQueues() as call:
                self._fetch(event.call_id, call, now, effects)
            case Stop():
                self._gathering.flush(now, effects)
                self._stop = event.call_id
                self._client.close()
            case call:
                raise AssertionError(f"a producer does not know the call {call!r}")

    def _probe(self, now: int, effects: list[Effect]) -> None:
        """Send the nameservers a request, to see whether they are there."""
        self._client.ask_routes(self._peers.routes.probe(self._config.default_topic), now, effects)

    def _fetch(self, call_id: int, call: FetchQueues, now: int, effects: list[Effect]) -> None:
        topic = call.topic
        try:
            check_topic(topic)
        except MessageError as error:
            effects.append(Answer(call_id, error))
            return
        route = self._peers.routes.route(topic)
        if route is not None:
            effects.append(Answer(call_id, route.publish))
            return
        if not self._config.nameservers:
            effects.append(Answer(call_id, RouteError("no nameserver is configured")))
            return
        self._fetching[call_id] = topic
        timeout_ms = self._config.send_timeout_ms if call.timeout_ms is None else call.timeout_ms
        self._sending.waiting.add(topic, call_id, now + timeout_ms, now, effects)

    def _fetched(
        self, call_id: int, result: tuple[MessageQueue, ...] | SteelyardError, effects: list[Effect]
    ) -> None:
        del self._fetching[call_id]
        effects.append(Answer(call_id, result))

    # -- what brokers ask --------------------------------------------------------------------------

    def _asked_by_broker(
        self, link: Link, command: Command, now: int, effects: list[Effect]
    ) -> None:
        address = self._peers.calls.address_of(link)
        if address is not None and command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._transactions.asked(address, command, effects)
            return
        if address is not None and command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            name = self._peers.routes.broker_name(address)
            self._sending.requests.replied(link, command, name, now, effects)
            return
        self._client.refuse(link, command, effects)

    # -- what became of calls ----------------------------------------------------------------------

    def _settle_all(
        self, outcomes: list[Outcome[Purpose]], now: int, effects: list[Effect]
    ) -> None:
        for outcome in outcomes:
            self._settle(outcome, now, effects)

    def _settle(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        purpose, reply = outcome.purpose, outcome.reply
        match purpose:
            case SendTried():
                self._sending.outcome(purpose, outcome.address, reply, now, effects)
            case Recalled():
                self._recalls.outcome(purpose, outcome.address, reply, effects)
            case RouteAsked():
                self._route_answered(purpose, reply, now, effects)
            case Detected():
                self._sending.detector.answered(purpose, reply, effects)
            case HeartbeatSent(address=address):
                self._client.registered(address, reply, now, effects)
            case Unregistered(address=address):
                self._client.left(address)
            case _:
                assert_never(purpose)

    def _route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int, effects: list[Effect]
    ) -> None:
        """Continue the calls that waited for the route, or let them fail."""
        news = self._client.route_answered(asked, reply, now, effects)
        if not news.done:
            return
        self._client.register_at_strangers(self._client.brokers(), now, effects)
        if self._starting.open:
            if news.trouble is None:
                self._starting.reached(effects)
            else:
                self._starting.failed(news.trouble, effects)
        topic = news.done
        route = self._peers.routes.route(topic)
        error: SteelyardError | None = None
        if route is None:
            self._peers.routes.forget(topic)
            error = news.error or RouteError(f"no route for topic {topic}")
        for call_id in self._sending.waiting.release(topic):
            if call_id in self._sending:
                self._sending.released(call_id, error, now, effects)
            elif call_id in self._recalls:
                self._recalls.released(call_id, error, now, effects)
            elif route is not None:
                self._fetched(call_id, route.publish, effects)
            elif error is not None:
                self._fetched(call_id, error, effects)

    # -- timers ------------------------------------------------------------------------------------

    def _due(self, key: object, now: int, effects: list[Effect]) -> None:
        if key == CALLS_TIMER:
            self._settle_all(self._peers.calls.expire(now, effects), now, effects)
        elif key == WAITING_TIMER:
            self._waited_too_long(now, effects)
        elif key == GATHERING_TIMER:
            self._gathering.due(now, effects)
        elif key == REQUESTS_TIMER:
            self._sending.requests.expire(now, effects)
        elif key == START_TIMER:
            if self._stop is None:
                self._starting.due(now, effects)
            if self._starting.open:
                self._probe(now, effects)
        elif key == DETECT_TIMER:
            if self._stop is None:
                self._sending.detector.due(now, effects)
        elif self._stop is None:
            self._client.due(key, now, effects)

    def _waited_too_long(self, now: int, effects: list[Effect]) -> None:
        for call_id in self._sending.waiting.expire(now, effects):
            error = CallTimeoutError("no nameserver answered within the time-out")
            if call_id in self._sending:
                self._sending.released(call_id, error, now, effects)
            elif call_id in self._recalls:
                self._recalls.released(call_id, error, now, effects)
            else:
                self._fetched(call_id, error, effects)

    # -- the end -----------------------------------------------------------------------------------

    def _go(self, now: int, effects: list[Effect]) -> None:
        """Unregister once nothing is in progress any more."""
        if self._stopped or not self._sending.idle or not self._recalls.idle or self._fetching:
            return
        if not self._left:
            self._left = True
            self._client.leave(now, effects)
        if not self._client.leaving:
            assert self._stop is not None
            self._stopped = True
            effects.append(Answer(self._stop, None))

    def check(self) -> None:
        """Assert that every open call is in progress or waits for a route."""
        self._peers.check()
        self._sending.check()
        self._gathering.check()
        self._transactions.check()
        waiting = set(self._sending.waiting.call_ids())
        known = (self._sending, self._recalls, self._fetching)
        assert self._fetching.keys() <= waiting
        assert all(any(call_id in part for part in known) for call_id in waiting)
        assert not self._stopped or (self._sending.idle and not self._fetching)
