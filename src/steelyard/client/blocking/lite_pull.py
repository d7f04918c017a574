# Written by tools/shells.py from client/aio/lite_pull.py: change that one, then `./dev generate`.
"""The blocking lite pull consumer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, Unpack

from steelyard.allocate.plan import Strategy
from steelyard.checks import Positive
from steelyard.client.application import ChangeHook, Functions, Hook
from steelyard.client.arguments import checked
from steelyard.client.blocking.client import Client
from steelyard.client.blocking.running import Running
from steelyard.client.interceptors import Interceptor
from steelyard.client.keywords import LitePullSettings
from steelyard.client.polling import Polling
from steelyard.client.serialization import Deserialize
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
from steelyard.wire.remoting.message import Body, MessageView

if TYPE_CHECKING:
    import ssl


@checked
class LitePullConsumer(Polling[Body], Client):
    """A consumer that the application polls, instead of a listener (DefaultLitePullConsumer).

    >>> consumer = LitePullConsumer("g", "127.0.0.1:9876").subscribe("Orders")
    >>> with consumer:  # doctest: +SKIP
    ...     while True:
    ...         for message in consumer.poll():
    ...             print(message.queue_offset, message.body)

    What a poll returned counts as consumed when the next poll begins, and is committed every
    `commit_interval_ms`; messages of a poll that no other follows are delivered again after a
    restart. With `auto_commit=False` only `commit()` commits:

    >>> messages = consumer.poll()  # doctest: +SKIP
    >>> write_all(messages)  # doctest: +SKIP
    >>> consumer.commit()  # doctest: +SKIP

    With `subscribe` the consumer has a share of the queues, which changes as members of the group
    join and leave. A queue that moves to another member waits, for at most `drain_timeout_ms`,
    until its polled messages are consumed. With `assign` instead it reads the given queues:

    >>> consumer = LitePullConsumer("g", "127.0.0.1:9876").start()  # doctest: +SKIP
    >>> queues = consumer.queues("Orders")  # doctest: +SKIP
    >>> consumer.assign(queues[:2])  # doctest: +SKIP
    >>> for queue in consumer.assignment():  # doctest: +SKIP
    ...     consumer.seek(queue, consumer.offset_for_timestamp(queue, yesterday_ms))

    - `group`: members of one group share the queues and the committed offsets.
    - `nameservers`: host:port, several separated by `;`, or a list; default: the variable
      NAMESRV_ADDR, or 127.0.0.1:9876.
    - `on_assigned(queues)` is called before newly assigned queues are pulled, for seeks;
      `on_revoked(queues)` before queues move to another member, for commits; `on_lost(queues)` when
      another member may already have them. They are called one at a time, and may be coroutine
      functions.
    - `on_queues_changed(topic, all, mine)` is called for every new share, and when a topic gets or
      loses queues.
    - `message_model` BROADCASTING: every member reads everything and keeps its offsets in its own
      file, `offsets_folder/client id/group/offsets.json`. Two members on one machine need different
      `client_id`s.
    - `allocate`: a strategy, a function `(claims, queues) -> Plan`, instead of the setting
      `strategy`; it must be the same in every member.
    - `client_id`: `ip@name`, unique in the group; default: generated.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or
      those in the file SSL_CERT_FILE); an ssl.SSLContext is used as configured.
    - `deserializer`: a function of bytes, or an object with a method
      `deserialize(topic, properties, data)`; messages then have what it returns as `value`. If it
      raises, `poll` returns the messages before that one, and a later poll raises
      DeserializationError, again and again until `seek` passes the message:
      `consumer.seek(error.queue, error.offset + 1)`.
    - `interceptors`: are told of every message that a poll returns, in this order.
    - `config`: settings as a LitePullConfig. Each may be given by name instead.

    Any thread may call it, but only one may poll at a time. A poll that is cancelled, by
    `blocking.timeout` for instance, loses nothing: its messages are returned by the next one.
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
        deserializer: Deserialize[Body] | None = None,
        interceptors: Sequence[Interceptor] | None = None,
        config: LitePullConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[LitePullSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        functions = Functions(None, None, on_assigned, on_revoked, on_lost, on_queues_changed)
        super().__init__(
            config,
            given,
            functions,
            allocate=allocate,
            interceptors=interceptors,
            deserializer=deserializer,
            tls=tls,
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group, or start to read the assigned queues. `with` calls this.

        Waits up to a second for a first response from the servers. Raises what they reject:
        ConfigError for a subscription, RouteError for a topic that does not exist and is not
        created automatically. While the servers are unreachable, a warning is logged and the client
        keeps trying. With `timeout`, in seconds, waits until they are reached, or raises
        ConnectError with the cause. After an error the consumer is closed.
        """
        self._check_open()
        node, application, assign = self.make()
        running = Running(
            node,
            "consumer",
            application,
            1,
            on_keep=self.on_keep,
            tls=self._tls,
            address_translation=self.config.address_translation,
        )
        self._begin(running, timeout, *assign)
        return self

    def close(self) -> None:
        """Commit what is consumed and leave; the last poll only if `commit` was called.

        `with` calls this. May be called again.
        """
        self._end(Stop())

    stop = close

    # -- messages ----------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: int | None = None, max_messages: Positive | None = None
    ) -> list[MessageView[Body]]:
        """Return messages of the held queues, oldest first in each; none after `timeout_ms`.

        Defaults: the settings `poll_timeout_ms` and `pull_batch`. Raises ConfigError, ClosedError,
        and DeserializationError if the deserializer fails on the first message.
        """
        call = self.poll_call(timeout_ms, max_messages)
        began_at_ns = self._interception.is_on and time.time_ns()
        running = self._live()
        messages: list[MessageView[Any]] = list(running.poll(call, GiveBack(call.number)))
        seen = 0
        try:
            seen = self._deserializer.seen(messages)
        finally:
            if seen < len(messages):  # without waiting: calls are handled in their order
                future = running.ask_later(GiveBack(call.number, seen))
                future.add_done_callback(Future.exception)
        del messages[seen:]
        if messages and self._interception.is_on:
            config = self.config
            self._interception.received(messages, config.group, config.client_id, began_at_ns)
        return messages

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit everything that polls returned, or `offsets`: the next offset to read per queue.

        Waits for the brokers. Raises ConfigError for a queue that is not held, BrokerError,
        RemotingError, ClosedError.
        """
        self._live().ask(Commit(None if offsets is None else dict(offsets)))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset of any queue from its broker; None without one."""
        return self._live().ask(QueryConsumerOffset(queue))

    # -- queues ------------------------------------------------------------------------------------

    def assign(
        self, queues: Iterable[MessageQueue], expression: str = "*", *, sql: str | None = None
    ) -> None:
        """Read these queues and no others, without group assignment; before or after the start."""
        call = self.assign_later(queues, expression, sql)
        if call is not None:
            self._live().ask(call)

    def assignment(self) -> tuple[MessageQueue, ...]:
        """Return the queues read at present, sorted."""
        return self._live().ask(Assignment())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all readable queues of a topic, asking the nameservers now. Raises RouteError."""
        return self._live().ask(FetchQueues(topic))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset of a held queue. Raises ConfigError if it does not exist."""
        self._live().ask(Seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the first message that the broker still has."""
        self._live().ask(Seek(queue, Bound.BEGIN))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with the next new message."""
        self._live().ask(Seek(queue, Bound.END))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Neither pull nor return messages of these queues until `resume`. They stay assigned."""
        self._live().ask(PauseQueues(tuple(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume paused queues."""
        self._live().ask(ResumeQueues(tuple(queues)))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that the broker still has."""
        return self._live().ask(MinOffset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        return self._live().ask(MaxOffset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at that time (in ms) or later."""
        return self._live().ask(OffsetForTimestamp(queue, timestamp_ms))

    def state(self) -> ConsumerState:
        """Return the current members, held queues, offsets to commit next and recent rates."""
        return self._live().ask(Describe())
