# Written by tools/shells.py from client/aio/pull.py: change that one, then `./dev generate`.
"""The blocking pull consumer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from steelyard.allocate.plan import Strategy
from steelyard.checks import PositiveInt32
from steelyard.client.application import ChangeHook
from steelyard.client.arguments import checked
from steelyard.client.blocking.client import Client
from steelyard.client.blocking.running import Running
from steelyard.client.interceptors import Interceptor
from steelyard.client.keywords import ConsumerSettings
from steelyard.client.pulling import Pulling, RetryDelayLevel, pull_call
from steelyard.client.serialization import Deserialize
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
from steelyard.wire.remoting.message import Body, MessageView

if TYPE_CHECKING:
    import ssl


@checked
class PullConsumer(Pulling[Body], Client):
    """Reads the queues and offsets given by the caller, who keeps track (DefaultMQPullConsumer).

    >>> with PullConsumer("g", "127.0.0.1:9876") as consumer:  # doctest: +SKIP
    ...     for queue in consumer.queues("Orders"):
    ...         offset = consumer.committed(queue) or 0
    ...         result = consumer.pull(queue, offset, "fruit || nuts")
    ...         print(result.status, [message.body for message in result.messages])
    ...         consumer.commit(queue, result.next_begin_offset)

    `balanced(topic)` returns its share of a registered topic's queues, by the group's member list
    and the strategy. `on_queues_changed(topic, all, mine)` is called when that changes; it may be a
    coroutine function. There is no hand-over: two members may briefly read a queue at once.

    >>> consumer = PullConsumer("g", "127.0.0.1:9876").register("Orders")
    >>> consumer.start()  # doctest: +SKIP
    >>> for queue in consumer.balanced("Orders"): ...  # doctest: +SKIP

    - `group`: members of one group share the queues and the committed offsets.
    - `nameservers`: host:port, several separated by `;`, or a list; default: the variable
      NAMESRV_ADDR, or 127.0.0.1:9876.
    - `allocate`: a strategy, a function `(claims, queues) -> Plan`, instead of the setting
      `strategy`; it must be the same in every member.
    - `client_id`: `ip@name`, unique in the group; default: generated.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or
      those in the file SSL_CERT_FILE); an ssl.SSLContext is used as configured.
    - `deserializer`: a function of bytes, or an object with a method
      `deserialize(topic, properties, data)`; messages then have what it returns as `value`. If it
      raises, `pull` returns the messages before that one, and the pull from there raises
      DeserializationError; the next offset is `error.offset + 1`.
    - `interceptors`: are told of every message that a pull returns, in this order.
    - `config`: settings as a ConsumerConfig. Each may be given by name instead.

    Any number of threads may share one; many pulls may be in flight at once. All calls raise
    RouteError, RemotingError, BrokerError or ClosedError, and ConfigError for an invalid argument;
    nothing is retried. A LitePullConsumer, in contrast, prefetches, commits and hands over queues
    itself.
    """

    def __init__(
        self,
        group: str | None = None,
        nameservers: str | Sequence[str] | None = None,
        *,
        on_queues_changed: ChangeHook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        deserializer: Deserialize[Body] | None = None,
        interceptors: Sequence[Interceptor] | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        super().__init__(
            config,
            given,
            on_queues_changed,
            allocate=allocate,
            interceptors=interceptors,
            deserializer=deserializer,
            tls=tls,
        )

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: Seconds | None = None) -> Self:
        """Start, and join the group if topics are registered. `with` calls this.

        Waits up to a second for a first response from the servers. Raises what they reject:
        ConfigError for a subscription, RouteError for a topic that does not exist and is not
        created automatically. While the servers are unreachable, a warning is logged and the client
        keeps trying. With `timeout`, in seconds, waits until they are reached, or raises
        ConnectError with the cause. After an error the consumer is closed.
        """
        self._check_open()
        node, application = self.make()
        workers = 1 if self.config.queue_changes else 0
        running = Running(
            node,
            self._logged_as,
            application,
            workers,
            tls=self._tls,
            address_translation=self.config.address_translation,
        )
        self._begin(running, timeout)
        return self

    def close(self) -> None:
        """Leave the group and close; pending calls end with ClosedError.

        `with` calls this. May be called again.
        """
        self._end(Stop())

    stop = close

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
    ) -> PullResult[Body]:
        """Return messages of one queue from `offset` that match the expression or SQL92 condition.

        `hold_ms`: how long the broker may wait for a message at the end of the queue. `timeout_ms`:
        default: 10 s more than that. Apache brokers return at most 32 messages, 8 from disk.
        """
        call = pull_call(queue, offset, expression, sql, max_messages, hold_ms, timeout_ms)
        began_at_ns = self._interception.is_on and time.time_ns()
        return self._pulled(self._live().ask(call), began_at_ns)

    def send_back(self, message: MessageView[Any], delay_level: RetryDelayLevel = 0) -> None:
        """Send a message to the group's retry topic, to be delivered again after a growing delay.

        `delay_level` 1 to 18 sets the delay; -1 sends it to the dead-letter topic at once.
        """
        self._live().ask(SendBack(message, delay_level))

    # -- offsets -----------------------------------------------------------------------------------

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset; None without one."""
        return self._live().ask(QueryConsumerOffset(queue))

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit the next offset to read. Waits for the broker."""
        self._live().ask(CommitOffset(queue, offset))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that the broker still has."""
        return self._live().ask(MinOffset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        return self._live().ask(MaxOffset(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at that time (in ms) or later."""
        return self._live().ask(OffsetForTimestamp(queue, timestamp_ms))

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all readable queues of a topic, asking the nameservers now."""
        return self._live().ask(FetchQueues(topic))

    def balanced(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return this member's share of a registered topic; waits for the first rebalance."""
        return self._live().ask(Balanced(topic))
