"""The blocking producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from random import SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.client import producing
from steelyard.client.arguments import checked
from steelyard.client.blocking.running import Running
from steelyard.client.producing import Selector, TransactionVerdict
from steelyard.client.settings import DEFAULT_GROUP, Seconds, as_message, begin_call, tls_context
from steelyard.client.workers import Workers
from steelyard.config import ProducerConfig
from steelyard.driver.identity import new_ids
from steelyard.errors import ClosedError, MessageError, SteelyardError
from steelyard.nodes.producer import (
    EndTransaction,
    FetchQueues,
    Half,
    ProducerNode,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
    Stop,
    TransactionCheck,
)
from steelyard.nodes.seam import Handled
from steelyard.produce.outgoing import reply_topic
from steelyard.types import Message, MessageQueue, SendResult, TransactionResult, TransactionState
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl

CHECK_THREADS = 4
"""Threads that call `transaction_check`. Java has one; a check that waits for a database should not hold up all."""


@checked
class Producer:
    """Sends messages and waits for the broker's word. Any number of threads may share one.

    >>> with Producer("orders", "127.0.0.1:9876") as producer:   # doctest: +SKIP
    ...     result = producer.send("Orders", b"one apple", tags="fruit", keys="order-1")
    ...     print(result.queue, result.queue_offset)

    `nameservers`: host:port, several separated by `;`, or None for the variable NAMESRV_ADDR. `tls`: True or an
    ssl.SSLContext, for brokers that want it. `transaction_check`: called in a thread, with a message sent in a
    transaction by any member of the group, when a broker asks what became of it; True or COMMIT, False or
    ROLLBACK, None or UNKNOWN. Brokers ask a producer that has sent to one of their topics, or asked for its
    `queues`. Everything else is in `config`. `steelyard.aio.Producer` is the same for asyncio.
    """

    def __init__(
        self,
        group: str = DEFAULT_GROUP,
        nameservers: str | Sequence[str] | None = None,
        *,
        transaction_check: Callable[[MessageView], TransactionVerdict] | None = None,
        client_id: str | None = None,
        config: ProducerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
    ) -> None:
        checks = transaction_check is not None
        self.config = producing.producer_config(
            config, group, nameservers, client_id, checks=checks
        )
        self._transaction_check = transaction_check
        self._tls = tls_context(tls)
        self._running: Running | None = None
        self._workers: Workers[tuple[int, TransactionCheck]] | None = None
        self._closed = False

    def start(self, timeout: Seconds | None = None) -> Self:
        """Start. `with` does it.

        The start waits a moment for the first news of the servers; while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the producer is closed.
        """
        if self._closed:
            raise ClosedError("the producer was closed; make a new one")
        if self._running is None:
            node = ProducerNode(self.config, new_ids(), SystemRandom())
            running = Running(node, "producer", self._on_hand, tls=self._tls)
            if self._transaction_check is not None:
                post = running.driver.post

                def work(item: tuple[int, TransactionCheck]) -> None:
                    ticket, check = item
                    post(Handled(ticket, self._check(check)))

                name = f"steelyard-{self.config.group}-check"
                self._workers = Workers(CHECK_THREADS, work, name)
            self._running = running
            running.start()
            try:
                running.call(begin_call(timeout))
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self) -> None:
        """Let what is under way end, unregister from the brokers, close."""
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            running.close(Stop())
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str = "",
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a `Message`, or `body` to the topic named, and wait until a broker has stored it.

        Messages of one `sharding_key` go to one queue. `queue` names it, `selector(queues, message)` chooses it,
        and such sends are tried once; otherwise the producer chooses, and another broker's after a failure. Raises
        MessageError, RouteError, BrokerError, RemotingError (after the retries), ClosedError.
        """
        whole = as_message(
            message,
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            delay_level=delay_level,
            sharding_key=sharding_key,
        )
        chosen = queue if selector is None else self._selected(selector, whole, queue, timeout_ms)
        call = SendMessages((whole,), queue=chosen, timeout_ms=timeout_ms)
        return _send_result(self._live().call(call))

    def send_async(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str = "",
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> Future[SendResult]:
        """Send and return at once; the future brings the result or the error.

        A `selector` is called here and now, after a wait for the topic's route where it is not known yet. The
        future's callbacks run in the event loop's thread: they must be quick and must not wait.
        """
        whole = as_message(
            message,
            body,
            tags=tags,
            keys=keys,
            properties=properties,
            delay_level=delay_level,
            sharding_key=sharding_key,
        )
        chosen = queue if selector is None else self._selected(selector, whole, queue, timeout_ms)
        call = SendMessages((whole,), queue=chosen, timeout_ms=timeout_ms)
        return self._live().ask(call)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request: stored all or none, in order, in one queue."""
        call = SendMessages(tuple(messages), queue=queue, timeout_ms=timeout_ms)
        return _send_result(self._live().call(call))

    def send_oneway(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        sharding_key: str = "",
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without waiting for a broker: may be lost without notice. Wrong messages still raise."""
        whole = as_message(
            message, body, tags=tags, keys=keys, properties=properties, sharding_key=sharding_key
        )
        chosen = queue if selector is None else self._selected(selector, whole, queue)
        self._live().call(SendOneway((whole,), queue=chosen))

    # -- transactions ------------------------------------------------------------------------------

    def send_in_transaction(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        execute: Callable[[Message], TransactionVerdict],
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        sharding_key: str = "",
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Send a message that consumers see only if `execute` commits.

        Once a broker has the message, `execute(message)` is called, here; the property UNIQ_KEY of its message is
        the transaction's id, which is `message_id` in `transaction_check`. True or COMMIT lets consumers have the
        message, False or ROLLBACK drops it; None, UNKNOWN or an exception, which is logged, make the broker ask
        `transaction_check` later. A delay of the message is ignored. Raises as `send` does, then nothing is executed.
        """
        whole = as_message(
            message, body, tags=tags, keys=keys, properties=properties, sharding_key=sharding_key
        )
        running = self._live()
        half = running.call(SendHalf(whole, timeout_ms))
        assert isinstance(half, Half)
        state, remark = producing.fate_without_execute(half), ""
        if state is None:
            state = TransactionState.UNKNOWN
            try:
                returned = execute(producing.executed_message(whole, half))
                state = producing.transaction_state(returned)
            except Exception as error:
                remark = producing.failed_remark(error, half)
        try:
            running.call(EndTransaction(half, state, remark))
        except SteelyardError as error:
            producing.log.warning("the broker could not be told %s: %s", state.name, error)
        return TransactionResult(half.result, state)

    def _on_hand(self, ticket: int, check: object) -> None:
        assert isinstance(check, TransactionCheck)
        assert self._workers is not None
        self._workers.put((ticket, check))

    def _check(self, check: TransactionCheck) -> TransactionState:
        assert self._transaction_check is not None
        try:
            return producing.transaction_state(self._transaction_check(check.message))
        except BaseException:  # whatever a check raises must not end the worker thread
            producing.log.exception("transaction_check failed on %s", check.message.message_id)
            return TransactionState.UNKNOWN

    # -- requests ----------------------------------------------------------------------------------

    def request(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        sharding_key: str = "",
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> MessageView:
        """Send a message and wait for what its consumer replies; `timeout_ms` is for all of it.

        Raises CallTimeoutError where no reply comes, and otherwise as `send` does.
        """
        whole = as_message(
            message, body, tags=tags, keys=keys, properties=properties, sharding_key=sharding_key
        )
        chosen = queue if selector is None else self._selected(selector, whole, queue, timeout_ms)
        view = self._live().call(SendRequest(whole, queue=chosen, timeout_ms=timeout_ms))
        assert isinstance(view, MessageView)
        return view

    def reply(
        self,
        request: MessageView,
        body: bytes | str,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Answer a request that a consumer was given; returns once the requester has the reply.

        Raises MessageError where `request` asks for no reply, BrokerError where the requester is gone, and otherwise
        as `send` does.
        """
        whole = as_message(reply_topic(request), body, tags=tags, keys=keys, properties=properties)
        return _send_result(self._live().call(SendReply(whole, request, timeout_ms)))

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues of a topic that can be written; of a topic still to be made, those it would get.

        Raises RouteError where not even the default topic has a route.
        """
        result = self._live().call(FetchQueues(topic))
        assert isinstance(result, tuple)
        return result

    def _selected(
        self,
        selector: Selector,
        message: Message,
        queue: MessageQueue | None,
        timeout_ms: int | None = None,
    ) -> MessageQueue:
        if queue is not None:
            raise MessageError("give either a queue or a selector, not both")
        queues = self._live().call(FetchQueues(message.topic, timeout_ms))
        assert isinstance(queues, tuple)
        return producing.selected(selector, queues, message)

    def _live(self) -> Running:
        if self._running is None:
            raise ClosedError("the producer is not running; use `with` or start()")
        return self._running


def _send_result(result: object) -> SendResult:
    assert isinstance(result, SendResult)
    return result
