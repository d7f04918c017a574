"""The blocking push consumer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from steelyard.allocate.plan import Strategy
from steelyard.client.application import Application, Functions, Hook
from steelyard.client.arguments import checked
from steelyard.client.blocking.running import Running
from steelyard.client.pushing import Listeners, Pushing, resize
from steelyard.client.settings import Seconds, Verdict, begin_call
from steelyard.client.workers import Workers
from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError
from steelyard.nodes.consumer.remoting.contract import ConsumerState, Describe, Pause, Resume, Stop
from steelyard.nodes.seam import Handled
from steelyard.wire.remoting.message import MessageView

if TYPE_CHECKING:
    import ssl

MessageListener = Callable[[MessageView], Verdict | Awaitable[Verdict]]
BatchListener = Callable[[Sequence[MessageView]], Verdict | Awaitable[Verdict]]


@checked
class PushConsumer(Pushing):
    """A member of a consumer group that calls a function for each message, in worker threads.

    >>> def show(message):
    ...     print(message.queue_offset, message.body)
    >>> with PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders", "fruit || nuts"):  # doctest: +SKIP
    ...     time.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it is done with the message; False,
    RECONSUME_LATER or an exception bring the message back later. `batch_listener` takes up to
    `config.consume_batch` messages of one queue instead, with one verdict for all. Messages of one queue may
    be in several of the `consume_threads` at once; the committed offset never passes one under way.

    - `orderly`: the messages of a queue come one after the other, each when the one before it is done. False,
      SUSPEND_CURRENT_QUEUE_A_MOMENT or an exception hold the queue up and bring the same message again.
    - `on_assigned(queues)` is called before the first message of queues that are now this member's,
      `on_revoked(queues)` when they are about to go to another and their messages are done, `on_lost(queues)` when
      another may have them already. They run in worker threads, too; what they raise is logged.
    - `allocate`: a strategy (`steelyard.allocate`) in place of the one named in `config.strategy`; the same in
      every member.
    - `tls`: see `steelyard.client.settings.tls_context`.

    Listener and hooks may be coroutine functions: a worker thread then waits for each call, which runs on the
    event loop that all blocking clients share. It must not block.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        orderly: bool = False,
        consume_threads: Listeners = 20,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        allocate: Strategy | None = None,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
        tls: bool | ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            group,
            nameservers,
            Functions(listener, batch_listener, on_assigned, on_revoked, on_lost),
            listeners=consume_threads,
            orderly=orderly,
            allocate=allocate,
            client_id=client_id,
            config=config,
            tls=tls,
        )
        self._running: Running | None = None
        self._workers: Workers[tuple[int, object]] | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self, timeout: Seconds | None = None) -> Self:
        """Join the group. `with` does it.

        The start waits a moment for the first news of the servers; what they reject raises (ConfigError for a subscription, RouteError for a topic that nobody
        makes), and while they cannot be reached a warning says
        so, and they are tried on. With `timeout`, in seconds, it waits until they are reached, and raises ConnectError with
        the cause where they are not. After an error the consumer is closed.
        """
        node, application = self.make()
        running = Running(node, "consumer", self._on_hand, on_keep=self.on_keep, tls=self._tls)
        work = work_for(application, running)
        name = f"steelyard-{self.config.group}"
        self._workers = Workers(self.config.consume_threads, work, name)
        self._running = running
        running.start()
        try:
            running.call(begin_call(timeout))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, wait: bool = True) -> None:
        """Leave the group: finish what listeners hold (bounded), commit, unregister.

        Without `wait` nothing is finished: what listeners hold is not committed, and the group reads it again.
        """
        running, self._running = self._running, None
        if running is None:
            return
        running.close(Stop(wait))
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

    # -- while it runs -----------------------------------------------------------------------------

    def state(self) -> ConsumerState:
        """Members seen, queues held, offsets next to commit and recent rates, at this moment."""
        result = self._live().call(Describe())
        assert isinstance(result, ConsumerState)
        return result

    def pause(self) -> None:
        """Pull no more; messages that are here already still come to the listener. Queues are kept."""
        self._live().call(Pause())

    def resume(self) -> None:
        """Pull again after `pause`."""
        self._live().call(Resume())

    def resize(self, consume_threads: Listeners) -> None:
        """Run so many listeners at once from now on; calls under way end first. Raises ConfigError."""
        call = resize(consume_threads)
        self._live().call(call)
        assert self._workers is not None
        self._workers.resize(consume_threads)

    def _live(self) -> Running:
        if self._running is None:
            raise ClosedError("the consumer is not running; use `with` or start()")
        return self._running

    def _on_hand(self, ticket: int, handed: object) -> None:
        assert self._workers is not None
        self._workers.put((ticket, handed))


def work_for(application: Application, running: Running) -> Callable[[tuple[int, object]], None]:
    """What a worker thread does with each thing that the node hands out."""
    post = running.driver.post
    wait = running.loop.wait

    async def finish(awaited: Awaitable[object]) -> object:
        return await awaited

    def work(item: tuple[int, object]) -> None:
        ticket, handed = item
        try:
            returned = application.call(handed)
            if returned is not None and isawaitable(returned):
                returned = wait(finish(returned))
            said = application.verdict(handed, returned)
        except BaseException as error:  # whatever a user's function raises must not end the thread
            said = application.failure(handed, error)
        post(Handled(ticket, said))

    return work
