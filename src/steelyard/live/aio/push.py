"""The asyncio push consumer. It runs one node with a driver of its own on the running loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import SystemRandom
from types import TracebackType
from typing import Self

from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.live.driver import Driver
from steelyard.live.settings import Verdict, verdict
from steelyard.live.subscribing import Subscriptions
from steelyard.nodes.consumer.contract import ConsumeBatch, ConsumerState, Describe, Stop
from steelyard.nodes.consumer.node import ConsumerNode
from steelyard.nodes.seam import Handled
from steelyard.types import ConsumeStatus
from steelyard.wire.remoting.message import MessageView

MessageListener = Callable[[MessageView], Awaitable[Verdict]]
BatchListener = Callable[[Sequence[MessageView]], Awaitable[Verdict]]


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
        await driver.ask(Stop())
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
