"""The blocking producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from random import SystemRandom
from types import TracebackType
from typing import Self

from steelyard.config import ProducerConfig
from steelyard.errors import ClosedError
from steelyard.live.blocking.running import Running
from steelyard.live.identity import new_ids
from steelyard.live.settings import DEFAULT_GROUP, as_message, client_config
from steelyard.nodes.producer import FetchQueues, ProducerNode, SendMessages, Stop
from steelyard.types import Message, MessageQueue, SendResult


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
        self._running: Running | None = None
        self._closed = False

    def start(self) -> Self:
        """Start. `with` does it."""
        if self._closed:
            raise ClosedError("the producer was closed; make a new one")
        if self._running is None:
            node = ProducerNode(self.config, new_ids(), SystemRandom())
            self._running = Running(node, "producer")
            self._running.start()
        return self

    def stop(self) -> None:
        """Let what is under way end, say goodbye to the brokers, close."""
        self._closed = True
        running, self._running = self._running, None
        if running is not None:
            running.close(Stop())

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

    def _live(self) -> Running:
        if self._running is None:
            raise ClosedError("the producer is not running; use `with` or start()")
        return self._running


def _send_result(result: object) -> SendResult:
    assert isinstance(result, SendResult)
    return result
