"""The requests of operators to a consumer, which reach it through its brokers.

| code | request | answer |
|---|---|---|
| 220 | read these queues from these offsets on (one-way) | none |
| 221 | how far is each queue of a topic | offsets that would be committed now |
| 307 | what is the consumer doing | settings, subscriptions, queues, rates; threads on demand |
| 309 | consume this message now | the listener's verdict; nothing changes in the queue |

After 220, held queues start anew at their offsets and commit them. Questions that the application
has to answer (307 with threads, 309) are delivered to it like a batch. Java's client pauses for ten
seconds at a reset, so that no listener finishes an old message after it; here verdicts on an
earlier holding of a queue are ignored in any case. The body for C++ clients (a list) is not read.
Source: client/impl/ClientRemotingProcessor.java, MQClientInstance.java `resetOffset`,
`getConsumerStatus`, DefaultMQPushConsumerImpl.java `consumerRunningInfo`,
ConsumeMessage*Service.java `consumeMessageDirectly`.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from steelyard.config import ConsumerConfig, LitePullConfig
from steelyard.consume.statistics import ConsumeStatistics
from steelyard.errors import ProtocolError
from steelyard.groups.remoting.ownership import READ, HoldingState
from steelyard.nodes.consumer.remoting.contract import ConsumeDirectly, DescribeThreads
from steelyard.nodes.consumer.remoting.held import Held
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.locks import Locks
from steelyard.nodes.consumer.remoting.membership import CONSUME_ACTIVELY, CONSUME_PASSIVELY
from steelyard.nodes.consumer.remoting.peers import Peers
from steelyard.nodes.consumer.remoting.pulling import PullService, restore_topics
from steelyard.nodes.seam import Deliver, Effect, Handled, Link, Send, Verdict
from steelyard.types import ConsumeOrderlyStatus, ConsumeStatus, LogLine
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    Body,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStatusInfo,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command, is_oneway
from steelyard.wire.remoting.message import decode_records

PENDING_MAX = 64
"""Most answers that may wait for the application; more requests are refused as busy (2)."""

_MIB = 1024 * 1024
_MINUTE_MS = 60_000
_GOOD = (ConsumeStatus.CONSUME_SUCCESS, ConsumeOrderlyStatus.SUCCESS)


class _Pending(msgspec.Struct, frozen=True):
    """An answer that waits for the application.

    `info`: the rest of an answer to 307, None for 309.
    """

    link: Link
    opaque: int
    began: int
    info: ConsumerRunningInfo | None


class Reporting:
    """The answers of one consumer to operators. Call `begin` once before anything else."""

    def __init__(
        self,
        peers: Peers,
        holdings: Holdings,
        locks: Locks,
        pulling: PullService,
        statistics: ConsumeStatistics,
    ) -> None:
        self._peers = peers
        self._holdings = holdings
        self._locks = locks
        self._pulling = pulling
        self._statistics = statistics
        self._subscriptions: tuple[SubscriptionData, ...] = ()
        self._began = 0
        self._consume_threads = peers.config.consume_threads
        self._pending: dict[int, _Pending] = {}

    def begin(self, subscriptions: Collection[SubscriptionData], now: int) -> None:
        self._subscriptions = tuple(sorted(subscriptions, key=lambda item: item.topic))
        self._began = now

    def resize(self, consume_threads: int) -> None:
        """Note the number of listener threads."""
        self._consume_threads = consume_threads

    # -- requests ----------------------------------------------------------------------------------

    def requested(self, link: Link, command: Command, now: int, effects: list[Effect]) -> bool:
        """Handle a request of a broker; return False if it is not one of these."""
        try:
            match command.code:
                case RequestCode.GET_CONSUMER_RUNNING_INFO:
                    self._running_info(link, command, now, effects)
                case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                    self._consume_directly(link, command, now, effects)
                case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                    self._reset(link, command, now, effects)
                case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                    self._status(link, command, effects)
                case _:
                    return False
        except ProtocolError as error:
            _reply(link, command, ResponseCode.SYSTEM_ERROR, effects, str(error))
        return True

    def _running_info(self, link: Link, command: Command, now: int, effects: list[Effect]) -> None:
        header = headers.read(headers.ConsumerRunningInfoRequestHeader, command.ext)
        if header.consumer_group != self._peers.config.group:
            self._stranger(link, command, header.consumer_group, effects)
            return
        info = self._info(now)
        if not header.jstack_enable:
            _answer(link, command.opaque, info, effects)
        else:
            self._ask_application(link, command, DescribeThreads(), now, effects, info)

    def _consume_directly(
        self, link: Link, command: Command, now: int, effects: list[Effect]
    ) -> None:
        header = headers.read(headers.ConsumeMessageDirectlyRequestHeader, command.ext)
        if header.consumer_group != self._peers.config.group:
            self._stranger(link, command, header.consumer_group, effects)
            return
        if isinstance(self._peers.config, LitePullConfig):
            remark = f"consumer group {header.consumer_group} polls: it has no listener"
            _reply(link, command, ResponseCode.SYSTEM_ERROR, effects, remark)
            return
        messages = decode_records(command.body, header.broker_name or "")
        if len(messages) != 1:
            raise ProtocolError(f"{len(messages)} messages to consume directly; it must be one")
        restore_topics(messages)
        (message,) = messages
        self._ask_application(link, command, ConsumeDirectly(message.queue, message), now, effects)

    def _ask_application(
        self,
        link: Link,
        command: Command,
        question: ConsumeDirectly | DescribeThreads,
        now: int,
        effects: list[Effect],
        info: ConsumerRunningInfo | None = None,
    ) -> None:
        if len(self._pending) >= PENDING_MAX:
            remark = f"{PENDING_MAX} such requests are in progress"
            _reply(link, command, ResponseCode.SYSTEM_BUSY, effects, remark)
            return
        ticket = self._peers.ticket()
        self._pending[ticket] = _Pending(link, command.opaque, now, info)
        effects.append(Deliver(ticket, question))

    def handled(self, event: Handled, now: int, effects: list[Effect]) -> bool:
        """Pass the application's answer on to an operator; return False if none waits for it."""
        pending = self._pending.pop(event.ticket, None)
        if pending is None:
            return False
        said = event.status
        if pending.info is not None:
            text = said if isinstance(said, str) else ""
            info = msgspec.structs.replace(pending.info, jstack=text)
            _answer(pending.link, pending.opaque, info, effects)
            return True
        result, remark = _result(said)
        body = ConsumeMessageDirectlyResult(
            order=self._peers.config.orderly,
            consume_result=result,
            remark=remark,
            spent_time_mills=now - pending.began,
        )
        _answer(pending.link, pending.opaque, body, effects)
        return True

    def _stranger(self, link: Link, command: Command, group: str, effects: list[Effect]) -> None:
        remark = f"The Consumer Group <{group}> not exist in this consumer"
        _reply(link, command, ResponseCode.SYSTEM_ERROR, effects, remark)

    # -- offsets -----------------------------------------------------------------------------------

    def _reset(self, link: Link, command: Command, now: int, effects: list[Effect]) -> None:
        header = headers.read(headers.ResetOffsetRequestHeader, command.ext)
        table = fastjson.read(ResetOffsetBody, command.body).offset_table
        if header.group == self._peers.config.group:
            for held in self._holdings.all():
                offset = table.get(held.queue)
                if held.queue.topic == header.topic and offset is not None:
                    self._start_anew(held, max(offset, 0), now, effects)
        _reply(link, command, ResponseCode.SUCCESS, effects)

    def _start_anew(self, held: Held, offset: int, now: int, effects: list[Effect]) -> None:
        # A queue that is given up is left alone: its next owner is told as well. With hooks, a
        # queue must not be pulled before the application knows of it.
        anew = (
            {HoldingState.PULLING}
            if self._peers.config.hooks
            else {HoldingState.PULLING, HoldingState.ACQUIRING}
        )
        if held.state not in anew:
            return
        effects.append(LogLine("INFO", f"an operator has set {held.queue} to offset {offset}"))
        fresh = self._holdings.restart(held, offset, now)
        self._holdings.commits.commit(fresh, now, effects, news_only=False)
        self._pulling.look(fresh, now, effects)

    def _status(self, link: Link, command: Command, effects: list[Effect]) -> None:
        header = headers.read(headers.ConsumerStatusRequestHeader, command.ext)
        ours = header.group == self._peers.config.group
        table = {
            held.queue: held.committable
            for held in self._holdings.all()
            if ours
            and held.queue.topic == header.topic
            and held.state in READ
            and held.committable >= 0
        }
        _answer(link, command.opaque, ConsumerStatusBody(table), effects)

    # -- running info ------------------------------------------------------------------------------

    def _info(self, now: int) -> ConsumerRunningInfo:
        properties = _settings(self._peers.config) | {
            "PROP_CONSUMER_START_TIMESTAMP": str(self._began),
            "PROP_THREADPOOL_CORE_SIZE": str(self._consume_threads),
        }
        status = {}
        for subscription in self._subscriptions:
            topic = self._statistics.of(subscription.topic, now)
            status[subscription.topic] = ConsumeStatusInfo(
                pull_rt=topic.pull_ms,
                pull_tps=topic.pulled_per_second,
                consume_rt=topic.consume_ms,
                consume_ok_tps=topic.consumed_per_second,
                consume_failed_tps=topic.failed_per_second,
                consume_failed_msgs=topic.failed_in_hour,
            )
        queues = {held.queue: self._queue_info(held, now) for held in self._holdings.all()}
        return ConsumerRunningInfo(properties, self._subscriptions, queues, status)

    def _queue_info(self, held: Held, now: int) -> ProcessQueueInfo:
        process = held.process
        first, last, count = process.committable, process.committable + process.span, process.count
        out_first = out_last = out_count = 0
        if self._peers.config.orderly and process.head is not None:
            messages = process.head.messages
            out_first, out_last = messages[0].queue_offset, messages[-1].queue_offset
            out_count = len(messages)
            first, count = min(out_last + 1, last), count - out_count
        return ProcessQueueInfo(
            commit_offset=held.committable,
            cached_msg_min_offset=first if count else 0,
            cached_msg_max_offset=last if count else 0,
            cached_msg_count=count,
            cached_msg_size_in_mib=process.size_bytes // _MIB,
            transaction_msg_min_offset=out_first,
            transaction_msg_max_offset=out_last,
            transaction_msg_count=out_count,
            locked=self._locks.holds(held, now),
            last_lock_timestamp=self._locks.granted_at(held.queue),
            dropped=held.state not in (HoldingState.ACQUIRING, HoldingState.PULLING),
            last_pull_timestamp=held.pull.sent_at,
            last_consume_timestamp=held.application.consumed_at,
        )


