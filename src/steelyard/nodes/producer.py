"""A producer: finds the brokers of a topic, sends to them in turn, tries again elsewhere.

A send lives through: waiting for a route → tried on a queue (again on another broker after a
failure, as often as `retries` says) → answered. All of it happens within one time-out. A one-way send
is answered as soon as it is on its way. A send to a given queue is tried once.

After `Stop` nothing new is taken; what is under way ends as it would have; then the brokers are told
(35) and `Stop` is answered.
Source: client/impl/producer/DefaultMQProducerImpl.java, client/impl/factory/MQClientInstance.java (4.9.8).
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from steelyard.config import ProducerConfig
from steelyard.errors import (
    BrokerError,
    CallTimeoutError,
    ClosedError,
    MessageError,
    ProtocolError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.nodes.calls import CALLS_TIMER, Calls, Outcome
from steelyard.nodes.route_cache import RouteAsked, RouteCache, RoutePace, question
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
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
    Tell,
)
from steelyard.produce import outgoing, verdict
from steelyard.produce.choice import QueueChoice
from steelyard.produce.outgoing import Outgoing
from steelyard.produce.rules import check_topic
from steelyard.types import Message, MessageQueue, Random, SendResult
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import HeartbeatData, ProducerData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway, is_response
from steelyard.wire.remoting.ids import UniqueIds

ROUTE_TIMER = "routes"
HEARTBEAT_TIMER = "heartbeats"
PARKED_TIMER = "parked"


class SendMessages(msgspec.Struct, frozen=True):
    """Call: send one message, or several as one batch to one queue.

    Answer: SendResult, None for `oneway`, or an exception. `timeout_ms` None: the configured one.
    """

    messages: tuple[Message, ...]
    queue: MessageQueue | None = None
    oneway: bool = False
    timeout_ms: int | None = None


class FetchQueues(msgspec.Struct, frozen=True):
    """Call. Answer: tuple[MessageQueue, ...] that the topic can be written to, or an exception."""

    topic: str


class Stop(msgspec.Struct, frozen=True):
    """Call: finish. Answer: None."""


class _SendTried(msgspec.Struct, frozen=True):
    call_id: int
    queue: MessageQueue


class _HeartbeatSent(msgspec.Struct, frozen=True):
    address: Address


class _Unregistered(msgspec.Struct, frozen=True):
    address: Address


_Purpose = RouteAsked | _SendTried | _HeartbeatSent | _Unregistered


class _Sending(msgspec.Struct):
    """A send that is not answered yet."""

    outgoing: Outgoing
    queue: MessageQueue | None
    oneway: bool
    deadline: int
    attempts_left: int
    avoid_broker: str = ""
    error: SteelyardError | None = None


class _Parked(msgspec.Struct, frozen=True):
    """A call that waits for the route of its topic."""

    call_id: int
    deadline: int


class ProducerNode:
    """See the module's text."""

    def __init__(self, config: ProducerConfig, ids: UniqueIds, rng: Random) -> None:
        self._config = config
        self._ids = ids
        self._choice = QueueChoice(rng)
        # Sends are limited by in_flight_max; the rest is for routes, heartbeats and good-byes.
        self._calls: Calls[_Purpose] = Calls(in_flight_max=config.in_flight_max + 10_000)
        self._routes = RouteCache(
            config.nameservers,
            rng,
            default_topic=config.default_topic,
            default_topic_queues=config.default_topic_queues,
        )
        self._sends: dict[int, _Sending] = {}
        self._parked: dict[str, list[_Parked]] = {}
        self._parked_due: int | None = None
        self._fetching: dict[int, str] = {}
        self._pace = RoutePace(config.route_poll_ms)
        self._greeted: dict[Address, None] = {}
        self._stop: int | None = None
        self._goodbyes: set[Address] = set()
        self._stopped = False

    def start(self, now: int) -> list[Effect]:
        return [
            SetTimer(ROUTE_TIMER, self._pace.next(now)),
            SetTimer(HEARTBEAT_TIMER, now + self._config.heartbeat_interval_ms),
        ]

    def handle(self, event: Event, now: int) -> list[Effect]:
        match event:
            case Received(link=link, message=Command() as command):
                if is_response(command):
                    outcome = self._calls.replied(command)
                    return [] if outcome is None else self._settle(outcome, now)
                return _refuse(link, command)
            case Asked():
                return self._asked(event, now)
            case Opened(dialed=True, address=address):
                effects = self._calls.opened(event)
                if address in self._greeted or address not in self._routes.masters():
                    return effects
                return effects + self._greet([address], now)
            case Refused(address=address):
                effects = self._settle_all(self._calls.refused(event), now)
                return effects + self._doubt(address, now)
            case Closed():
                return self._closed(event, now)
            case Due(key=key):
                return self._due(key, now)
            case Opened() | Received() | Flushed() | Handled():
                return []
            case _:
                assert_never(event)

    # -- calls of the application ------------------------------------------------------------------

    def _asked(self, event: Asked, now: int) -> list[Effect]:
        if self._stop is not None or self._stopped:
            return [Answer(event.call_id, ClosedError("the producer was closed"))]
        match event.call:
            case SendMessages() as call:
                return self._send(event.call_id, call, now)
            case FetchQueues(topic=topic):
                return self._fetch(event.call_id, topic, now)
            case Stop():
                self._stop = event.call_id
                return self._say_goodbye(now)
            case call:
                raise AssertionError(f"a producer does not know the call {call!r}")

    def _send(self, call_id: int, call: SendMessages, now: int) -> list[Effect]:
        if len(self._sends) >= self._config.in_flight_max:
            text = f"more than {self._config.in_flight_max} sends under way"
            return [Answer(call_id, RemotingError(text))]
        try:
            prepared = outgoing.prepare(call.messages, self._ids, self._config, now)
        except MessageError as error:
            return [Answer(call_id, error)]
        if call.queue is not None and call.queue.topic != prepared.topic:
            text = f"a message of topic {prepared.topic} to a queue of {call.queue.topic}"
            return [Answer(call_id, MessageError(text))]
        timeout_ms = self._config.send_timeout_ms if call.timeout_ms is None else call.timeout_ms
        once = call.queue is not None or call.oneway
        self._sends[call_id] = _Sending(
            outgoing=prepared,
            queue=call.queue,
            oneway=call.oneway,
            deadline=now + timeout_ms,
            attempts_left=1 if once else 1 + self._config.retries,
        )
        return self._try(call_id, now)

    def _fetch(self, call_id: int, topic: str, now: int) -> list[Effect]:
        try:
            check_topic(topic)
        except MessageError as error:
            return [Answer(call_id, error)]
        route = self._routes.route(topic)
        if route is not None:
            return [Answer(call_id, route.publish)]
        self._fetching[call_id] = topic
        return self._park(topic, call_id, now + self._config.send_timeout_ms, now)

    # -- the life of a send ------------------------------------------------------------------------

    def _try(self, call_id: int, now: int) -> list[Effect]:
        """Send to a queue, or wait for the route, or give up."""
        send = self._sends[call_id]
        topic = send.outgoing.topic
        if now >= send.deadline:
            text = f"not sent within the time-out; last: {send.error or 'waited for the route'}"
            return self._end(call_id, CallTimeoutError(text), now)
        route = self._routes.route(topic)
        if route is None:
            return self._park(topic, call_id, send.deadline, now)
        queue = send.queue
        if queue is None:
            if not route.publish:
                return self._end(call_id, RouteError(f"topic {topic} has no writable queue"), now)
            queue = self._choice.choose(topic, route.publish, send.avoid_broker)
        address = route.masters.get(queue.broker_name)
        if address is None:
            error = RouteError(f"broker {queue.broker_name} of topic {topic} is not in the route")
            return self._failed(call_id, queue, error, now)
        request = outgoing.request(send.outgoing, queue, self._config)
        if send.oneway:
            return self._calls.tell(address, request) + self._end(call_id, None, now)
        send.attempts_left -= 1
        timeout_ms = send.deadline - now
        return self._calls.call(address, request, _SendTried(call_id, queue), now, timeout_ms)

    def _replied(
        self, tried: _SendTried, address: Address, reply: Command, now: int
    ) -> list[Effect]:
        status = verdict.STORED.get(reply.code)
        if status is None:
            retriable = reply.code in verdict.RETRIED
            refusal = BrokerError(reply.code, reply.remark, address, retriable=retriable)
            if retriable:
                return self._failed(tried.call_id, tried.queue, refusal, now)
            return self._end(tried.call_id, refusal, now)
        try:
            header = headers.read(headers.SendMessageResponseHeader, reply.ext)
        except ProtocolError as error:
            return self._end(tried.call_id, error, now)
        queue = MessageQueue(tried.queue.topic, tried.queue.broker_name, header.queue_id)
        result = SendResult(
            status=status,
            message_id=self._sends[tried.call_id].outgoing.message_id,
            offset_message_id=header.msg_id,
            queue=queue,
            queue_offset=header.queue_offset,
        )
        return self._end(tried.call_id, result, now)

    def _failed(
        self, call_id: int, queue: MessageQueue, error: SteelyardError, now: int
    ) -> list[Effect]:
        """An attempt came to nothing: another one, or the end."""
        send = self._sends[call_id]
        send.error = error
        send.avoid_broker = queue.broker_name
        if send.attempts_left <= 0 or isinstance(error, RouteError):
            return self._end(call_id, error, now)
        return self._try(call_id, now)

    def _end(
        self, call_id: int, result: SendResult | SteelyardError | None, now: int
    ) -> list[Effect]:
        del self._sends[call_id]
        effects: list[Effect] = [Answer(call_id, result)]
        return effects if self._stop is None else effects + self._say_goodbye(now)

    # -- waiting for routes ------------------------------------------------------------------------

    def _park(self, topic: str, call_id: int, deadline: int, now: int) -> list[Effect]:
        self._parked.setdefault(topic, []).append(_Parked(call_id, deadline))
        effects = self._ask_routes(self._routes.want(topic), now)
        if not self._config.nameservers:
            return effects + self._release(topic, RouteError("no nameserver is configured"), now)
        if self._parked_due is None or deadline < self._parked_due:
            self._parked_due = deadline
            effects.append(SetTimer(PARKED_TIMER, deadline))
        return effects

    def _release(self, topic: str, error: SteelyardError | None, now: int) -> list[Effect]:
        """The question for a route has ended: whoever waited goes on, or fails."""
        effects: list[Effect] = []
        route = self._routes.route(topic)
        if route is None:
            self._routes.forget(topic)
        for parked in self._parked.pop(topic, ()):
            if route is None:
                failure = error or RouteError(f"no route for topic {topic}")
                effects += self._unpark(parked.call_id, failure, now)
            elif parked.call_id in self._sends:
                effects += self._try(parked.call_id, now)
            else:
                effects += self._fetched(parked.call_id, route.publish, now)
        return effects

    def _unpark(self, call_id: int, error: SteelyardError, now: int) -> list[Effect]:
        if call_id in self._sends:
            return self._end(call_id, error, now)
        return self._fetched(call_id, error, now)

    def _fetched(
        self, call_id: int, result: tuple[MessageQueue, ...] | SteelyardError, now: int
    ) -> list[Effect]:
        del self._fetching[call_id]
        effects: list[Effect] = [Answer(call_id, result)]
        return effects if self._stop is None else effects + self._say_goodbye(now)

    def _expire_parked(self, now: int) -> list[Effect]:
        late: list[int] = []
        for topic, waiting in list(self._parked.items()):
            late += [parked.call_id for parked in waiting if parked.deadline <= now]
            self._parked[topic] = [parked for parked in waiting if parked.deadline > now]
            if not self._parked[topic]:
                del self._parked[topic]
        effects: list[Effect] = []
        for call_id in late:
            error = CallTimeoutError("no nameserver answered within the time-out")
            effects += self._unpark(call_id, error, now)
        deadlines = [parked.deadline for waiting in self._parked.values() for parked in waiting]
        self._parked_due = min(deadlines, default=None)
        if self._parked_due is not None:
            effects.append(SetTimer(PARKED_TIMER, self._parked_due))
        return effects

    # -- peers -------------------------------------------------------------------------------------

    def _settle_all(self, outcomes: list[Outcome[_Purpose]], now: int) -> list[Effect]:
        return [effect for outcome in outcomes for effect in self._settle(outcome, now)]

    def _settle(self, outcome: Outcome[_Purpose], now: int) -> list[Effect]:
        purpose, reply = outcome.purpose, outcome.reply
        match purpose:
            case _SendTried():
                if isinstance(reply, RemotingError):
                    return self._failed(purpose.call_id, purpose.queue, reply, now)
                return self._replied(purpose, outcome.address, reply, now)
            case RouteAsked():
                return self._route_answered(purpose, reply, now)
            case _HeartbeatSent(address=address):
                if isinstance(reply, RemotingError) or reply.code != ResponseCode.SUCCESS:
                    self._greeted.pop(address, None)
                return []
            case _Unregistered(address=address):
                self._goodbyes.discard(address)
                return self._finish()
            case _:
                assert_never(purpose)

    def _route_answered(
        self, asked: RouteAsked, reply: Command | RemotingError, now: int
    ) -> list[Effect]:
        news = self._routes.answered(asked, reply)
        effects = self._ask_routes(news.again, now)
        if news.complaint:
            effects.append(Tell("WARNING", news.complaint))
        if news.done:
            fresh = [address for address in self._routes.masters() if address not in self._greeted]
            effects += self._greet(fresh, now)
            effects += self._release(news.done, news.error, now)
        return effects

    def _ask_routes(
        self, asked: tuple[RouteAsked, ...] | list[RouteAsked], now: int
    ) -> list[Effect]:
        effects: list[Effect] = []
        for item in asked:
            timeout_ms = self._config.call_timeout_ms
            effects += self._calls.call(item.nameserver, question(item), item, now, timeout_ms)
        return effects

    def _greet(self, addresses: list[Address], now: int) -> list[Effect]:
        """Heartbeats, by which a broker knows who sends to it."""
        if self._stop is not None or not addresses:
            return []
        body = HeartbeatData(
            self._config.client_id, producer_data_set=(ProducerData(self._config.group),)
        )
        command = Command(code=RequestCode.HEART_BEAT, body=fastjson.write(body))
        effects: list[Effect] = []
        for address in addresses:
            self._greeted[address] = None
            purpose = _HeartbeatSent(address)
            timeout_ms = self._config.call_timeout_ms
            effects += self._calls.call(address, command, purpose, now, timeout_ms)
        return effects

    def _closed(self, event: Closed, now: int) -> list[Effect]:
        address = self._calls.address_of(event.link)
        if address is None:
            return []
        self._greeted.pop(address, None)
        effects = self._settle_all(self._calls.closed(event), now)
        return effects + self._doubt(address, now)

    def _doubt(self, address: Address, now: int) -> list[Effect]:
        """A broker may have stopped: learn soon whether it is still in the routes."""
        if self._stop is not None or address not in self._routes.masters():
            return []
        soon = self._pace.hurry(now)
        return [] if soon is None else [SetTimer(ROUTE_TIMER, soon)]

    def _due(self, key: object, now: int) -> list[Effect]:
        if key == CALLS_TIMER:
            outcomes, effects = self._calls.expire(now)
            return effects + self._settle_all(outcomes, now)
        if key == PARKED_TIMER:
            return self._expire_parked(now)
        if self._stop is not None:
            return []
        if key == ROUTE_TIMER:
            again = SetTimer(ROUTE_TIMER, self._pace.next(now))
            return [again, *self._ask_routes(self._routes.refresh(), now)]
        assert key == HEARTBEAT_TIMER
        again = SetTimer(HEARTBEAT_TIMER, now + self._config.heartbeat_interval_ms)
        return [again, *self._greet(self._routes.masters(), now)]

    # -- the end -----------------------------------------------------------------------------------

    def _say_goodbye(self, now: int) -> list[Effect]:
        """Once nothing is under way any more, unregister from every broker that knows this producer."""
        if self._sends or self._fetching:
            return []
        header = headers.UnregisterClientRequestHeader(
            client_id=self._config.client_id, producer_group=self._config.group
        )
        command = Command(code=RequestCode.UNREGISTER_CLIENT, ext=headers.write(header))
        effects: list[Effect] = []
        for address in list(self._greeted):
            self._goodbyes.add(address)
            purpose = _Unregistered(address)
            timeout_ms = self._config.call_timeout_ms
            effects += self._calls.call(address, command, purpose, now, timeout_ms)
        self._greeted.clear()
        return effects + self._finish()

    def _finish(self) -> list[Effect]:
        if self._goodbyes or self._stopped or self._stop is None:
            return []
        self._stopped = True
        return [Answer(self._stop, None)]

    def check(self) -> None:
        """Assert that every open call is on its way or waits for a route."""
        self._calls.check()
        self._routes.check()
        parked = [item.call_id for waiting in self._parked.values() for item in waiting]
        assert len(parked) == len(set(parked))
        assert set(parked) <= self._sends.keys() | self._fetching.keys()
        assert self._fetching.keys() <= set(parked)
        assert not parked or self._parked_due is not None
        assert len(self._sends) <= self._config.in_flight_max
        assert not self._stopped or not (self._sends or self._fetching or self._goodbyes)


def _refuse(link: int, command: Command) -> list[Effect]:
    """A broker asks something that a producer does not offer."""
    if is_oneway(command):
        return []
    remark = f" request type {command.code} not supported"
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return [
        Send(link, Command(code=code, opaque=command.opaque, flag=RESPONSE_FLAG, remark=remark))
    ]
