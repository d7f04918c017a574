"""The asyncio producer and push consumer; `steelyard.aio` shows them to users.

Each client runs one node with a driver of its own on the running loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from random import SystemRandom
from types import TracebackType
from typing import Self

from steelyard.config import ConsumerConfig, ProducerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.live.driver import Driver
from steelyard.live.identity import new_ids
from steelyard.live.settings import as_message, client_config, verdict
from steelyard.nodes.consumer.contract import ConsumeBatch, ConsumerState, Describe
from steelyard.nodes.consumer.contract import Stop as StopConsumer
from steelyard.nodes.consumer.node import ConsumerNode
from steelyard.nodes.producer import FetchQueues, ProducerNode, SendMessages
from steelyard.nodes.producer import Stop as StopProducer
from steelyard.nodes.seam import Handled
from steelyard.types import ConsumeStatus, Message, MessageQueue, SendResult
from steelyard.wire.remoting.message import MessageView

DEFAULT_GROUP = "DEFAULT_PRODUCER"
"""MixAll.DEFAULT_PRODUCER_GROUP."""

Verdict = ConsumeStatus | bool | None
MessageListener = Callable[[MessageView], Awaitable[Verdict]]
BatchListener = Callable[[Sequence[MessageView]], Awaitable[Verdict]]


class Producer:
    """Sends messages, from asyncio.

    >>> async with Producer("orders", "127.0.0.1:9876") as producer:   # doctest: +SKIP
    ...     result = await producer.send("Orders", b"one apple", tags="fruit", keys="order-1")
    ...     print(result.queue, result.queue_offset)

    `nameservers`: host:port, several separated by `;`, or None for the variable NAMESRV_ADDR. Everything
    else is in `config`. Many sends may be under way at once; they are gathered into few writes.
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
        self._driver: Driver | None = None
        self._closed = False

    async def start(self) -> Self:
        """Start. `async with` does it."""
        if self._closed:
            raise ClosedError("the producer was closed; make a new one")
        if self._driver is None:
            node = ProducerNode(self.config, new_ids(), SystemRandom())
            self._driver = Driver(node, name="producer")
            self._driver.start()
        return self

    async def stop(self) -> None:
        """Let what is under way end, say goodbye to the brokers, close."""
        self._closed = True
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.ask(StopProducer())
            await driver.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def send(
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
        return await self._ask(SendMessages((whole,), queue=queue, timeout_ms=timeout_ms))

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request: stored all or none, in order, in one queue."""
        return await self._ask(SendMessages(tuple(messages), queue=queue, timeout_ms=timeout_ms))

    async def send_oneway(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str = "",
        keys: str | Sequence[str] = "",
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without waiting for a reply: may be lost without notice."""
        whole = as_message(message, body, tags=tags, keys=keys, properties=properties)
        await self._running().ask(SendMessages((whole,), queue=queue, oneway=True))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues of a topic that can be written; of a topic still to be made, those it would get.

        Raises RouteError where not even the default topic has a route.
        """
        result = await self._running().ask(FetchQueues(topic))
        assert isinstance(result, tuple)
        return result

    async def _ask(self, call: SendMessages) -> SendResult:
        result = await self._running().ask(call)
        assert isinstance(result, SendResult)
        return result

    def _running(self) -> Driver:
        if self._driver is None:
            raise ClosedError("the producer is not running; use `async with` or start()")
        return self._driver


HANDED_PER_LISTENER = 4
"""Batches handed over per listener: one to work on and some to go on with, so that a quick listener does
not wait for the event loop after each message. What waits is consumed even if its queue is given up."""


class Subscriptions:
    """What a consumer is set up with before it starts; the part that both twins share."""

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None,
        client_id: str | None,
        config: ConsumerConfig | None,
        listeners: int,
    ) -> None:
        template = replace(config or ConsumerConfig(), handed_max=HANDED_PER_LISTENER * listeners)
        self.config = client_config(template, group, nameservers, client_id)
        self.started = False

    def subscribe(self, topic: str, expression: str = "*") -> Self:
        """Receive messages of `topic` whose tag is in `expression`: `*`, or tags joined by `||`.

        A second call for a topic replaces the first. All members of a group must subscribe to the same.
        """
        if self.started:
            raise ConfigError("subscribe before the consumer starts")
        if not topic:
            raise ConfigError("the topic has no name")
        kept = tuple(pair for pair in self.config.subscriptions if pair[0] != topic)
        self.config = replace(self.config, subscriptions=(*kept, (topic, expression)))
        return self

    def check_listeners(self, listener: object, batch_listener: object) -> None:
        """Raise ConfigError unless at most one of them is given, and it fits `consume_batch`."""
        if listener is not None and batch_listener is not None:
            raise ConfigError("give either listener or batch_listener, not both")
        if listener is not None and self.config.consume_batch != 1:
            raise ConfigError("consume_batch needs a batch_listener")

    def ready(self, listener: object) -> None:
        """Raise ConfigError where something is missing for a start."""
        if listener is None:
            raise ConfigError("no listener; give listener=... or batch_listener=...")
        if not self.config.subscriptions:
            raise ConfigError("no subscription; call subscribe(topic) before the start")


class PushConsumer(Subscriptions):
    """A member of a consumer group that awaits a coroutine for each message.

    >>> async def show(message):
    ...     print(message.queue_offset, message.body)
    >>> async with PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders"):  # doctest: +SKIP
    ...     await asyncio.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it is done with the message; False,
    RECONSUME_LATER or an exception bring the message back later. `batch_listener` takes up to
    `config.consume_batch` messages of one queue instead, with one verdict for all. At most `concurrency`
    calls run at once.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        concurrency: int = 20,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency}; it must be 1 or more")
        super().__init__(group, nameservers, client_id, config, concurrency)
        self.check_listeners(listener, batch_listener)
        self._listener = listener
        self._batch_listener = batch_listener
        self._concurrency = concurrency
        self._driver: Driver | None = None
        self._handed: deque[tuple[int, ConsumeBatch]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._runners: list[asyncio.Task[None]] = []
        self._log = logging.getLogger("steelyard.consumer")

    async def start(self) -> Self:
        """Join the group. `async with` does it."""
        if self.started:
            raise ClosedError("a consumer starts once; make a new one")
        self.ready(self._listener or self._batch_listener)
        self.started = True
        node = ConsumerNode(self.config, SystemRandom())
        self._driver = Driver(node, name="consumer", on_hand=self._on_hand)
        self._driver.start()
        loop = asyncio.get_running_loop()
        self._runners = [loop.create_task(self._run()) for _ in range(self._concurrency)]
        return self

    async def stop(self) -> None:
        """Leave the group: finish what listeners hold (bounded), commit, say goodbye."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        await driver.ask(StopConsumer())
        for runner in self._runners:
            runner.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        await driver.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def state(self) -> ConsumerState:
        """Members seen, queues held and offsets next to commit, at this moment."""
        if self._driver is None:
            raise ClosedError("the consumer is not running")
        result = await self._driver.ask(Describe())
        assert isinstance(result, ConsumerState)
        return result

    def _on_hand(self, ticket: int, batch: object) -> None:
        assert isinstance(batch, ConsumeBatch)
        self._handed.append((ticket, batch))
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def _run(self) -> None:
        """One of the runners: takes what was handed over, one after the other."""
        driver = self._driver
        assert driver is not None
        loop = asyncio.get_running_loop()
        while True:
            if not self._handed:
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                continue
            ticket, batch = self._handed.popleft()
            driver.handle(Handled(ticket, await self._call(batch)))

    async def _call(self, batch: ConsumeBatch) -> ConsumeStatus:
        try:
            if self._batch_listener is not None:
                return verdict(await self._batch_listener(batch.messages))
            assert self._listener is not None
            return verdict(await self._listener(batch.messages[0]))
        except asyncio.CancelledError:
            runner = asyncio.current_task()
            if runner is None or runner.cancelling():
                raise  # we are told to stop; otherwise it was something that the listener awaited
            self._log.warning(
                "the listener was cancelled on %s; the message comes again", batch.queue
            )
        except Exception:
            self._log.exception("the listener failed on %s; the message comes again", batch.queue)
        return ConsumeStatus.RECONSUME_LATER
