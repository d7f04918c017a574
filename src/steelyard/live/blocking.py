"""The blocking producer and push consumer; `steelyard` shows them to users.

All blocking clients of a process share one event loop in a background thread. Callers wait in their own
threads; listeners run in worker threads of their consumer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from random import SystemRandom
from types import TracebackType
from typing import Self

from steelyard.config import ConsumerConfig, ProducerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.live.client import DEFAULT_GROUP, Subscriptions, Verdict
from steelyard.live.driver import Driver
from steelyard.live.identity import new_ids
from steelyard.live.loops import Background, background
from steelyard.live.settings import as_message, client_config, verdict
from steelyard.live.workers import Workers
from steelyard.nodes.consumer.contract import ConsumeBatch, ConsumerState, Describe
from steelyard.nodes.consumer.contract import Stop as StopConsumer
from steelyard.nodes.consumer.node import ConsumerNode
from steelyard.nodes.producer import FetchQueues, ProducerNode, SendMessages
from steelyard.nodes.producer import Stop as StopProducer
from steelyard.nodes.seam import Handled, Node
from steelyard.types import ConsumeStatus, Message, MessageQueue, SendResult
from steelyard.wire.remoting.message import MessageView

MessageListener = Callable[[MessageView], Verdict]
BatchListener = Callable[[Sequence[MessageView]], Verdict]


class _Running:
    """A node on the background loop, usable from any thread of the process that made it."""

    def __init__(
        self, node: Node, name: str, on_hand: Callable[[int, object], None] | None = None
    ) -> None:
        self.loop: Background = background()
        self.driver: Driver = self.loop.wait(self._build(node, name, on_hand))

    @staticmethod
    async def _build(
        node: Node, name: str, on_hand: Callable[[int, object], None] | None
    ) -> Driver:
        return Driver(node, name=name, on_hand=on_hand)

    def start(self) -> None:
        """Start the node; from here on it may hand out messages."""
        self.loop.wait(self._start())

    async def _start(self) -> None:
        self.driver.start()

    def call(self, call: object) -> object:
        """Put a call to the node and wait for the answer; one that is an error is raised."""
        if threading.get_ident() == self.loop.thread.ident:
            raise ClosedError("called from the event loop's thread; use steelyard.aio there")
        self._check_process()
        # A bare lock: a Future's condition costs several times as much, and this is once per send.
        answered = threading.Lock()
        answered.acquire()
        answer: list[object] = []

        def settle(result: object) -> None:
            answer.append(result)
            answered.release()

        self.driver.ask_from_thread(call, settle)
        answered.acquire()
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer[0]

    def ask(self, call: object) -> Future[object]:
        """Put a call to the node; the future gets the answer."""
        self._check_process()
        future: Future[object] = Future()

        def settle(result: object) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.driver.ask_from_thread(call, settle)
        return future

    def _check_process(self) -> None:
        if self.loop.forked:
            raise ClosedError("made in another process: a client does not survive a fork")

    def close(self, stop_call: object) -> None:
        """Clean stop."""
        if self.loop.forked:
            return
        self.call(stop_call)
        self.loop.wait(self.driver.close())


class Producer:
    """Sends messages and waits for the broker's word. Any number of threads may share one.

    >>> with Producer("orders", "127.0.0.1:9876") as producer:   # doctest: +SKIP
    ...     result = producer.send("Orders", b"one apple", tags="fruit", keys="order-1")
    ...     print(result.queue, result.queue_offset)

    `nameservers`: host:port, several separated by `;`, or None for the variable NAMESRV_ADDR. Everything
    else is in `config`. `steelyard.aio.Producer` is the same for asyncio.
    """

    def __init__(
        self,
        group: str = DEFAULT_GROUP,
        nameservers: str | Sequence[str] | None = None,
        *,
        client_id: str | None = None,
        config: ProducerConfig | None = None,
    ) -> None:
        self.config = client_config(config or ProducerConfig(), group, nameservers, client_id)
        self._running: _Running | None = None
        self._closed = False

    def start(self) -> Self:
        """Start. `with` does it."""
        if self._closed:
            raise ClosedError("the producer was closed; make a new one")
        if self._running is None:
            node = ProducerNode(self.config, new_ids(), SystemRandom())
            self._running = _Running(node, "producer")
            self._running.start()
        return self

    def stop(self) -> None:
        """Let what is under way end, say goodbye to the brokers, close."""
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            running.close(StopProducer())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def send(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a `Message`, or `body` to the topic named, and wait until a broker has stored it.

        Without `queue` the producer chooses one, and another broker's after a failure. Raises MessageError,
        RouteError, BrokerError, RemotingError (after the retries), ClosedError.
        """
        whole = as_message(
            message, body, tags=tags, keys=keys, properties=properties, delay_level=delay_level
        )
        call = SendMessages((whole,), queue=queue, timeout_ms=timeout_ms)
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
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> Future[SendResult]:
        """Send and return at once; the future brings the result or the error.

        The future's callbacks run in the event loop's thread: they must be quick and must not wait.
        """
        whole = as_message(
            message, body, tags=tags, keys=keys, properties=properties, delay_level=delay_level
        )
        call = SendMessages((whole,), queue=queue, timeout_ms=timeout_ms)
        return self._live().ask(call)  # type: ignore[return-value]  # the answer to SendMessages is a SendResult

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
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without waiting for a broker: may be lost without notice. Wrong messages still raise."""
        whole = as_message(message, body, tags=tags, keys=keys, properties=properties)
        self._live().call(SendMessages((whole,), queue=queue, oneway=True))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues of a topic that can be written; of a topic still to be made, those it would get.

        Raises RouteError where not even the default topic has a route.
        """
        result = self._live().call(FetchQueues(topic))
        assert isinstance(result, tuple)
        return result

    def _live(self) -> _Running:
        if self._running is None:
            raise ClosedError("the producer is not running; use `with` or start()")
        return self._running


