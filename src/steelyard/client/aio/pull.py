"""The asyncio pull consumer. It runs one node with a driver of its own on the running loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.allocate.plan import Strategy
from steelyard.checks import PositiveInt32
from steelyard.client.aio.push import Runners
from steelyard.client.application import ChangeHook
from steelyard.client.arguments import checked
from steelyard.client.pulling import Pulling, RetryDelayLevel, pull_call
from steelyard.client.settings import Seconds, begin_call
from steelyard.config import ConsumerConfig
from steelyard.driver.driver import Driver
from steelyard.errors import ClosedError
from steelyard.nodes.consumer.remoting.contract import Stop
from steelyard.nodes.consumer.remoting.puller import Balanced
from steelyard.nodes.consumer.remoting.questions import (
    CommitOffset,
    Committed,
    FetchQueues,
    MaxOffset,
    MinOffset,
    OffsetForTimestamp,
    PullResult,
    SendBack,
)
from steelyard.nodes.seam import Call
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl


@checked
class PullConsumer(Pulling):
    """Reads the queues and offsets that it is told to, from asyncio.

    >>> async with PullConsumer("g", "127.0.0.1:9876") as consumer:       # doctest: +SKIP
    ...     for queue in await consumer.queues("Orders"):
    ...         result = await consumer.pull(queue, 0, hold_ms=20_000)
    ...         print(result.status, [message.body for message in result.messages])

    All that `steelyard.PullConsumer` says holds here, with coroutines; many pulls may be under way at once. The hook may
    be a coroutine function.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        *,
        on_queues_changed: ChangeHook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            group,
            nameservers,
            on_queues_changed,
            allocate=allocate,
            client_id=client_id,
            config=config,
            tls=tls,
        )
        self._driver: Driver | None = None
        self._runners: Runners | None = None

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Start, and join the group if topics are registered. `async with` does it.

        The start waits a moment for the first news of the servers; what they reject raises (ConfigError for a subscription, RouteError for a topic that nobody
        makes), and while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        node, application = self.make()
        self._driver = Driver(node, name="consumer", on_hand=self._on_hand, tls=self._tls)
        self._runners = Runners(self._driver, application)
        self._driver.start()
        if self.config.queue_changes:
            self._runners.resize(1)
        try:
            await self._driver.ask(begin_call(timeout))
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """Leave the group and close. Calls under way end with ClosedError."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        await driver.ask(Stop())
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

    # -- messages ----------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str = "*",
        *,
        sql: str | None = None,
        max_messages: PositiveInt32 = 32,
        hold_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Messages of one queue from `offset` on that the expression, or the SQL92 condition, wants.

        `hold_ms`: how long the broker may wait for a message at the end of the queue. `timeout_ms`: 10 s more than that
        unless given. Apache brokers return 32 messages at most, 8 from disk.
        """
        call = pull_call(queue, offset, expression, sql, max_messages, hold_ms, timeout_ms)
        result = await self._ask(call)
        assert isinstance(result, PullResult)
        return result

    async def send_back(self, message: MessageView, delay_level: RetryDelayLevel = 0) -> None:
        """Have the group's retry topic bring the message again: after a delay that grows with each time, or that
        of `delay_level` 1 to 18; -1 puts it among the dead letters at once."""
        await self._ask(SendBack(message, delay_level))

    # -- offsets -----------------------------------------------------------------------------------

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None without one."""
        offset = await self._ask(Committed(queue))
        assert offset is None or isinstance(offset, int)
        return offset

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the offset to go on at. Waits for the broker."""
        await self._ask(CommitOffset(queue, offset))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the broker still has."""
        return await self._offset(MinOffset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await self._offset(MaxOffset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time, in ms since the epoch, or later."""
        return await self._offset(OffsetForTimestamp(queue, timestamp_ms))

    # -- queues ------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read, by the nameserver's word of now."""
        return await self._queues(FetchQueues(topic))

    async def balanced(self, topic: str) -> tuple[MessageQueue, ...]:
        """This member's share of a registered topic; waits for the first rebalance."""
        return await self._queues(Balanced(topic))

    # -- the node ----------------------------------------------------------------------------------

    async def _offset(self, call: MinOffset | MaxOffset | OffsetForTimestamp) -> int:
        offset = await self._ask(call)
        assert isinstance(offset, int)
        return offset

    async def _queues(self, call: FetchQueues | Balanced) -> tuple[MessageQueue, ...]:
        queues = await self._ask(call)
        assert isinstance(queues, tuple)
        return queues

    async def _ask(self, call: Call[object]) -> object:
        if self._driver is None:
            raise ClosedError("the consumer is not running; use `async with` or start()")
        return await self._driver.ask(call)

    def _on_hand(self, ticket: int, handed: object) -> None:
        assert self._runners is not None
        self._runners.put(ticket, handed)
