"""The asyncio push consumer. It runs one node with a driver of its own on the running loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.allocate.plan import Strategy
from steelyard.client.application import Application, Functions, Hook
from steelyard.client.arguments import checked
from steelyard.client.pushing import Listeners, Pushing, resize
from steelyard.client.settings import Seconds, Verdict, begin_call
from steelyard.config import ConsumerConfig
from steelyard.driver.driver import Driver
from steelyard.errors import ClosedError
from steelyard.nodes.consumer.remoting.contract import ConsumerState, Describe, Pause, Resume, Stop
from steelyard.nodes.seam import Handled
from steelyard.nodes.seam import Verdict as Said
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl

MessageListener = Callable[[MessageView], Awaitable[Verdict]]
BatchListener = Callable[[Sequence[MessageView]], Awaitable[Verdict]]


@checked
class PushConsumer(Pushing):
    """A member of a consumer group that awaits a coroutine for each message.

    >>> async def show(message):
    ...     print(message.queue_offset, message.body)
    >>> async with PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders"):  # doctest: +SKIP
    ...     await asyncio.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it is done with the message; False,
    RECONSUME_LATER or an exception bring the message back later. `batch_listener` takes up to
    `config.consume_batch` messages of one queue instead, with one verdict for all. At most `concurrency`
    calls run at once.

    `orderly`, the hooks (coroutine functions or plain ones), `allocate` and `tls` are those of
    `steelyard.PushConsumer`.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        orderly: bool = False,
        concurrency: Listeners = 20,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            group,
            nameservers,
            Functions(listener, batch_listener, on_assigned, on_revoked, on_lost),
            listeners=concurrency,
            orderly=orderly,
            allocate=allocate,
            client_id=client_id,
            config=config,
            tls=tls,
        )
        self._driver: Driver | None = None
        self._runners: Runners | None = None

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group. `async with` does it.

        The start waits a moment for the first news of the servers; what they reject raises (ConfigError for a subscription, RouteError for a topic that nobody
        makes), and while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        node, application = self.make()
        self._driver = Driver(
            node, name="consumer", on_hand=self._on_hand, on_keep=self.on_keep, tls=self._tls
        )
        self._runners = Runners(self._driver, application)
        self._driver.start()
        self._runners.resize(self.config.consume_threads)
        try:
            await self._driver.ask(begin_call(timeout))
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self, *, wait: bool = True) -> None:
        """Leave the group: finish what listeners hold (bounded), commit, unregister.

        Without `wait` nothing is finished: what listeners hold is not committed, and the group reads it again.
        """
        driver, self._driver = self._driver, None
        if driver is None:
            return
        await driver.ask(Stop(wait))
        assert self._runners is not None
        await self._runners.cancel()
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

    # -- while it runs -----------------------------------------------------------------------------

    async def state(self) -> ConsumerState:
        """Members seen, queues held, offsets next to commit and recent rates, at this moment."""
        result = await self._live().ask(Describe())
        assert isinstance(result, ConsumerState)
        return result

    async def pause(self) -> None:
        """Pull no more; messages that are here already still come to the listener. Queues are kept."""
        await self._live().ask(Pause())

    async def resume(self) -> None:
        """Pull again after `pause`."""
        await self._live().ask(Resume())

    async def resize(self, concurrency: Listeners) -> None:
        """Run so many listeners at once from now on; calls under way end first. Raises ConfigError."""
        call = resize(concurrency)
        await self._live().ask(call)
        assert self._runners is not None
        self._runners.resize(concurrency)

    def _live(self) -> Driver:
        if self._driver is None:
            raise ClosedError("the consumer is not running; use `async with` or start()")
        return self._driver

    def _on_hand(self, ticket: int, handed: object) -> None:
        assert self._runners is not None
        self._runners.put(ticket, handed)


class Runners:
    """Tasks that take what the node hands out, one thing after the other each."""

    def __init__(self, driver: Driver, application: Application) -> None:
        self._driver = driver
        self._application = application
        self._handed: deque[tuple[int, object]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._surplus = 0
        """Tasks that are to end when they are done with what they have."""

    def put(self, ticket: int, handed: object) -> None:
        self._handed.append((ticket, handed))
        self._wake()

    def resize(self, count: int) -> None:
        """Have so many tasks; those that are too many end when they are done."""
        missing = count - len(self._tasks)
        self._surplus = max(0, -missing)
        for _ in range(missing):
            self._tasks.add(asyncio.get_running_loop().create_task(self._run()))
        for _ in range(self._surplus):
            self._wake()

    async def cancel(self) -> None:
        """End all of them, whatever they do."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._surplus:
            if not self._handed:
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                continue
            ticket, handed = self._handed.popleft()
            said = await self._take(handed)
            self._driver.handle(Handled(ticket, said))
        self._surplus -= 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
        if self._handed:  # this task may have been woken for it
            self._wake()

    async def _take(self, handed: object) -> Said:
        application = self._application
        try:
            returned = application.call(handed)
            if returned is not None and isawaitable(returned):
                returned = await returned
            return application.verdict(handed, returned)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # we are told to stop; otherwise it was something that the listener awaited
            return application.failure(handed, error)
        except Exception as error:
            return application.failure(handed, error)
