"""The asyncio lite pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, Unpack

from steelyard.allocate.plan import Strategy
from steelyard.checks import Positive
from steelyard.client.aio.client import Client
from steelyard.client.aio.running import Running
from steelyard.client.application import ChangeHook, Functions, Hook
from steelyard.client.arguments import checked
from steelyard.client.keywords import LitePullSettings
from steelyard.client.polling import Polling
from steelyard.client.settings import Seconds
from steelyard.config import LitePullConfig
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
    FetchQueues,
    MaxOffset,
    MinOffset,
    OffsetForTimestamp,
    QueryConsumerOffset,
)
from steelyard.types import MessageQueue
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl


@checked
class LitePullConsumer(Polling, Client):
    """A consumer that is asked for messages, instead of calling a listener (DefaultLitePullConsumer).

    >>> async with LitePullConsumer("g", "127.0.0.1:9876").subscribe("Orders") as consumer:  # doctest: +SKIP
    ...     while True:
    ...         for message in await consumer.poll():
    ...             print(message.queue_offset, message.body)

    What a poll returned counts as consumed when the next poll begins, and is committed every
    `commit_interval_ms`; messages of a poll that none follows come again after a restart. With
    `auto_commit=False` only `commit()` commits:

    >>> messages = await consumer.poll()                                                 # doctest: +SKIP
    >>> write_all(messages)                                                              # doctest: +SKIP
    >>> await consumer.commit()                                                          # doctest: +SKIP

    With `subscribe` the consumer has a share of the queues, which changes as members of the group come and go. A
    queue that goes to another member waits, for `drain_timeout_ms` at most, until what was polled of
    it is consumed. With `assign` instead it reads the queues that it is told to:

    >>> consumer = await LitePullConsumer("g", "127.0.0.1:9876").start()                  # doctest: +SKIP
    >>> queues = await consumer.queues("Orders")                                          # doctest: +SKIP
    >>> await consumer.assign(queues[:2])                                                 # doctest: +SKIP
    >>> for queue in await consumer.assignment():                                         # doctest: +SKIP
    ...     await consumer.seek(queue, await consumer.offset_for_timestamp(queue, yesterday_ms))

    - `group`: members of one group share the queues, and the committed offsets.
    - `nameservers`: host:port, several separated by `;`, or a list of them; the variable NAMESRV_ADDR unless given, or
      127.0.0.1:9876.
    - `on_assigned(queues)` is called before the first pull of queues that are now this member's: the place for a seek.
      `on_revoked(queues)` when they are about to go to another: the place for a commit. `on_lost(queues)` when another may
      have them already. One is called after the other; they may be coroutine functions.
    - `on_queues_changed(topic, all, mine)` is told of every new share, and of queues that a topic gets or loses.
    - `message_model` BROADCASTING: every member reads everything, and keeps its offsets in a file of its own,
      `offsets_folder/client id/group/offsets.json`. Two of one group on one machine need a `client_id` each.
    - `allocate`: a strategy, a function `(claims, queues) -> Plan`, in place of the one that the setting `strategy` names;
      the same in every member.
    - `client_id`: `ip@name`, unique in the group; made up unless given.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or those in the file
      SSL_CERT_FILE); an ssl.SSLContext does as it is made.
    - `config`: settings as one object, a LitePullConfig. Each may be given by its name instead.

    Any task may call it, but one polls at a time. A poll that is cancelled, by `asyncio.timeout` for instance, loses
    nothing: what it would have returned comes with the next one.
    """

    def __init__(
        self,
        group: str | None = None,
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
        **settings: Unpack[LitePullSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        functions = Functions(None, None, on_assigned, on_revoked, on_lost, on_queues_changed)
        super().__init__(config, given, functions, allocate=allocate, tls=tls)

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group, or begin to read the assigned queues. `async with` does it.

        The start waits a moment for the first news of the servers. What they reject raises: ConfigError for a subscription,
        RouteError for a topic that nobody makes. While they cannot be reached a warning says so, and they are tried on. With
        `timeout`, in seconds, it waits until they are reached, and raises ConnectError with the cause where they are not.
        After an error the consumer is closed.
        """
        self._check_open()
        node, application, assign = self.make()
        running = Running(node, "consumer", application, 1, on_keep=self.on_keep, tls=self._tls)
        await self._begin(running, timeout, *assign)
        return self

    async def close(self) -> None:
        """Commit what is consumed and leave. What the last poll returned is not, unless `commit` was called. `async with`
        does it. May be called again."""
        await self._end(Stop())

    stop = close

    # -- messages ----------------------------------------------------------------------------------

    async def poll(
        self, timeout_ms: int | None = None, max_messages: Positive | None = None
    ) -> list[MessageView]:
        """Messages of the queues held, oldest first in each; none when nothing came within `timeout_ms`.

        Without arguments the settings `poll_timeout_ms` and `pull_batch` hold. Raises ConfigError, ClosedError.
        """
        call = self.poll_call(timeout_ms, max_messages)
        return list(await self._live().poll(call, GiveBack(call.number)))

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit all that polls returned, or `offsets`: of each queue the one to go on at. Waits for the brokers.

        Raises ConfigError for a queue that is not held, BrokerError, RemotingError, ClosedError.
        """
        await self._live().ask(Commit(None if offsets is None else dict(offsets)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset of any queue, as its broker has it; None without one."""
        return await self._live().ask(QueryConsumerOffset(queue))

    # -- queues ------------------------------------------------------------------------------------

    async def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Read these queues and no others, without a share of the group's; before the start or after it."""
        call = self.assign_later(queues, expression, sql)
        if call is not None:
            await self._live().ask(call)

    async def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are read now, sorted."""
        return await self._live().ask(Assignment())

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of a topic that can be read, by the nameserver's word of now. Raises RouteError."""
        return await self._live().ask(FetchQueues(topic))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset of a queue that is held. Raises ConfigError where it has no such offset."""
        await self._live().ask(Seek(queue, offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message that the broker still has."""
        await self._live().ask(Seek(queue, Bound.BEGIN))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that comes."""
        await self._live().ask(Seek(queue, Bound.END))

    async def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues until `resume`. They are still this member's."""
        await self._live().ask(PauseQueues(tuple(queues)))

    async def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Go on with queues that were paused."""
        await self._live().ask(ResumeQueues(tuple(queues)))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that the broker still has."""
        return await self._live().ask(MinOffset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return await self._live().ask(MaxOffset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time, in ms since the epoch, or later."""
        return await self._live().ask(OffsetForTimestamp(queue, timestamp_ms))

    async def state(self) -> ConsumerState:
        """Members seen, queues held, offsets next to commit and recent rates, at this moment."""
        return await self._live().ask(Describe())
