"""Calls that one request to one broker answers: an offset, a pull, a message sent back.

A call goes to the broker of its queue, by the route of the topic. If the route is not known, or
does not name the broker, the nameserver is asked first, once. Errors are returned to the caller,
without retries, because the application is in a better position to decide.

| call | request | answer |
|---|---|---|
| `QueryConsumerOffset` | 14 | the group's offset, None if there is none (22) |
| `CommitOffset` | 15 | None |
| `MinOffset`, `MaxOffset` | 31, 30 | the first offset of the queue, the one after the last |
| `OffsetForTimestamp` | 29 | the first offset stored at that time or later |
| `Pull` | 11 | `PullResult` |
| `SendBack` | 36 | None |
| `FetchQueues` | 105 | the readable queues of a topic, fresh from the nameserver |

Otherwise the answer is a RouteError, RemotingError, BrokerError or ProtocolError, and a ConfigError
for invalid arguments. A 4.x broker returns offset 0, not None, for a young queue.
Source: client/impl/MQAdminImpl.java, client/impl/consumer/PullAPIWrapper.java,
DefaultMQPullConsumerImpl.java.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, assert_never

import msgspec

from steelyard.consume.inner_batches import unwrapped
from steelyard.consume.subscription import subscription, wanted
from steelyard.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    ProtocolError,
    RemotingError,
    RouteError,
)
from steelyard.nodes.consumer.remoting.peers import Peers, QuestionSent
from steelyard.nodes.route_cache import RouteNews
from steelyard.nodes.seam import Address, Answer, Call, Effect
from steelyard.types import ExpressionType, MessageQueue, Subscription
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag
from steelyard.wire.remoting.message import Body, MessageView, decode_records

PULL_TIMEOUT_MS = 10_000
"""Limit of a pull beyond the time that the broker holds it (consumerPullTimeoutMillis)."""


class QueryConsumerOffset(Call[int | None], frozen=True):
    queue: MessageQueue


class CommitOffset(Call[None], frozen=True):
    queue: MessageQueue
    offset: int


class MinOffset(Call[int], frozen=True):
    queue: MessageQueue


class MaxOffset(Call[int], frozen=True):
    queue: MessageQueue


class OffsetForTimestamp(Call[int], frozen=True):
    queue: MessageQueue
    timestamp_ms: int


class PullStatus(Enum):
    """The outcome of a pull. Source: client/consumer/PullStatus.java."""

    FOUND = "FOUND"
    """There are messages in the result."""
    NO_NEW_MSG = "NO_NEW_MSG"
    """The end of the queue is reached, for now."""
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    """No message matches the expression; continue at `next_begin_offset`."""
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"
    """The offset is too small, or beyond the end; `next_begin_offset` is valid."""


class PullResult(msgspec.Struct, Generic[Body], frozen=True):
    """The result of one pull, with `messages` if `status` is FOUND. Source: PullResult.java.

    `next_begin_offset`: where the next pull should begin, whatever the status. `min_offset`,
    `max_offset`: the first offset of the queue, and the one after its last.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[MessageView[Body], ...] = ()


class Pull(Call[PullResult], frozen=True):
    """Pull messages of a queue from an offset on.

    `hold_ms`: how long the broker may wait for a message if there is none; 0: not at all.
    `timeout_ms`: by default PULL_TIMEOUT_MS more than that.
    """

    queue: MessageQueue
    offset: int
    expression: str = "*"
    expression_type: ExpressionType = ExpressionType.TAG
    messages_max: int = 32
    hold_ms: int = 0
    timeout_ms: int | None = None


class SendBack(Call[None], frozen=True):
    """Send a message back to its broker, which delivers it to the group again.

    `delay_level`: 0 leaves the delay to the broker, by the number of deliveries; a negative one
    sends the message to the dead-letter topic at once.
    """

    message: MessageView
    delay_level: int = 0


class FetchQueues(Call[tuple[MessageQueue, ...]], frozen=True):
    topic: str


Question = (
    QueryConsumerOffset
    | CommitOffset
    | MinOffset
    | MaxOffset
    | OffsetForTimestamp
    | Pull
    | SendBack
    | FetchQueues
)


