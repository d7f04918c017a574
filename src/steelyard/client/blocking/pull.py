"""The blocking pull consumer."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.allocate.plan import Strategy
from steelyard.checks import PositiveInt32
from steelyard.client.application import ChangeHook
from steelyard.client.arguments import checked
from steelyard.client.blocking.push import work_for
from steelyard.client.blocking.running import Running
from steelyard.client.pulling import Pulling, RetryDelayLevel, pull_call
from steelyard.client.settings import Seconds, begin_call
from steelyard.client.workers import Workers
from steelyard.config import ConsumerConfig
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
    """Reads the queues and offsets that it is told to, and leaves the account to the caller (DefaultMQPullConsumer).

    >>> with PullConsumer("g", "127.0.0.1:9876") as consumer:             # doctest: +SKIP
    ...     for queue in consumer.queues("Orders"):
    ...         offset = consumer.committed(queue) or 0
    ...         result = consumer.pull(queue, offset, "fruit || nuts")
    ...         print(result.status, [message.body for message in result.messages])
    ...         consumer.commit(queue, result.next_begin_offset)

    Of the topics that were registered it has a share of the queues, by the member list of its group and the strategy:
    `balanced(topic)`. `on_queues_changed(topic, all, mine)` is called, in a thread of its own, when that changes. Nobody
    hands anything over: two members may read a queue at once for a moment.

    >>> consumer = PullConsumer("g", "127.0.0.1:9876").register("Orders").start()          # doctest: +SKIP
    >>> for queue in consumer.balanced("Orders"): ...                                      # doctest: +SKIP

    `allocate`, `tls`: as of `steelyard.PushConsumer`. Any number of threads may share one. All calls raise RouteError,
    RemotingError, BrokerError or ClosedError, and ConfigError where an argument makes no sense; nothing is tried again.
    `steelyard.LitePullConsumer` pulls ahead, commits and hands queues over by itself; `steelyard.aio.PullConsumer` is
    this for asyncio.
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
        self._running: Running | None = None
        self._workers: Workers[tuple[int, object]] | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: Seconds | None = None) -> Self:
        """Start, and join the group if topics are registered. `with` does it.

        The start waits a moment for the first news of the servers; what they reject raises (ConfigError for a subscription, RouteError for a topic that nobody
        makes), and while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        node, application = self.make()
        running = Running(node, "consumer", self._on_hand, tls=self._tls)
        if self.config.queue_changes:
            name = f"steelyard-{self.config.group}"
            self._workers = Workers(1, work_for(application, running), name)
        self._running = running
        running.start()
        try:
            running.call(begin_call(timeout))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Leave the group and close. Calls under way end with ClosedError."""
        running, self._running = self._running, None
        if running is None:
            return
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

    # -- messages ----------------------------------------------------------------------------------

    def pull(
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
        result = self._ask(call)
        assert isinstance(result, PullResult)
        return result

    def send_back(self, message: MessageView, delay_level: RetryDelayLevel = 0) -> None:
        """Have the group's retry topic bring the message again: after a delay that grows with each time, or that
        of `delay_level` 1 to 18; -1 puts it among the dead letters at once."""
        self._ask(SendBack(message, delay_level))

    # -- offsets -----------------------------------------------------------------------------------

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset; None without one."""
        offset = self._ask(Committed(queue))
        assert offset is None or isinstance(offset, int)
        return offset

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the offset to go on at. Waits for the broker."""
        self._ask(CommitOffset(queue, offset))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the broker still has."""
        return self._offset(MinOffset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return self._offset(MaxOffset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time, in ms since the epoch, or later."""
        return self._offset(OffsetForTimestamp(queue, timestamp_ms))

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read, by the nameserver's word of now."""
        return self._queues(FetchQueues(topic))

    def balanced(self, topic: str) -> tuple[MessageQueue, ...]:
        """This member's share of a registered topic; waits for the first rebalance."""
        return self._queues(Balanced(topic))

    # -- the node ----------------------------------------------------------------------------------

    def _offset(self, call: MinOffset | MaxOffset | OffsetForTimestamp) -> int:
        offset = self._ask(call)
        assert isinstance(offset, int)
        return offset

    def _queues(self, call: FetchQueues | Balanced) -> tuple[MessageQueue, ...]:
        queues = self._ask(call)
        assert isinstance(queues, tuple)
        return queues

    def _ask(self, call: Call[object]) -> object:
        if self._running is None:
            raise ClosedError("the consumer is not running; use `with` or start()")
        return self._running.call(call)

    def _on_hand(self, ticket: int, handed: object) -> None:
        assert self._workers is not None
        self._workers.put((ticket, handed))
