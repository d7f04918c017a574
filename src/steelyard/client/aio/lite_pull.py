"""The asyncio lite pull consumer. It runs one node with a driver of its own on the running loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.allocate.plan import Strategy
from steelyard.checks import Positive
from steelyard.client.aio.push import Runners
from steelyard.client.application import ChangeHook, Functions, Hook
from steelyard.client.arguments import checked
from steelyard.client.polling import Polling
from steelyard.client.settings import Seconds, begin_call
from steelyard.config import LitePullConfig
from steelyard.driver.driver import Driver
from steelyard.errors import ClosedError
from steelyard.nodes.consumer.remoting.contract import (
    Assignment,
    Bound,
    Commit,
    ConsumerState,
    Describe,
    GiveBack,
    PauseQueues,
    ResumeQueues,
    Seek,
    Stop,
)
from steelyard.nodes.consumer.remoting.questions import (
    Committed,
    FetchQueues,
    MaxOffset,
    MinOffset,
    OffsetForTimestamp,
)
from steelyard.nodes.seam import Call
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl


@checked
class LitePullConsumer(Polling):
    """A consumer that is asked for messages, from asyncio.

    >>> async with LitePullConsumer("g", "127.0.0.1:9876").subscribe("Orders") as consumer:  # doctest: +SKIP
    ...     while True:
    ...         for message in await consumer.poll():
    ...             print(message.queue_offset, message.body)

    All that `steelyard.LitePullConsumer` says holds here, with coroutines; the hooks may be coroutine functions.
    One task polls at a time. A poll that is cancelled, by `asyncio.timeout` for instance, loses nothing: what it would have
    returned comes with the next one.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        *,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        on_queues_changed: ChangeHook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        config: LitePullConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
    ) -> None:
        functions = Functions(None, None, on_assigned, on_revoked, on_lost, on_queues_changed)
        super().__init__(
            group,
            nameservers,
            functions,
            allocate=allocate,
            client_id=client_id,
            config=config,
            tls=tls,
        )
        self._driver: Driver | None = None
        self._runners: Runners | None = None

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group, or begin to read the assigned queues. `async with` does it.

        The start waits a moment for the first news of the servers; what they reject raises (ConfigError for a subscription, RouteError for a topic that nobody
        makes), and while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        node, application, assign = self.make()
        self._driver = Driver(
            node, name="consumer", on_hand=self._on_hand, on_keep=self.on_keep, tls=self._tls
        )
        self._runners = Runners(self._driver, application)
        self._driver.start()
        self._runners.resize(1)
        try:
            if assign is not None:
                await self._driver.ask(assign)
            await self._driver.ask(begin_call(timeout))
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """Commit what is consumed and leave. What the last poll returned is not, unless `commit` was called."""
        driver = self._driver
        if driver is None:
            return
        with suppress(ClosedError):  # it was stopped meanwhile
            await driver.ask(Stop())
        self._driver = None
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

    async def poll(
        self, timeout_ms: int | None = None, max_messages: Positive | None = None
    ) -> list[MessageView]:
        """Messages of the queues held, oldest first in each; none when nothing came within `timeout_ms`.

        Without arguments `config.poll_timeout_ms` and `config.pull_batch` hold. Raises ConfigError, ClosedError.
        """
        call = self.poll_call(timeout_ms, max_messages)
        driver = self._live()
        messages = await driver.poll(call, GiveBack(call.number))
        assert isinstance(messages, tuple)
        return list(messages)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all that polls returned, or `offsets`: of each queue the one to go on at. Waits for the brokers.

        Raises ConfigError for a queue that is not held, BrokerError, RemotingError, ClosedError.
        """
        await self._ask(Commit(None if offsets is None else dict(offsets)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset of any queue, as its broker has it; None without one."""
        offset = await self._ask(Committed(queue))
        assert offset is None or isinstance(offset, int)
        return offset

    # -- queues ------------------------------------------------------------------------------------

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Read these queues and no others, without a share of the group's; before the start or after it."""
        call = self.assign_later(queues, expression, sql)
        if call is not None:
            await self._ask(call)

    async def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are read now, sorted."""
        queues = await self._ask(Assignment())
        assert isinstance(queues, tuple)
        return queues

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read, by the nameserver's word of now. Raises RouteError."""
        queues = await self._ask(FetchQueues(topic))
        assert isinstance(queues, tuple)
        return queues

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset of a queue that is held. Raises ConfigError where it has no such offset."""
        await self._ask(Seek(queue, offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that the broker still has."""
        await self._ask(Seek(queue, Bound.BEGIN))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that comes."""
        await self._ask(Seek(queue, Bound.END))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues until `resume`. They are still this member's."""
        await self._ask(PauseQueues(tuple(queues)))

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that were paused."""
        await self._ask(ResumeQueues(tuple(queues)))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the broker still has."""
        return await self._offset(MinOffset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await self._offset(MaxOffset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time, in ms since the epoch, or later."""
        return await self._offset(OffsetForTimestamp(queue, timestamp_ms))

    async def state(self) -> ConsumerState:
        """Members seen, queues held, offsets next to commit and recent rates, at this moment."""
        state = await self._ask(Describe())
        assert isinstance(state, ConsumerState)
        return state

    # -- the node ----------------------------------------------------------------------------------

    async def _offset(self, call: MinOffset | MaxOffset | OffsetForTimestamp) -> int:
        offset = await self._ask(call)
        assert isinstance(offset, int)
        return offset

    async def _ask(self, call: Call[object]) -> object:
        return await self._live().ask(call)

    def _live(self) -> Driver:
        if self._driver is None:
            raise ClosedError("the consumer is not running; use `async with` or start()")
        return self._driver

    def _on_hand(self, ticket: int, handed: object) -> None:
        assert self._runners is not None
        self._runners.put(ticket, handed)
