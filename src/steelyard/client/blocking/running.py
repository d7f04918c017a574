"""A node on the background loop, and how other threads talk to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from steelyard.client.application import Application
from steelyard.client.blocking.workers import Workers
from steelyard.driver.driver import Driver
from steelyard.driver.logs import logger
from steelyard.driver.loops import background
from steelyard.errors import ClosedError, SteelyardError
from steelyard.nodes.seam import Call, Node

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_log = logger("steelyard.loop")


class Running:
    """A node on the background loop, with `workers` threads that call its application.

    `beside`: what has a thread of its own, because it must not wait for the others. Usable
    from any thread of the process that created it.
    """

    def __init__(
        self,
        node: Node,
        name: str,
        application: Application,
        workers: int,
        *,
        beside: tuple[type, ...] = (),
        on_keep: Callable[[bytes], None] | None = None,
        tls: ssl.SSLContext | None = None,
        address_translation: Sequence[str] = (),
    ) -> None:
        self._loop = background()
        self._workers = Workers(application, workers, f"steelyard-{name}")
        self._hooks = Workers(application, 1 if beside else 0, f"steelyard-{name}-hooks")
        self._beside = beside
        on_hand = self._deliver if beside else self._workers.hand

        async def build() -> Driver:
            return Driver(
                node,
                name=name,
                on_hand=on_hand,
                on_keep=on_keep,
                tls=tls,
                address_translation=address_translation,
            )

        self.driver = self._loop.wait(build())
        self._workers.post = self._hooks.post = self.driver.post
        self._closing = threading.Lock()
        self._ending: Future[None] | None = None

    def start(self) -> None:
        """Start the node; from here on it may hand things over."""

        async def start() -> None:
            self.driver.start()

        self._loop.wait(start())

    def ask(self, call: Call[T]) -> T:
        """Put a call to the node and wait for the answer; one that is an error is raised."""
        self._check_thread()
        # A bare lock: a Future's condition costs several times as much, and this is once per send.
        answered = threading.Lock()
        answered.acquire()
        answer: list[T | BaseException] = []

        def settle(result: T | BaseException) -> None:
            answer.append(result)
            answered.release()

        self.driver.ask_from_thread(call, settle)
        answered.acquire()
        (result,) = answer
        if isinstance(result, BaseException):
            raise result
        return result

    def poll(self, call: Call[T], give_back: Call[None]) -> T:
        """As `ask`; if interrupted, before the caller has the answer, calls `give_back`."""
        try:
            return self.ask(call)
        except SteelyardError:
            raise
        except BaseException:
            self.ask_later(give_back)
            raise

    def ask_later(self, call: Call[T]) -> Future[T]:
        """Put a call to the node; the future gets the answer."""
        self._check_process()
        future: Future[T] = Future()

        def settle(result: T | BaseException) -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if isinstance(result, BaseException):
                    future.set_exception(result)
                else:
                    future.set_result(result)
            except BaseException:  # SystemExit in a callback: others wait for answers, too
                _log.exception("a callback of a future failed")

        self.driver.ask_from_thread(call, settle)
        return future

    def _check_process(self) -> None:
        if self._loop.forked:
            raise ClosedError("made in another process: a client does not survive a fork")

    def _check_thread(self) -> None:
        """Of a call that waits."""
        if threading.get_ident() == self._loop.thread.ident:
            raise ClosedError("called from the event loop's thread; use steelyard.aio there")
        self._check_process()

    def _deliver(self, ticket: int, handed: object) -> None:
        workers = self._hooks if type(handed) in self._beside else self._workers
        workers.hand(ticket, handed)

    def hand(self, handed: object) -> None:
        """Hand this to the application, too, in its turn. In the loop's thread only."""
        self._workers.hand(0, handed)

    def resize(self, workers: int) -> None:
        """Hand over so many things at once from now on."""
        self._workers.resize(workers)

    def close(self, stop: Call[None], *, cancel: bool = True) -> bool:
        """Clean stop. What the application still does then goes on: threads cannot be cancelled.

        All callers wait for the same end, which goes on if Ctrl-C interrupts one of them. Returns
        whether it was reached: a listener or hook does not wait, because the end waits for it. In
        a forked process nothing is to be done.
        """
        if self._loop.forked:
            return True
        self._check_thread()
        with self._closing:
            if self._ending is None:
                self._ending = asyncio.run_coroutine_threadsafe(self._end(stop), self._loop.loop)
        if threading.current_thread() in (*self._workers.threads, *self._hooks.threads):
            return False
        self._ending.result()
        return True

    async def _end(self, stop: Call[None]) -> None:
        with suppress(ClosedError):  # the node has failed, and said so
            await self.driver.ask(stop)
        await self.driver.close()
        self._workers.close()
        self._hooks.close()