def _settings(config: ConsumerConfig) -> dict[str, str]:
    """Return the settings under the names that DefaultMQPushConsumer uses."""
    values: dict[str, object] = {
        "consumerGroup": config.group,
        "messageModel": config.message_model.value,
        "consumeFromWhere": config.consume_from.value,
        "allocateMessageQueueStrategy": config.strategy,
        "consumeThreadMin": config.consume_threads,
        "consumeThreadMax": config.consume_threads,
        "consumeMessageBatchMaxSize": config.consume_batch,
        "consumeConcurrentlyMaxSpan": config.queue_span_max,
        "consumeTimeout": config.consume_timeout_ms // _MINUTE_MS,
        "maxReconsumeTimes": config.retry_max,
        "pullBatchSize": config.pull_batch,
        "pullInterval": 0,
        "pullThresholdForQueue": config.queue_messages_max,
        "pullThresholdSizeForQueue": config.queue_bytes_max // _MIB,
        "pullThresholdForTopic": config.topic_messages_max or -1,
        "pullThresholdSizeForTopic": config.topic_bytes_max // _MIB or -1,
        "suspendCurrentQueueTimeMillis": config.suspend_ms,
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in config.nameservers),
        "PROP_CONSUMEORDERLY": "true" if config.orderly else "false",
        "PROP_CONSUME_TYPE": CONSUME_ACTIVELY
        if isinstance(config, LitePullConfig)
        else CONSUME_PASSIVELY,
        "PROP_CLIENT_VERSION": "V4_9_8",
    }
    return {name: str(value) for name, value in values.items()}


def _result(said: Verdict) -> tuple[str, str | None]:
    """Return a verdict in the terms of CMResult.java, and the reason for a failure."""
    if isinstance(said, str):
        return "CR_THROW_EXCEPTION", said
    return ("CR_SUCCESS" if said in _GOOD else "CR_LATER"), None


def _answer(link: Link, opaque: int, body: Body, effects: list[Effect]) -> None:
    effects.append(Send(link, Command(0, opaque, RESPONSE_FLAG, body=fastjson.write(body))))


def _reply(
    link: Link, command: Command, code: ResponseCode, effects: list[Effect], remark: str = ""
) -> None:
    if is_oneway(command):
        if remark:
            effects.append(LogLine("WARNING", f"request {command.code} of a broker: {remark}"))
    else:
        effects.append(Send(link, Command(code, command.opaque, RESPONSE_FLAG, remark=remark)))