_PULL_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class Questions:
    """The calls in progress. `routed` and `answered` complete what `ask` began."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._open: dict[int, Question] = {}
        self._unrouted: dict[str, list[int]] = {}
        """Calls that wait for the route of a topic."""

    def ask(self, call_id: int, question: Question, now: int, effects: list[Effect]) -> None:
        wrong = _wrong(question)
        if wrong is not None:
            effects.append(Answer(call_id, wrong))
            return
        self._open[call_id] = question
        address = self._address(question)
        if address is not None:
            self._send(call_id, question, address, now, effects)
            return
        topic = _topic(question)
        self._unrouted.setdefault(topic, []).append(call_id)
        self._peers.client.ask_routes(self._peers.routes.renew(topic), now, effects)

    def routed(self, news: RouteNews, now: int, effects: list[Effect]) -> None:
        """Handle the end of a route request."""
        route = self._peers.routes.route(news.done)
        for call_id in self._unrouted.pop(news.done, ()):
            question = self._open[call_id]
            address = self._address(question)
            if isinstance(question, FetchQueues) and route is not None:
                self._answer(call_id, route.subscribe, effects)
            elif address is not None:
                self._send(call_id, question, address, now, effects)
            elif news.error is not None:
                self._answer(call_id, news.error, effects)
            else:
                text = f"the route of {news.done} does not name the broker of {question}"
                self._answer(call_id, RouteError(text), effects)

    def answered(
        self,
        sent: QuestionSent,
        address: Address,
        reply: Command | RemotingError,
        effects: list[Effect],
    ) -> None:
        """Handle the outcome of a request."""
        question = self._open.get(sent.call_id)
        if question is None:
            return  # the client was closed
        if isinstance(reply, RemotingError):
            self._answer(sent.call_id, reply, effects)
            return
        try:
            self._answer(sent.call_id, _result(question, address, reply), effects)
        except (BrokerError, ProtocolError) as error:
            self._answer(sent.call_id, error, effects)

    def close(self, effects: list[Effect]) -> None:
        """End all calls with an error, because the client stops."""
        self._unrouted.clear()
        error = ClosedError("the consumer was closed while the call was in progress")
        for call_id in list(self._open):
            self._answer(call_id, error, effects)

    def _answer(self, call_id: int, result: object, effects: list[Effect]) -> None:
        del self._open[call_id]
        effects.append(Answer(call_id, result))

    def _address(self, question: Question) -> Address | None:
        if isinstance(question, FetchQueues):
            return None
        if isinstance(question, SendBack):  # a write: only a master accepts it
            route = self._peers.routes.route(question.message.topic)
            return None if route is None else route.masters.get(question.message.broker_name)
        return self._peers.address(question.queue)

    def _send(
        self, call_id: int, question: Question, address: Address, now: int, effects: list[Effect]
    ) -> None:
        group = self._peers.config.group
        timeout_ms: int | None = None
        header: headers.Header
        match question:
            case QueryConsumerOffset(queue=queue):
                code = RequestCode.QUERY_CONSUMER_OFFSET
                header = headers.QueryConsumerOffsetRequestHeader(
                    consumer_group=group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    set_zero_if_not_found=False,
                    bname=queue.broker_name,
                )
            case CommitOffset(queue=queue, offset=offset):
                code = RequestCode.UPDATE_CONSUMER_OFFSET
                header = headers.UpdateConsumerOffsetRequestHeader(
                    consumer_group=group,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    commit_offset=offset,
                    bname=queue.broker_name,
                )
            case MinOffset(queue=queue) | MaxOffset(queue=queue):
                lowest = isinstance(question, MinOffset)
                code = RequestCode.GET_MIN_OFFSET if lowest else RequestCode.GET_MAX_OFFSET
                header = headers.QueueRequestHeader(
                    topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
                )
            case OffsetForTimestamp(queue=queue, timestamp_ms=timestamp):
                code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
                header = headers.SearchOffsetRequestHeader(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    timestamp=timestamp,
                    bname=queue.broker_name,
                )
            case Pull():
                code = RequestCode.PULL_MESSAGE
                header = _pull_header(group, question, now)
                timeout_ms = question.timeout_ms
                if timeout_ms is None:
                    timeout_ms = PULL_TIMEOUT_MS + question.hold_ms
            case SendBack(message=message, delay_level=level):
                code = RequestCode.CONSUMER_SEND_MSG_BACK
                retry_max = self._peers.config.retry_max
                header = headers.ConsumerSendMsgBackRequestHeader(
                    offset=message.physical_offset,
                    group=group,
                    delay_level=level,
                    origin_msg_id=message.message_id,
                    origin_topic=message.topic,
                    max_reconsume_times=retry_max if retry_max >= 0 else None,
                )
            case FetchQueues():
                raise AssertionError("no broker is asked for the queues of a topic")
            case _:
                assert_never(question)
        purpose = QuestionSent(call_id)
        self._peers.ask(address, code, header, purpose, now, effects, timeout_ms)

    def check(self) -> None:
        """Assert that calls waiting for a route are in progress."""
        for waiting in self._unrouted.values():
            assert waiting
            assert all(call_id in self._open for call_id in waiting)


def _topic(question: Question) -> str:
    match question:
        case SendBack(message=message):
            return message.topic
        case FetchQueues(topic=topic):
            return topic
        case _:
            return question.queue.topic


def _wrong(question: Question) -> ConfigError | None:
    """Return why a call is invalid, or None if it is not."""
    match question:
        case CommitOffset(offset=offset) | Pull(offset=offset) if offset < 0:
            return ConfigError(f"the offset is {offset}; it must be 0 or more")
        case Pull(messages_max=count) if count < 1:
            return ConfigError(f"max_messages is {count}; it must be 1 or more")
        case Pull(hold_ms=wait_ms) if wait_ms < 0:
            return ConfigError(f"hold_ms is {wait_ms}; it must be 0 or more")
        case Pull():
            try:
                subscription(_wish(question), 0)
            except ConfigError as error:
                return error
        case FetchQueues(topic=""):
            return ConfigError("the topic name is empty")
    return None


# -- pulls -----------------------------------------------------------------------------------------


def _wish(pull: Pull) -> Subscription:
    return Subscription(pull.queue.topic, pull.expression, pull.expression_type)


def _pull_header(group: str, pull: Pull, now: int) -> headers.PullMessageRequestHeader:
    """Return the header of a pull, with the subscription, as brokers need not know this client."""
    is_tags = pull.expression_type is ExpressionType.TAG
    data = subscription(_wish(pull), 0 if is_tags else now)
    hold = PullFlag.SUSPEND if pull.hold_ms else 0
    return headers.PullMessageRequestHeader(
        consumer_group=group,
        topic=pull.queue.topic,
        queue_id=pull.queue.queue_id,
        queue_offset=pull.offset,
        max_msg_nums=pull.messages_max,
        sys_flag=PullFlag.SUBSCRIPTION | hold,
        commit_offset=0,
        suspend_timeout_millis=pull.hold_ms,
        subscription=data.sub_string,
        sub_version=data.sub_version,
        expression_type=data.expression_type,
        bname=pull.queue.broker_name,
    )


def _pull_result(pull: Pull, address: Address, reply: Command) -> PullResult:
    status = _PULL_STATUS.get(ResponseCode(reply.code)) if reply.code in _PULL_STATUS else None
    if status is None:
        raise BrokerError(reply.code, reply.remark, address)
    header = headers.read(headers.PullMessageResponseHeader, reply.ext)
    messages: tuple[MessageView, ...] = ()
    if status is PullStatus.FOUND:
        tags = frozenset(subscription(_wish(pull), 0).tags_set)
        found = unwrapped(decode_records(reply.body, pull.queue.broker_name), pull.offset)
        messages = tuple(wanted(found, tags))
        if not messages:  # only tags with the same hash code as a wanted one
            status = PullStatus.NO_MATCHED_MSG
    return PullResult(
        status, header.next_begin_offset, header.min_offset, header.max_offset, messages
    )


# -- results ---------------------------------------------------------------------------------------


def _result(question: Question, address: Address, reply: Command) -> object:
    """Return the result in a reply. Raises BrokerError and ProtocolError."""
    if isinstance(question, Pull):
        return _pull_result(question, address, reply)
    if isinstance(question, QueryConsumerOffset) and reply.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if reply.code != ResponseCode.SUCCESS:
        raise BrokerError(reply.code, reply.remark, address)
    if isinstance(question, CommitOffset | SendBack):
        return None
    offset = headers.read(headers.OffsetResponseHeader, reply.ext).offset
    if offset >= 0:
        return offset
    if isinstance(question, QueryConsumerOffset):
        return None
    raise ProtocolError(f"{address} returned the invalid offset {offset}")
