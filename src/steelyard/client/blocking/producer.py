# Written by tools/shells.py from client/aio/producer.py: change that one, then `./dev generate`.
"""The blocking producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import SystemRandom
from typing import TYPE_CHECKING, Self, Unpack

from steelyard.client import producing
from steelyard.client.arguments import checked
from steelyard.client.blocking.client import Client
from steelyard.client.blocking.running import Running
from steelyard.client.blocking.workers import CHECKS_AT_ONCE, settled
from steelyard.client.keywords import ProducerSettings
from steelyard.client.producing import (
    Checks,
    MessageFields,
    Says,
    Selector,
    as_message,
)
from steelyard.client.settings import Seconds, tls_context
from steelyard.config import ProducerConfig
from steelyard.driver.identity import new_ids
from steelyard.errors import MessageError, SteelyardError
from steelyard.nodes.producer import (
    EndTransaction,
    FetchQueues,
    ProducerNode,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
    Stop,
)
from steelyard.produce.outgoing import reply_topic
from steelyard.types import Message, MessageQueue, SendResult, TransactionResult, TransactionState
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl


@checked
class Producer(Client):
    """Sends messages, and waits for the broker's word. Any number of threads may share one.

    >>> with Producer("orders", "127.0.0.1:9876") as producer:   # doctest: +SKIP
    ...     result = producer.send("Orders", b"one apple", tags="fruit", keys="order-1")
    ...     print(result.queue, result.queue_offset)

    Many sends may be under way at once; they are gathered into few writes.

    - `group`: the producers of a group answer for each other's transactions; DEFAULT_PRODUCER unless given.
    - `nameservers`: host:port, several separated by `;`, or a list of them; the variable NAMESRV_ADDR unless given, or
      127.0.0.1:9876.
    - `transaction_check`: a function or coroutine function, called with a message sent in a transaction by any member of the
      group, when a broker asks what became of it. It returns True or COMMIT, False or ROLLBACK, None or UNKNOWN. Brokers
      ask a producer that has sent to one of their topics, or asked for its `queues`.
    - `client_id`: `ip@name`, unique in the group; made up unless given.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or those in the file
      SSL_CERT_FILE); an ssl.SSLContext does as it is made.
    - `config`: settings as one object, a ProducerConfig. Each may be given by its name instead.
    """

    def __init__(
        self,
        group: str | None = None,
        nameservers: str | Sequence[str] | None = None,
        *,
        transaction_check: Callable[[MessageView], Says] | None = None,
        client_id: str | None = None,
        config: ProducerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        checks = transaction_check is not None
        self.config = producing.producer_config(config, given, checks=checks)
        self._application = Checks(transaction_check)
        self._tls = tls_context(tls)

    def start(self, timeout: Seconds | None = None) -> Self:
        """Start. `with` does it.

        The start waits a moment for the first news of the servers. While they cannot be reached a warning says so, and they
        are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with the cause where
        they are not. After an error the producer is closed.
        """
        self._check_open()
        if self._running is None:
            node = ProducerNode(self.config, new_ids(), SystemRandom())
            workers = CHECKS_AT_ONCE if self.config.checks else 0
            running = Running(node, "producer", self._application, workers, tls=self._tls)
            self._begin(running, timeout)
        return self

    def close(self) -> None:
        """Let what is under way end, unregister from the brokers, close. `with` does it. May be called again."""
        self._end(Stop())

    stop = close

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send a `Message`, or `body` to the topic named, and wait until a broker has stored it.

        Messages of one `sharding_key` go to one queue. `queue` names it, `selector(queues, message)` chooses it,
        and such sends are tried once; otherwise the producer chooses, and another broker's after a failure. Raises
        MessageError, RouteError, BrokerError, RemotingError (after the retries), ClosedError.
        """
        whole = as_message(message, body, fields)
        if selector is not None:
            queue = self._selected(selector, whole, queue, timeout_ms)
        return self._live().ask(SendMessages((whole,), queue, timeout_ms))

    def send_async(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Future[SendResult]:
        """Send and return at once; the future brings the result or the error, those of `send`.

        A `selector` is called here and now, after a wait for the topic's route where it is not known yet. The
        future's callbacks run in the event loop's thread: they must be quick and must not wait.
        """
        whole = as_message(message, body, fields)
        if selector is not None:
            queue = self._selected(selector, whole, queue, timeout_ms)
        return self._live().ask_later(SendMessages((whole,), queue, timeout_ms))

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request: stored all or none, in order, in one queue."""
        return self._live().ask(SendMessages(tuple(messages), queue, timeout_ms))

    def send_oneway(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send without waiting for a broker: may be lost without notice. Wrong messages still raise."""
        whole = as_message(message, body, fields)
        if selector is not None:
            queue = self._selected(selector, whole, queue)
        self._live().ask(SendOneway((whole,), queue))

    # -- transactions ------------------------------------------------------------------------------

    def send_in_transaction(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        execute: Callable[[Message], Says],
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionResult:
        """Send a message that consumers see only if `execute` commits.

        Once a broker has the message, `execute(message)` is called, here; it may be a coroutine function. The property
        UNIQ_KEY of its message is the transaction's id, which is `message_id` in `transaction_check`. True or COMMIT lets
        consumers have the message, False or ROLLBACK drops it; None, UNKNOWN or an exception, which is logged, make the
        broker ask `transaction_check` later. A delay of the message is ignored. Raises as `send` does, then nothing is
        executed.
        """
        whole = as_message(message, body, fields)
        running = self._live()
        half = running.ask(SendHalf(whole, timeout_ms))
        state, remark = producing.fate_without_execute(half), ""
        if state is None:
            state = TransactionState.UNKNOWN
            try:
                returned = settled(execute(producing.executed_message(whole, half)))
                state = producing.transaction_state(returned)
            except Exception as error:
                remark = producing.failed_remark(error, half)
        try:
            running.ask(EndTransaction(half, state, remark))
        except SteelyardError as error:
            producing.log.warning("%s could not be sent to the broker: %s", state.name, error)
        return TransactionResult(half.result, state)

    # -- requests ----------------------------------------------------------------------------------

    def request(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> MessageView:
        """Send a message and wait for what its consumer replies; `timeout_ms` is for all of it.

        Raises CallTimeoutError where no reply comes, and otherwise as `send` does.
        """
        whole = as_message(message, body, fields)
        if selector is not None:
            queue = self._selected(selector, whole, queue, timeout_ms)
        return self._live().ask(SendRequest(whole, queue, timeout_ms))

    def reply(
        self,
        request: MessageView,
        body: bytes | str,
        *,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Answer a request that a consumer was given; returns once the requester has the reply.

        Raises MessageError where `request` asks for no reply, BrokerError where the requester is gone, and otherwise
        as `send` does.
        """
        whole = as_message(reply_topic(request), body, fields)
        return self._live().ask(SendReply(whole, request, timeout_ms))

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Queues of a topic that can be written; of a topic still to be made, those it would get.

        Raises RouteError where not even the default topic has a route.
        """
        return self._live().ask(FetchQueues(topic))

    def _selected(
        self,
        selector: Selector,
        message: Message,
        queue: MessageQueue | None,
        timeout_ms: int | None = None,
    ) -> MessageQueue:
        if queue is not None:
            raise MessageError("give either a queue or a selector, not both")
        queues = self._live().ask(FetchQueues(message.topic, timeout_ms))
        return producing.selected(selector, queues, message)
