"""A node on the background loop, and how other threads talk to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from steelyard.driver.driver import Driver
from steelyard.driver.loops import Background, background
from steelyard.errors import ClosedError, SteelyardError
from steelyard.nodes.seam import Call, Node

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class Running:
    """A node on the background loop, usable from any thread of the process that made it."""

    def __init__(
        self,
        node: Node,
        name: str,
        on_hand: Callable[[int, object], None] | None = None,
        *,
        on_keep: Callable[[bytes], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.loop: Background = background()
        self.driver: Driver = self.loop.wait(self._build(node, name, on_hand, on_keep, tls))

    @staticmethod
    async def _build(
        node: Node,
        name: str,
        on_hand: Callable[[int, object], None] | None,
        on_keep: Callable[[bytes], None] | None,
        tls: ssl.SSLContext | None,
    ) -> Driver:
        return Driver(node, name=name, on_hand=on_hand, on_keep=on_keep, tls=tls)

    def start(self) -> None:
        """Start the node; from here on it may hand out messages."""
        self.loop.wait(self._start())

    async def _start(self) -> None:
        self.driver.start()

    def call(self, call: Call[T]) -> T:
        """Put a call to the node and wait for the answer; one that is an error is raised."""
        if threading.get_ident() == self.loop.thread.ident:
            raise ClosedError("called from the event loop's thread; use steelyard.aio there")
        self._check_process()
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
        """As `call`. When it is interrupted nobody has seen the answer: the node hears `give_back`."""
        try:
            return self.call(call)
        except SteelyardError:
            raise
        except BaseException:
            self.ask(give_back)
            raise

    def ask(self, call: Call[T]) -> Future[T]:
        """Put a call to the node; the future gets the answer."""
        self._check_process()
        future: Future[T] = Future()

        def settle(result: T | BaseException) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.driver.ask_from_thread(call, settle)
        return future

    def _check_process(self) -> None:
        if self.loop.forked:
            raise ClosedError("made in another process: a client does not survive a fork")

    def close(self, stop_call: Call[None]) -> None:
        """Clean stop."""
        if self.loop.forked:
            return
        self.call(stop_call)
        self.loop.wait(self.driver.close())