def _send_result(result: object) -> SendResult:
    assert isinstance(result, SendResult)
    return result


class PushConsumer(Subscriptions):
    """A member of a consumer group that calls a function for each message, in worker threads.

    >>> def show(message):
    ...     print(message.queue_offset, message.body)
    >>> with PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders", "fruit || nuts"):  # doctest: +SKIP
    ...     time.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it is done with the message; False,
    RECONSUME_LATER or an exception bring the message back later. `batch_listener` takes up to
    `config.consume_batch` messages of one queue instead, with one verdict for all. Messages of one queue may
    be in several of the `consume_threads` at once; the committed offset never passes one under way.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        consume_threads: int = 20,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        if consume_threads < 1:
            raise ConfigError(f"consume_threads is {consume_threads}; it must be 1 or more")
        super().__init__(group, nameservers, client_id, config, consume_threads)
        self.check_listeners(listener, batch_listener)
        self._listener = listener
        self._batch_listener = batch_listener
        self._consume_threads = consume_threads
        self._running: _Running | None = None
        self._workers: Workers[tuple[int, ConsumeBatch]] | None = None
        self._log = logging.getLogger("steelyard.consumer")

    def start(self) -> Self:
        """Join the group. `with` does it."""
        if self.started:
            raise ClosedError("a consumer starts once; make a new one")
        self.ready(self._listener or self._batch_listener)
        self.started = True
        running = _Running(ConsumerNode(self.config, SystemRandom()), "consumer", self._on_hand)
        post = running.driver.post

        def work(item: tuple[int, ConsumeBatch]) -> None:
            ticket, batch = item
            post(Handled(ticket, self._call(batch)))

        name = f"steelyard-{self.config.group}"
        self._workers = Workers(self._consume_threads, work, name)
        self._running = running
        running.start()
        return self

    def stop(self) -> None:
        """Leave the group: finish what listeners hold (bounded), commit, say goodbye."""
        running, self._running = self._running, None
        if running is None:
            return
        running.close(StopConsumer())
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

    def state(self) -> ConsumerState:
        """Members seen, queues held and offsets next to commit, at this moment."""
        if self._running is None:
            raise ClosedError("the consumer is not running")
        result = self._running.call(Describe())
        assert isinstance(result, ConsumerState)
        return result

    def _on_hand(self, ticket: int, batch: object) -> None:
        assert isinstance(batch, ConsumeBatch)
        assert self._workers is not None
        self._workers.put((ticket, batch))

    def _call(self, batch: ConsumeBatch) -> ConsumeStatus:
        try:
            if self._batch_listener is not None:
                return verdict(self._batch_listener(batch.messages))
            assert self._listener is not None
            return verdict(self._listener(batch.messages[0]))
        except BaseException:  # whatever a listener raises must not end the worker thread
            self._log.exception("the listener failed on %s; the message comes again", batch.queue)
            return ConsumeStatus.RECONSUME_LATER
