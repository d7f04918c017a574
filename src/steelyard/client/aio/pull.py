"""The asyncio pull consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from steelyard.allocate.plan import Strategy
from steelyard.checks import PositiveInt32
from steelyard.client.aio.client import Client
from steelyard.client.aio.running import Running
from steelyard.client.application import ChangeHook
from steelyard.client.arguments import checked
from steelyard.client.keywords import ConsumerSettings
from steelyard.client.pulling import Pulling, RetryDelayLevel, pull_call
from steelyard.client.settings import Seconds
from steelyard.config import ConsumerConfig
from steelyard.nodes.consumer.remoting.contract import Stop
from steelyard.nodes.consumer.remoting.puller import Balanced
from steelyard.nodes.consumer.remoting.questions import (
    CommitOffset,
    FetchQueues,
    MaxOffset,
    MinOffset,
    OffsetForTimestamp,
    PullResult,
    QueryConsumerOffset,
    SendBack,
)
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl


@checked
class PullConsumer(Pulling, Client):
    """Reads the queues and offsets that it is told to, and leaves the account to the caller (DefaultMQPullConsumer).

    >>> async with PullConsumer("g", "127.0.0.1:9876") as consumer:       # doctest: +SKIP
    ...     for queue in await consumer.queues("Orders"):
    ...         offset = await consumer.committed(queue) or 0
    ...         result = await consumer.pull(queue, offset, "fruit || nuts")
    ...         print(result.status, [message.body for message in result.messages])
    ...         await consumer.commit(queue, result.next_begin_offset)

    Of the topics that were registered it has a share of the queues, by the member list of its group and the strategy:
    `balanced(topic)`. `on_queues_changed(topic, all, mine)` is called when that changes; it may be a coroutine function.
    Nobody hands anything over: two members may read a queue at once for a moment.

    >>> consumer = await PullConsumer("g", "127.0.0.1:9876").register("Orders").start()    # doctest: +SKIP
    >>> for queue in await consumer.balanced("Orders"): ...                                # doctest: +SKIP

    - `group`: members of one group share the queues, and the committed offsets.
    - `nameservers`: host:port, several separated by `;`, or a list of them; the variable NAMESRV_ADDR unless given, or
      127.0.0.1:9876.
    - `allocate`: a strategy, a function `(claims, queues) -> Plan`, in place of the one that the setting `strategy` names;
      the same in every member.
    - `client_id`: `ip@name`, unique in the group; made up unless given.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or those in the file
      SSL_CERT_FILE); an ssl.SSLContext does as it is made.
    - `config`: settings as one object, a ConsumerConfig. Each may be given by its name instead.

    Any number of tasks may share one; many pulls may be under way at once. All calls raise RouteError,
    RemotingError, BrokerError or ClosedError, and ConfigError where an argument makes no sense; nothing is tried again.
    A LitePullConsumer, unlike this one, pulls ahead, commits and hands queues over by itself.
    """

    def __init__(
        self,
        group: str | None = None,
        nameservers: str | Sequence[str] | None = None,
        *,
        on_queues_changed: ChangeHook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        super().__init__(config, given, on_queues_changed, allocate=allocate, tls=tls)

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Start, and join the group if topics are registered. `async with` does it.

        The start waits a moment for the first news of the servers. What they reject raises: ConfigError for a subscription,
        RouteError for a topic that nobody makes. While they cannot be reached a warning says so, and they are tried on. With
        `timeout`, in seconds, it waits until they are reached, and raises ConnectError with the cause where they are not.
        After an error the consumer is closed.
        """
        self._check_open()
        node, application = self.make()
        workers = 1 if self.config.queue_changes else 0
        running = Running(node, "consumer", application, workers, tls=self._tls)
        await self._begin(running, timeout)
        return self

    async def close(self) -> None:
        """Leave the group and close. Calls under way end with ClosedError. `async with` does it. May be called again."""
        await self._end(Stop())

    stop = close

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
        return await self._live().ask(call)

    async def send_back(self, message: MessageView, delay_level: RetryDelayLevel = 0) -> None:
        """Have the group's retry topic bring the message again: after a delay that grows with each time, or that
        of `delay_level` 1 to 18; -1 puts it among the dead letters at once."""
        await self._live().ask(SendBack(message, delay_level))

    # -- offsets -----------------------------------------------------------------------------------

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None without one."""
        return await self._live().ask(QueryConsumerOffset(queue))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the offset to go on at. Waits for the broker."""
        await self._live().ask(CommitOffset(queue, offset))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the broker still has."""
        return await self._live().ask(MinOffset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await self._live().ask(MaxOffset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time, in ms since the epoch, or later."""
        return await self._live().ask(OffsetForTimestamp(queue, timestamp_ms))

    # -- queues ------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read, by the nameserver's word of now."""
        return await self._live().ask(FetchQueues(topic))

    async def balanced(self, topic: str) -> tuple[MessageQueue, ...]:
        """This member's share of a registered topic; waits for the first rebalance."""
        return await self._live().ask(Balanced(topic))
