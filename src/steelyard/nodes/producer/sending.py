"""The life of a send: waiting for a route → tried on a queue → retried elsewhere → ended.

- One time-out covers all attempts. A code in `ProducerConfig.retry_codes`, or no response, leads to
  another attempt, up to `retries` times; other codes are final. With `retry_another_broker` a
  message stored with a reservation is retried as well; unless a retry does better, that is the
  result.
- A send to a given queue, or one chosen by a sharding key, is tried once.
- A one-way send ends when it has been sent.
- A reply goes to the broker of its request, which knows the requester; a retry to any other.

Source: client/impl/producer/DefaultMQProducerImpl.java `sendDefaultImpl`, `sendSelectImpl`,
MQClientAPIImpl.java `processSendResponse`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steelyard.errors import (
    BrokerError,
    CallTimeoutError,
    MessageError,
    ProtocolError,
    RemotingError,
    RouteError,
    SteelyardError,
)
from steelyard.nodes.producer.contract import (
    Half,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
)
from steelyard.nodes.producer.detection import Detector
from steelyard.nodes.producer.peers import Peers, SendTried
from steelyard.nodes.producer.requests import Requests
from steelyard.nodes.producer.waiting import Waiting
from steelyard.nodes.route_cache import Route
from steelyard.nodes.seam import Address, Answer, Effect
from steelyard.produce import outgoing, verdict
from steelyard.produce.choice import QueueChoice, queue_of_key
from steelyard.produce.faults import FAULT_TABLES, Failure, FaultStrategy
from steelyard.produce.outgoing import Outgoing
from steelyard.types import Message, MessageQueue, Random, SendResult, SendStatus
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.ids import UniqueIds

SendCall = SendMessages | SendOneway | SendHalf | SendRequest | SendReply


class _Sending(msgspec.Struct):
    """A send in progress."""

    outgoing: Outgoing
    deadline: int
    queue: MessageQueue | None = None
    sharding_key: str = ""
    oneway: bool = False
    is_half: bool = False
    others: tuple[int, ...] = ()
    """Of a gathered batch: the calls of its second message and those after it."""
    correlation_id: str = ""
    """Of a request: identifies its reply."""
    home: str = ""
    """Of a reply: the broker to try first."""
    attempts_left: int = 1
    avoid_broker: str = ""
    error: SteelyardError | None = None
    stored: SendResult | Half | None = None
    """Result with a reservation, because of which another broker is tried."""


class Sending:
    """All sends of a producer in progress."""

    def __init__(self, peers: Peers, ids: UniqueIds, rng: Random) -> None:
        config = peers.config
        self._config = config
        self._peers = peers
        self._ids = ids
        self._faults: FaultStrategy | None = None
        if config.latency_faults != "off":
            table = FAULT_TABLES[config.latency_faults]
            self._faults = FaultStrategy(table, rng, detecting=config.detect)
        self.detector = Detector(peers, self._faults)
        self.waiting = Waiting(peers)
        self.requests = Requests(config.in_flight_max)
        self._choice = QueueChoice(rng, self._faults)
        self._template = outgoing.header_template(config)
        self._retried = verdict.RETRIED[config.retry_codes]
        self._sends: dict[int, _Sending] = {}
        self._body_bytes = 0

    def __contains__(self, call_id: int) -> bool:
        return call_id in self._sends

    @property
    def idle(self) -> bool:
        """Return whether no send is in progress."""
        return not self._sends and self.requests.idle

    # -- the beginning -----------------------------------------------------------------------------

    def send(
        self,
        call_id: int,
        call: SendCall,
        now: int,
        effects: list[Effect],
        others: tuple[int, ...] = (),
    ) -> None:
        """Begin a send. `others`: the calls of the further messages of a gathered batch.

        If that is not valid, each message is sent by itself: one that is wrong fails alone.
        """
        calls = (call_id, *others)
        try:
            send = self._admitted(call, now)
            send.others = others
            if send.correlation_id:
                self.requests.open(send.correlation_id, call_id, send.deadline, effects)
        except (MessageError, RemotingError) as error:
            if others and isinstance(error, MessageError):
                assert isinstance(call, SendMessages)
                for each, message in zip(calls, call.messages, strict=True):
                    alone = SendMessages((message,), call.queue, call.timeout_ms)
                    self.send(each, alone, now, effects)
            else:
                effects += [Answer(each, error) for each in calls]
            return
        self._sends[call_id] = send
        self._body_bytes += len(send.outgoing.body)
        self._try(call_id, now, effects)

    def _admitted(self, call: SendCall, now: int) -> _Sending:
        """Raise MessageError for an invalid message, RemotingError if too much is in progress."""
        config = self._config
        if len(self._sends) >= config.in_flight_max:
            raise RemotingError(f"more than {config.in_flight_max} sends in flight (in_flight_max)")
        send = self._prepared(call, now)
        if self._body_bytes + len(send.outgoing.body) > config.in_flight_bytes_max:
            limit = config.in_flight_bytes_max
            raise RemotingError(f"more than {limit} bytes in flight (in_flight_bytes_max)")
        queue, topic = send.queue, send.outgoing.topic
        if queue is not None and queue.topic != topic:
            raise MessageError(f"a message of topic {topic} to a queue of {queue.topic}")
        if queue is None and not send.sharding_key and not send.oneway:
            send.attempts_left += config.retries
        return send

    def _prepared(self, call: SendCall, now: int) -> _Sending:
        config, ids = self._config, self._ids
        timeout_ms = config.send_timeout_ms if call.timeout_ms is None else call.timeout_ms
        deadline = now + timeout_ms
        match call:
            case (
                SendMessages(messages=messages, queue=queue)
                | SendOneway(messages=messages, queue=queue)
            ):
                prepared = outgoing.prepare(messages, ids, config, now)
                key = _sharding_key(messages, queue)
                return _Sending(prepared, deadline, queue, key, oneway=isinstance(call, SendOneway))
            case SendHalf(message=message):
                prepared = outgoing.prepare_half(message, ids, config, now)
                return _Sending(prepared, deadline, None, message.sharding_key, is_half=True)
            case SendRequest(message=message, queue=queue):
                identity = ids.next(now)
                prepared = outgoing.prepare_request(message, identity, timeout_ms, ids, config, now)
                key = message.sharding_key
                return _Sending(prepared, deadline, queue, key, correlation_id=identity)
            case SendReply(message=message, request=request):
                prepared = outgoing.prepare_reply(message, request, ids, config, now)
                return _Sending(prepared, deadline, home=request.broker_name)

    # -- attempts ----------------------------------------------------------------------------------

    def released(
        self, call_id: int, error: SteelyardError | None, now: int, effects: list[Effect]
    ) -> None:
        """Continue a send whose wait for its route has ended. `error`: why there is none."""
        if error is None:
            self._try(call_id, now, effects)
        else:
            self._end(call_id, error, effects)

    def _try(self, call_id: int, now: int, effects: list[Effect]) -> None:
        """Send to a queue, wait for the route, or give up."""
        send = self._sends[call_id]
        topic = send.outgoing.topic
        if now >= send.deadline:
            text = f"not sent within the time-out; last: {send.error or 'waited for the route'}"
            self._end(call_id, CallTimeoutError(text), effects)
            return
        route = self._peers.routes.route(topic)
        if route is None:
            if not self._config.nameservers:
                self._end(call_id, RouteError("no nameserver is configured"), effects)
                return
            self.waiting.add(topic, call_id, send.deadline, now, effects)
            return
        if send.queue is None and not route.publish:
            self._end(call_id, RouteError(f"topic {topic} has no writable queue"), effects)
            return
        while send.attempts_left > 0:
            send.attempts_left -= 1
            queue = send.queue or self._chosen(send, route, now)
            address = route.masters.get(queue.broker_name)
            if address is not None:
                self._attempt(call_id, send, queue, address, now, effects)
                return
            text = f"broker {queue.broker_name} of topic {topic} is not in the route"
            self._blame(SendTried(call_id, queue, now), Failure.NO_ROUTE, now)
            send.error, send.avoid_broker = RouteError(text), queue.broker_name
        assert send.error is not None
        self._end(call_id, send.error, effects)

    def _chosen(self, send: _Sending, route: Route, now: int) -> MessageQueue:
        queues = route.publish
        if send.sharding_key:
            return queue_of_key(queues, send.sharding_key)
        if send.home and not send.avoid_broker:
            queues = tuple(q for q in queues if q.broker_name == send.home) or queues
        return self._choice.choose(send.outgoing.topic, queues, now, send.avoid_broker)

    def _attempt(
        self,
        call_id: int,
        send: _Sending,
        queue: MessageQueue,
        address: Address,
        now: int,
        effects: list[Effect],
    ) -> None:
        request = outgoing.command(send.outgoing, queue, self._template)
        if send.oneway:
            self._peers.calls.tell(address, request, effects)
            self._end(call_id, None, effects)
        else:
            purpose = SendTried(call_id, queue, now)
            self._peers.calls.call(address, request, purpose, now, send.deadline - now, effects)

    # -- what became of an attempt -----------------------------------------------------------------

    def outcome(
        self,
        tried: SendTried,
        address: Address,
        reply: Command | RemotingError,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Take a broker's response, or its absence."""
        if isinstance(reply, RemotingError):
            self._blame(tried, Failure.NO_REPLY, now)
            self._failed(tried, reply, now, effects)
            return
        status = verdict.STORED.get(reply.code)
        if status is None:
            self._blame(tried, Failure.REFUSED, now)
            retriable = reply.code in self._retried
            refusal = BrokerError(reply.code, reply.remark, address, retriable=retriable)
            self._failed(tried, refusal, now, effects)
            return
        try:
            header = headers.read(headers.SendMessageResponseHeader, reply.ext)
        except ProtocolError as error:
            self._end(tried.call_id, error, effects)
            return
        if self._faults is not None:
            self._faults.answered(tried.queue.broker_name, now - tried.at, now)
        self._stored(tried, status, header, now, effects)

    def _stored(
        self,
        tried: SendTried,
        status: SendStatus,
        header: headers.SendMessageResponseHeader,
        now: int,
        effects: list[Effect],
    ) -> None:
        send = self._sends[tried.call_id]
        result: SendResult | Half = SendResult(
            status=status,
            message_id=send.outgoing.message_id,
            offset_message_id=header.msg_id,
            queue=MessageQueue(tried.queue.topic, tried.queue.broker_name, header.queue_id),
            queue_offset=header.queue_offset,
            recall_handle=header.recall_handle,
        )
        if send.is_half:
            assert isinstance(result, SendResult)
            result = Half(result, header.transaction_id)
        if (
            status is SendStatus.SEND_OK
            or not self._config.retry_another_broker
            or send.attempts_left <= 0
        ):
            self._end(tried.call_id, result, effects)
        else:
            send.stored, send.avoid_broker = result, tried.queue.broker_name
            self._try(tried.call_id, now, effects)

    def _failed(
        self, tried: SendTried, error: SteelyardError, now: int, effects: list[Effect]
    ) -> None:
        """Retry after a failed attempt, or end the send."""
        send = self._sends[tried.call_id]
        if send.attempts_left <= 0 or not error.retriable:
            self._end(tried.call_id, error, effects)
        else:
            send.error, send.avoid_broker = error, tried.queue.broker_name
            self._try(tried.call_id, now, effects)

    def _blame(self, tried: SendTried, failure: Failure, now: int) -> None:
        """Remember the failure for later choices of queues."""
        if self._faults is not None:
            self._faults.failed(tried.queue.broker_name, failure, now - tried.at, now)
            self.detector.remember(tried.queue)

    # -- the end -----------------------------------------------------------------------------------

    def _end(
        self, call_id: int, result: SendResult | Half | SteelyardError | None, effects: list[Effect]
    ) -> None:
        send = self._sends.pop(call_id)
        self._body_bytes -= len(send.outgoing.body)
        if send.stored is not None and isinstance(result, SteelyardError):
            result = send.stored
        if send.correlation_id:
            self.requests.sent(send.correlation_id, result, effects)
        elif send.others:
            calls = (call_id, *send.others)
            effects += [
                Answer(each, _share(result, place, len(calls))) for place, each in enumerate(calls)
            ]
        else:
            effects.append(Answer(call_id, result))

    def check(self) -> None:
        """Assert that limits are kept, and that ended sends are not counted."""
        assert len(self._sends) <= self._config.in_flight_max
        assert self._body_bytes == sum(len(send.outgoing.body) for send in self._sends.values())
        assert self._body_bytes <= self._config.in_flight_bytes_max
        self.waiting.check()
        self.requests.check()


def _share(
    result: SendResult | Half | SteelyardError | None, place: int, count: int
) -> SendResult | Half | SteelyardError | None:
    """Return the result of one message of a gathered batch."""
    if not isinstance(result, SendResult):
        return result
    stored = result.offset_message_id.split(",")
    return SendResult(
        status=result.status,
        message_id=result.message_id.split(",")[place],
        offset_message_id=stored[place] if len(stored) == count else result.offset_message_id,
        queue=result.queue,
        queue_offset=result.queue_offset + place,
    )


def _sharding_key(messages: Sequence[Message], queue: MessageQueue | None) -> str:
    """Return the key that chooses the queue of a batch.

    Raises MessageError if there are several.
    """
    key = messages[0].sharding_key
    if len(messages) > 1 and queue is None:
        for message in messages:
            if message.sharding_key != key:
                text = f"a batch with the sharding keys {key!r} and {message.sharding_key!r}"
                raise MessageError(f"{text}; send it to a given queue, or one batch for each")
    return key
