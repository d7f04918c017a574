"""The asyncio producer. It runs one node with a driver of its own on the running loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import SystemRandom
from types import TracebackType
from typing import Self

from steelyard.config import ProducerConfig
from steelyard.errors import ClosedError
from steelyard.live.driver import Driver
from steelyard.live.identity import new_ids
from steelyard.live.settings import DEFAULT_GROUP, as_message, client_config
from steelyard.nodes.producer import FetchQueues, ProducerNode, SendMessages, Stop
from steelyard.types import Message, MessageQueue, SendResult


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
            await driver.ask(Stop())
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
