"""The asyncio push consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from steelyard.allocate.plan import Strategy
from steelyard.client.aio.client import Client
from steelyard.client.aio.running import Running
from steelyard.client.application import BatchListener, Functions, Hook, MessageListener
from steelyard.client.arguments import checked
from steelyard.client.keywords import ConsumerSettings
from steelyard.client.pushing import Listeners, Pushing, resize
from steelyard.client.settings import Seconds
from steelyard.config import ConsumerConfig
from steelyard.nodes.consumer.remoting.contract import ConsumerState, Describe, Pause, Resume, Stop

if TYPE_CHECKING:
    import ssl


@checked
class PushConsumer(Pushing, Client):
    """A member of a consumer group that awaits a coroutine for each message.

    >>> async def show(message):
    ...     print(message.queue_offset, message.body)
    >>> async with PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders", "fruit || nuts"):  # doctest: +SKIP
    ...     await asyncio.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it is done with the message; False,
    RECONSUME_LATER or an exception bring the message back later. `batch_listener` takes up to
    `consume_batch` messages of one queue instead, with one verdict for all. Messages of one queue may
    be in several of the `concurrency` calls at once; the committed offset never passes one under way.

    - `group`: members of one group share the queues, and the committed offsets.
    - `nameservers`: host:port, several separated by `;`, or a list of them; the variable NAMESRV_ADDR unless given, or
      127.0.0.1:9876.
    - `orderly`: the messages of a queue come one after the other, each when the one before it is done. False,
      SUSPEND_CURRENT_QUEUE_A_MOMENT or an exception hold the queue up and bring the same message again.
    - `concurrency`: most listeners that run at once; 20 unless given.
    - `on_assigned(queues)` is called before the first message of queues that are now this member's,
      `on_revoked(queues)` when they are about to go to another and their messages are done, `on_lost(queues)` when
      another may have them already. They run beside the listeners; what they raise is logged.
    - `allocate`: a strategy, a function `(claims, queues) -> Plan`, in place of the one that the setting `strategy` names;
      the same in every member.
    - `client_id`: `ip@name`, unique in the group; made up unless given.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or those in the file
      SSL_CERT_FILE); an ssl.SSLContext does as it is made.
    - `config`: settings as one object, a ConsumerConfig. Each may be given by its name instead.

    Listener and hooks may be plain functions, too; then they must not block.
    """

    def __init__(
        self,
        group: str | None = None,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        orderly: bool | None = None,
        concurrency: Listeners | None = None,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        given = {"group": group, "nameservers": nameservers, "client_id": client_id, **settings}
        given |= {"orderly": orderly, "consume_threads": concurrency}
        functions = Functions(listener, batch_listener, on_assigned, on_revoked, on_lost)
        super().__init__(config, given, functions, allocate=allocate, tls=tls)

    # -- life --------------------------------------------------------------------------------------

    async def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group. `async with` does it.

        The start waits a moment for the first news of the servers. What they reject raises: ConfigError for a subscription,
        RouteError for a topic that nobody makes. While they cannot be reached a warning says so, and they are tried on. With
        `timeout`, in seconds, it waits until they are reached, and raises ConnectError with the cause where they are not.
        After an error the consumer is closed.
        """
        self._check_open()
        node, application = self.make()
        workers = self.config.consume_threads
        running = Running(
            node, "consumer", application, workers, on_keep=self.on_keep, tls=self._tls
        )
        await self._begin(running, timeout)
        return self

    async def close(self, *, wait: bool = True) -> None:
        """Leave the group: finish what listeners hold (bounded), commit, unregister. `async with` does it. May be called again.

        Without `wait` nothing is finished: what listeners hold is not committed, and the group reads it again.
        """
        await self._end(Stop(wait))

    stop = close

    # -- while it runs -----------------------------------------------------------------------------

    async def state(self) -> ConsumerState:
        """Members seen, queues held, offsets next to commit and recent rates, at this moment."""
        return await self._live().ask(Describe())

    async def pause(self) -> None:
        """Pull no more; messages that are here already still come to the listener. Queues are kept."""
        await self._live().ask(Pause())

    async def resume(self) -> None:
        """Pull again after `pause`."""
        await self._live().ask(Resume())

    async def resize(self, concurrency: Listeners) -> None:
        """Run so many listeners at once from now on; calls under way end first. Raises ConfigError."""
        running = self._live()
        await running.ask(resize(concurrency))
        running.resize(concurrency)
