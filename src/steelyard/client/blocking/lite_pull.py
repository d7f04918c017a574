"""The blocking lite pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.allocate.plan import Strategy
from steelyard.checks import Positive
from steelyard.client.application import ChangeHook, Functions, Hook
from steelyard.client.arguments import checked
from steelyard.client.blocking.push import work_for
from steelyard.client.blocking.running import Running
from steelyard.client.polling import Polling
from steelyard.client.settings import Seconds, begin_call
from steelyard.client.workers import Workers
from steelyard.config import LitePullConfig
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
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl


@checked
class LitePullConsumer(Polling):
    """A consumer that is asked for messages, instead of calling a listener (DefaultLitePullConsumer).

    >>> with LitePullConsumer("g", "127.0.0.1:9876").subscribe("Orders") as consumer:   # doctest: +SKIP
    ...     while True:
    ...         for message in consumer.poll():
    ...             print(message.queue_offset, message.body)

    What a poll returned counts as consumed when the next poll begins, and is committed every
    `config.commit_interval_ms`; messages of a poll that none follows come again after a restart. With
    `LitePullConfig(auto_commit=False)` only `commit()` commits:

    >>> messages = consumer.poll()                                                       # doctest: +SKIP
    >>> write_all(messages)                                                              # doctest: +SKIP
    >>> consumer.commit()                                                                # doctest: +SKIP

    With `subscribe` the consumer has a share of the queues, which changes as members of the group come and go. A
    queue that goes to another member waits, for `config.drain_timeout_ms` at most, until what was polled of
    it is consumed. With `assign` instead it reads the queues that it is told to:

    >>> consumer = LitePullConsumer("g", "127.0.0.1:9876").start()                        # doctest: +SKIP
    >>> consumer.assign(consumer.queues("Orders")[:2])                                    # doctest: +SKIP
    >>> for queue in consumer.assignment():                                               # doctest: +SKIP
    ...     consumer.seek(queue, consumer.offset_for_timestamp(queue, yesterday_ms))

    - `on_assigned(queues)` is called before the first pull of queues that are now this member's: the place for a seek.
      `on_revoked(queues)` when they are about to go to another: the place for a commit. `on_lost(queues)` when another may
      have them already. They run in a thread of their own; the others wait for them.
    - `on_queues_changed(topic, all, mine)` is told of every new share, and of queues that a topic gets or loses.
    - `config.message_model` BROADCASTING: every member reads everything, and keeps its offsets in a file of its own, whose
      place has the client id in it: see `steelyard.client.kept`.
    - `allocate`, `tls`: as of `steelyard.PushConsumer`.

    Any thread may call it, but one polls at a time. `steelyard.aio.LitePullConsumer` is the same for asyncio.
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
        self._running: Running | None = None
        self._workers: Workers[tuple[int, object]] | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group, or begin to read the assigned queues. `with` does it.

        The start waits a moment for the first news of the servers; what they reject raises (ConfigError for a subscription, RouteError for a topic that nobody
        makes), and while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        node, application, assign = self.make()
        running = Running(node, "consumer", self._on_hand, on_keep=self.on_keep, tls=self._tls)
        name = f"steelyard-{self.config.group}"
        self._workers = Workers(1, work_for(application, running), name)
        self._running = running
        running.start()
        try:
            if assign is not None:
                running.call(assign)
            running.call(begin_call(timeout))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Commit what is consumed and leave. What the last poll returned is not, unless `commit` was called."""
        running = self._running
        if running is None:
            return
        with suppress(ClosedError):  # it was stopped meanwhile
            running.close(Stop())
        self._running = None
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

    def poll(
        self, timeout_ms: int | None = None, max_messages: Positive | None = None
    ) -> list[MessageView]:
        """Messages of the queues held, oldest first in each; none when nothing came within `timeout_ms`.

        Without arguments `config.poll_timeout_ms` and `config.pull_batch` hold. Raises ConfigError, ClosedError.
        """
        call = self.poll_call(timeout_ms, max_messages)
        messages = self._live().poll(call, GiveBack(call.number))
        assert isinstance(messages, tuple)
        return list(messages)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all that polls returned, or `offsets`: of each queue the one to go on at. Waits for the brokers.

        Raises ConfigError for a queue that is not held, BrokerError, RemotingError, ClosedError.
        """
        self._live().call(Commit(None if offsets is None else dict(offsets)))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset of any queue, as its broker has it; None without one."""
        offset = self._live().call(Committed(queue))
        assert offset is None or isinstance(offset, int)
        return offset

    # -- queues ------------------------------------------------------------------------------------

    def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Read these queues and no others, without a share of the group's; before the start or after it."""
        call = self.assign_later(queues, expression, sql)
        if call is not None:
            self._live().call(call)

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are read now, sorted."""
        queues = self._live().call(Assignment())
        assert isinstance(queues, tuple)
        return queues

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read, by the nameserver's word of now. Raises RouteError."""
        queues = self._live().call(FetchQueues(topic))
        assert isinstance(queues, tuple)
        return queues

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset of a queue that is held. Raises ConfigError where it has no such offset."""
        self._live().call(Seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that the broker still has."""
        self._live().call(Seek(queue, Bound.BEGIN))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that comes."""
        self._live().call(Seek(queue, Bound.END))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues until `resume`. They are still this member's."""
        self._live().call(PauseQueues(tuple(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that were paused."""
        self._live().call(ResumeQueues(tuple(queues)))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the broker still has."""
        return self._offset(MinOffset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return self._offset(MaxOffset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time, in ms since the epoch, or later."""
        return self._offset(OffsetForTimestamp(queue, timestamp_ms))

    def state(self) -> ConsumerState:
        """Members seen, queues held, offsets next to commit and recent rates, at this moment."""
        state = self._live().call(Describe())
        assert isinstance(state, ConsumerState)
        return state

    # -- the node ----------------------------------------------------------------------------------

    def _offset(self, call: MinOffset | MaxOffset | OffsetForTimestamp) -> int:
        offset = self._live().call(call)
        assert isinstance(offset, int)
        return offset

    def _live(self) -> Running:
        if self._running is None:
            raise ClosedError("the consumer is not running; use `with` or start()")
        return self._running

    def _on_hand(self, ticket: int, handed: object) -> None:
        assert self._workers is not None
        self._workers.put((ticket, handed))
