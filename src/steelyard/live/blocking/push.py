"""The blocking push consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import SystemRandom
from types import TracebackType
from typing import Self

from steelyard.config import ConsumerConfig
from steelyard.errors import ClosedError, ConfigError
from steelyard.live.blocking.running import Running
from steelyard.live.settings import Verdict, verdict
from steelyard.live.subscribing import Subscriptions
from steelyard.live.workers import Workers
from steelyard.nodes.consumer.contract import ConsumeBatch, ConsumerState, Describe, Stop
from steelyard.nodes.consumer.node import ConsumerNode
from steelyard.nodes.seam import Handled
from steelyard.types import ConsumeStatus
from steelyard.wire.remoting.message import MessageView

MessageListener = Callable[[MessageView], Verdict]
BatchListener = Callable[[Sequence[MessageView]], Verdict]


class PushConsumer(Subscriptions):
    """A member of a consumer group that calls a function for each message, in worker threads.

    >>> def show(message):
    ...     print(message.queue_offset, message.body)
    >>> with PushConsumer("g", "127.0.0.1:9876", show).subscribe("Orders", "fruit || nuts"):  # doctest: +SKIP
    ...     time.sleep(60)

    The listener returns None, True or CONSUME_SUCCESS when it is done with the message; False,
    RECONSUME_LATER or an exception bring the message back later. `batch_listener` takes up to
    `config.consume_batch` messages of one queue instead, with one verdict for all. Messages of one queue may
    be in several of the `consume_threads` at once; the committed offset never passes one under way.
    """

    def __init__(
        self,
        group: str,
        nameservers: str | Sequence[str] | None = None,
        listener: MessageListener | None = None,
        *,
        batch_listener: BatchListener | None = None,
        consume_threads: int = 20,
        client_id: str | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        if consume_threads < 1:
            raise ConfigError(f"consume_threads is {consume_threads}; it must be 1 or more")
        super().__init__(group, nameservers, client_id, config, consume_threads)
        self.check_listeners(listener, batch_listener)
        self._listener = listener
        self._batch_listener = batch_listener
        self._consume_threads = consume_threads
        self._running: Running | None = None
        self._workers: Workers[tuple[int, ConsumeBatch]] | None = None
        self._log = logging.getLogger("steelyard.consumer")

    def start(self) -> Self:
        """Join the group. `with` does it."""
        if self.started:
            raise ClosedError("a consumer starts once; make a new one")
        self.ready(self._listener or self._batch_listener)
        self.started = True
        running = Running(ConsumerNode(self.config, SystemRandom()), "consumer", self._on_hand)
        post = running.driver.post

        def work(item: tuple[int, ConsumeBatch]) -> None:
            ticket, batch = item
            post(Handled(ticket, self._call(batch)))

        name = f"steelyard-{self.config.group}"
        self._workers = Workers(self._consume_threads, work, name)
        self._running = running
        running.start()
        return self

    def stop(self) -> None:
        """Leave the group: finish what listeners hold (bounded), commit, say goodbye."""
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

    def state(self) -> ConsumerState:
        """Members seen, queues held and offsets next to commit, at this moment."""
        if self._running is None:
            raise ClosedError("the consumer is not running")
        result = self._running.call(Describe())
        assert isinstance(result, ConsumerState)
        return result

    def _on_hand(self, ticket: int, batch: object) -> None:
        assert isinstance(batch, ConsumeBatch)
        assert self._workers is not None
        self._workers.put((ticket, batch))

    def _call(self, batch: ConsumeBatch) -> ConsumeStatus:
        try:
            if self._batch_listener is not None:
                return verdict(self._batch_listener(batch.messages))
            assert self._listener is not None
            return verdict(self._listener(batch.messages[0]))
        except BaseException:  # whatever a listener raises must not end the worker thread
            self._log.exception("the listener failed on %s; the message comes again", batch.queue)
            return ConsumeStatus.RECONSUME_LATER
