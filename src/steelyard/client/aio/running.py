"""A node on the running loop, and how coroutines talk to it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from steelyard.client.aio.workers import Workers
from steelyard.client.application import Application
from steelyard.driver.driver import Driver
from steelyard.errors import ClosedError
from steelyard.nodes.seam import Call, Node

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class Running:
    """A node with a driver of its own on the running loop, and `workers` tasks that hand things to its application."""

    def __init__(
        self,
        node: Node,
        name: str,
        application: Application,
        workers: int,
        *,
        on_keep: Callable[[bytes], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._workers = Workers(application, workers, f"steelyard-{name}")
        self.driver = Driver(node, name=name, on_hand=self._workers.hand, on_keep=on_keep, tls=tls)
        self._workers.post = self.driver.handle
        self._closing = False

    async def start(self) -> None:
        """Start the node; from here on it may hand things over."""
        self.driver.start()

    def ask(self, call: Call[T]) -> Future[T]:
        """Put a call to the node; the future gets the answer. One that is an error is raised where it is awaited."""
        return self.driver.ask(call)

    ask_later = ask
    """The same, where nobody awaits the future at once."""

    async def poll(self, call: Call[T], give_back: Call[None]) -> T:
        """As `ask`. When it is cancelled nobody has seen the answer: the node hears `give_back`."""
        return await self.driver.poll(call, give_back)

    def hand(self, handed: object) -> None:
        """Hand this to the application, too, in its turn."""
        self._workers.hand(0, handed)

    def resize(self, workers: int) -> None:
        """Hand over so many things at once from now on."""
        self._workers.resize(workers)

    async def close(self, stop: Call[None], *, cancel: bool = True) -> None:
        """Clean stop. What the application still does then is cancelled, or without `cancel` goes on.

        While another task is at it this returns at once.
        """
        if self._closing:
            return
        self._closing = True
        with suppress(ClosedError):  # the node has failed, and said so
            await self.driver.ask(stop)
        await self._workers.close(cancel=cancel)
        await self.driver.close()
