# Written by tools/shells.py from client/aio/producer.py: change that one, then `./dev generate`.
"""The blocking producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from steelyard.client import producing
from steelyard.client.arguments import checked
from steelyard.client.blocking.client import Client
from steelyard.client.blocking.running import Running
from steelyard.client.blocking.workers import CHECKS_AT_ONCE, settled
from steelyard.client.interceptors import Interception, Interceptor
from steelyard.client.keywords import ProducerSettings
from steelyard.client.producing import (
    Checks,
    MessageFields,
    Says,
    Selector,
    Sent,
    as_message,
    as_reply,
)
from steelyard.client.serialization import BodySerializer, Serialize
from steelyard.client.settings import Seconds, tls_context
from steelyard.config import ProducerConfig
from steelyard.driver.identity import new_ids
from steelyard.errors import MessageError, SteelyardError
from steelyard.nodes.producer import (
    EndTransaction,
    FetchQueues,
    ProducerNode,
    RecallMessage,
    SendHalf,
    SendMessages,
    SendOneway,
    SendReply,
    SendRequest,
    Stop,
)
from steelyard.nodes.seam import Call
from steelyard.types import Message, MessageQueue, SendResult, TransactionResult, TransactionState
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


@checked
class Producer(Client, Generic[Sent]):
    """Sends messages and waits for the broker's response. Any number of threads may share one.

    >>> with Producer("orders", "127.0.0.1:9876") as producer:  # doctest: +SKIP
    ...     result = producer.send("Orders", b"one apple", tags="fruit", keys="order-1")
    ...     print(result.queue, result.queue_offset)

    Many sends may be in flight at once; they are combined into few writes.

    - `group`: the producers of a group answer for each other's transactions; default:
      DEFAULT_PRODUCER.
    - `nameservers`: host:port, several separated by `;`, or a list; default: the variable
      NAMESRV_ADDR, or 127.0.0.1:9876.
    - `transaction_check`: a function or coroutine function, called with a message sent in a
      transaction by any member of the group, when a broker asks for the transaction's state. It
      returns True or COMMIT, False or ROLLBACK, None or UNKNOWN. Brokers ask producers that have
      sent to one of their topics, or asked for its `queues`.
    - `client_id`: `ip@name`, unique in the group; default: generated.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or
      those in the file SSL_CERT_FILE); an ssl.SSLContext is used as configured.
    - `serializer`: a function that returns bytes, or an object with a method
      `serialize(topic, properties, data)`; it makes the bytes of every body that is given with a
      topic. The body of a Message is sent as it is.
    - `interceptors`: are told of every message that is sent, in this order.
    - `config`: settings as a ProducerConfig. Each may be given by name instead.
    """

    def __init__(
        self,
        group: str | None = None,
        nameservers: str | Sequence[str] | None = None,
        *,
        transaction_check: Callable[[MessageView], Says] | None = None,
        client_id: str | None = None,
        serializer: Serialize[Sent] | None = None,
        interceptors: Sequence[Interceptor] | None = None,
        config: ProducerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        checks = transaction_check is not None
        self.config = producing.producer_config(config, given, checks=checks)
        self._application = Checks(transaction_check)
        self._interception = Interception(interceptors)
        self._serializer = None if serializer is None else BodySerializer(serializer)
        self._tls = tls_context(tls)

    def start(self, timeout: Seconds | None = None) -> Self:
        """Start the producer; `with` calls this.

        Waits up to a second for a first response from the servers. While they are unreachable, a
        warning is logged and the client keeps trying. With `timeout`, in seconds, waits until they
        are reached, or raises ConnectError with the cause. After an error the producer is closed.
        """
        self._check_open()
        if self._running is None:
            node = ProducerNode(self.config, new_ids(), SystemRandom())
            workers = CHECKS_AT_ONCE if self.config.checks else 0
            running = Running(
                node,
                "producer",
                self._application,
                workers,
                tls=self._tls,
                address_translation=self.config.address_translation,
            )
            self._begin(running, timeout)
        return self

    def close(self) -> None:
        """Finish sends in flight, unregister from the brokers, and close.

        `with` calls this. May be called again.
        """
        self._end(Stop())

    stop = close

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        message: Message | str,
        body: Sent | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send a `Message`, or `body` to the given topic, and wait until a broker has stored it.

        Messages with the same `sharding_key` go to the same queue. `queue` names the queue,
        `selector(queues, message)` chooses it, and such sends are not retried; otherwise the
        producer chooses, and tries another broker after a failure. Raises MessageError,
        SerializationError, RouteError, BrokerError, RemotingError (after the retries), ClosedError.
        """
        whole = as_message(message, body, fields, self._serializer)
        if selector is not None:
            queue = self._selected(selector, whole, queue, timeout_ms)
        return self._send(SendMessages((whole,), queue, timeout_ms))

    def send_async(
        self,
        message: Message | str,
        body: Sent | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> Future[SendResult]:
        """Send and return at once; the future gets the result or the error, as for `send`.

        A `selector` is called immediately, or after waiting for the topic's route if it is not
        known yet. The future's callbacks run in the event loop's thread: they must be quick and
        must not block.
        """
        whole = as_message(message, body, fields, self._serializer)
        if selector is not None:
            queue = self._selected(selector, whole, queue, timeout_ms)
        running = self._live()
        call: Call[SendResult] = SendMessages((whole,), queue, timeout_ms)
        if not self._interception.is_on:
            return running.ask_later(call)
        call, context = self._interception.sending(call, self.config)
        future = running.ask_later(call)
        future.add_done_callback(self._interception.when_sent(context))
        return future

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request: stored all or none, in order, in one queue."""
        return self._send(SendMessages(tuple(messages), queue, timeout_ms))

    def send_oneway(
        self,
        message: Message | str,
        body: Sent | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send without waiting for a broker: may be lost without notice.

        Invalid messages still raise.
        """
        whole = as_message(message, body, fields, self._serializer)
        if selector is not None:
            queue = self._selected(selector, whole, queue)
        self._send(SendOneway((whole,), queue))

    # -- transactions ------------------------------------------------------------------------------

    def send_in_transaction(
        self,
        message: Message | str,
        body: Sent | None = None,
        *,
        execute: Callable[[Message], Says],
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionResult:
        """Send a message that consumers see only if `execute` commits.

        Once a broker has stored the message, `execute(message)` is called here; it may be a
        coroutine function. The property UNIQ_KEY of its message is the transaction's id, which is
        `message_id` in `transaction_check`. True or COMMIT delivers the message to consumers, False
        or ROLLBACK drops it; after None, UNKNOWN or an exception, which is logged, the broker later
        asks `transaction_check`. A `delay_level` is ignored, `delay_ms` counts from the commit.
        Raises as `send` does; then nothing is executed.
        """
        whole = as_message(message, body, fields, self._serializer)
        running = self._live()
        half = self._send(SendHalf(whole, timeout_ms))
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
        body: Sent | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> MessageView:
        """Send a message and wait for a consumer's reply; `timeout_ms` covers both.

        Raises CallTimeoutError if no reply arrives, and otherwise as `send` does.
        """
        whole = as_message(message, body, fields, self._serializer)
        if selector is not None:
            queue = self._selected(selector, whole, queue, timeout_ms)
        return self._send(SendRequest(whole, queue, timeout_ms))

    def reply(
        self,
        request: MessageView[Any],
        body: Sent,
        *,
        timeout_ms: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Reply to a request received by a consumer; returns once the requester has the reply.

        Raises MessageError if `request` is not a request, BrokerError if the requester is gone, and
        otherwise as `send` does.
        """
        whole = as_reply(request, body, fields, self._serializer)
        return self._send(SendReply(whole, request, timeout_ms))

    # -- recall ------------------------------------------------------------------------------------

    def recall(self, recall_handle: str | None, *, timeout_ms: int | None = None) -> str:
        """Take back a message sent with `delay_ms` or `deliver_at_ms`; return its id.

        `recall_handle` is that of the SendResult. A message that was recalled in time is never
        delivered; one that was delivered already, or never existed, is no error up to the time when
        it is due, and BrokerError with code 604 afterwards. Raises MessageError if this is not a
        handle, RouteError, BrokerError, CallTimeoutError, RemotingError, ClosedError.
        """
        return self._live().ask(RecallMessage(recall_handle or "", timeout_ms))

    # -- queues ------------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the writable queues of a topic; for one to be created, those that it would get.

        Raises RouteError if not even the default topic has a route.
        """
        return self._live().ask(FetchQueues(topic))

    def _send(self, call: Call[T]) -> T:
        """Pass a send to the node, and tell the interceptors of it."""
        running = self._live()
        if not self._interception.is_on:
            return running.ask(call)
        call, context = self._interception.sending(call, self.config)
        try:
            result = running.ask(call)
        except BaseException as error:
            self._interception.sent(context, None, error)
            raise
        self._interception.sent(context, result, None)
        return result

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
