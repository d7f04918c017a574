"""The asyncio push consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from steelyard.allocate.plan import Strategy
from steelyard.client.aio.client import Client
from steelyard.client.aio.running import Running
from steelyard.client.application import (
    BESIDE_LISTENERS,
    BatchListener,
    Functions,
    Hook,
    MessageListener,
)
from steelyard.client.arguments import checked
from steelyard.client.interceptors import Interceptor
from steelyard.client.keywords import ConsumerSettings
from steelyard.client.pushing import Listeners, Pushing, resize
from steelyard.client.serialization import Deserialize
from steelyard.client.settings import Seconds
from steelyard.config import ConsumerConfig
from steelyard.nodes.consumer.remoting.contract import ConsumerState, Describe, Pause, Resume, Stop
from steelyard.wire.remoting.message import Body

if TYPE_CHECKING:
    import ssl


@checked
class PushConsumer(Pushing[Body], Client):
    """A member of a consumer group that awaits a coroutine for each message.

    >>> async def show(message):
    ...     print(message.queue_offset, message.body)
    >>> consumer = PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders", "fruit || nuts")
    >>> async with consumer:  # doctest: +SKIP
    ...     await asyncio.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it has consumed the message; after
    False, RECONSUME_LATER or an exception the message is delivered again later. `batch_listener`
    takes up to `consume_batch` messages of one queue instead, with one result for all. Messages of
    one queue may be in several of the `concurrency` calls at once; the committed offset never
    passes an unfinished one.

    - `group`: members of one group share the queues and the committed offsets.
    - `nameservers`: host:port, several separated by `;`, or a list; default: the variable
      NAMESRV_ADDR, or 127.0.0.1:9876.
    - `orderly`: the messages of a queue are consumed one after the other. After False,
      SUSPEND_CURRENT_QUEUE_A_MOMENT or an exception the queue is suspended, then the same message
      is delivered again.
    - `concurrency`: maximum number of listeners that run at once; default: 20.
    - `on_assigned(queues)` is called before the first message of newly assigned queues,
      `on_revoked(queues)` before queues move to another member, once their messages are consumed,
      `on_lost(queues)` when another member may already have them. They run beside the listeners;
      their exceptions are logged.
    - `allocate`: a strategy, a function `(claims, queues) -> Plan`, instead of the setting
      `strategy`; it must be the same in every member.
    - `client_id`: `ip@name`, unique in the group; default: generated.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or
      those in the file SSL_CERT_FILE); an ssl.SSLContext is used as configured.
    - `deserializer`: a function of bytes, or an object with a method
      `deserialize(topic, properties, data)`; messages then have what it returns as `value`. It runs
      where the listener runs. A message on which it raises is not passed to the listener: a warning
      names it, and it is delivered again later, as after an exception of the listener; of a batch
      only itself, with `orderly` the whole batch.
    - `interceptors`: are told of every message that is passed to a listener, in this order.
    - `config`: settings as a ConsumerConfig. Each may be given by name instead.

    Listener and hooks may be plain functions, too; then they must not block.
    """

    def __init__(
        self,
        group: str | None = None,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener[Body] | None = None,
        *,
        batch_listener: BatchListener[Body] | None = None,
        orderly: bool | None = None,
        concurrency: Listeners | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        deserializer: Deserialize[Body] | None = None,
        interceptors: Sequence[Interceptor] | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        given |= {"orderly": orderly, "consume_threads": concurrency}
        functions = Functions(listener, batch_listener, on_assigned, on_revoked, on_lost)
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

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group; `async with` calls this.

        Waits up to a second for a first response from the servers. Raises what they reject:
        ConfigError for a subscription, RouteError for a topic that does not exist and is not
        created automatically. While the servers are unreachable, a warning is logged and the client
        keeps trying. With `timeout`, in seconds, waits until they are reached, or raises
        ConnectError with the cause. After an error the consumer is closed.
        """
        self._check_open()
        node, application = self.make()
        workers = self.config.consume_threads
        running = Running(
            node,
            "consumer",
            application,
            workers,
            beside=BESIDE_LISTENERS,
            on_keep=self.on_keep,
            tls=self._tls,
            address_translation=self.config.address_translation,
        )
        await self._begin(running, timeout)
        return self

    async def close(self, *, wait: bool = True) -> None:
        """Leave the group: let listeners finish (bounded), commit, and unregister.

        `async with` calls this. May be called again. Without `wait` listeners are not awaited:
        their messages are not committed, and the group reads them again.
        """
        await self._end(Stop(wait))

    stop = close

    # -- while it runs -----------------------------------------------------------------------------

    async def state(self) -> ConsumerState:
        """Return the current members, held queues, offsets to commit next and recent rates."""
        return await self._live().ask(Describe())

    async def pause(self) -> None:
        """Stop pulling; prefetched messages are still delivered to the listener.

        Queues are kept.
        """
        await self._live().ask(Pause())

    async def resume(self) -> None:
        """Resume pulling after `pause`."""
        await self._live().ask(Resume())

    async def resize(self, concurrency: Listeners) -> None:
        """Set the number of concurrent listeners; calls in progress finish first.

        Raises ConfigError.
        """
        running = self._live()
        await running.ask(resize(concurrency))
        running.resize(concurrency)
