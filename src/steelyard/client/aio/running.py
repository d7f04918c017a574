"""A node on the running loop, and its calls from coroutines."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
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
    """A node with its own driver on the running loop, and `workers` tasks for its application."""

    def __init__(
        self,
        node: Node,
        name: str,
        application: Application,
        workers: int,
        *,
        on_keep: Callable[[bytes], None] | None = None,
        tls: ssl.SSLContext | None = None,
        address_translation: Sequence[str] = (),
    ) -> None:
        self._workers = Workers(application, workers, f"steelyard-{name}")
        self.driver = Driver(
            node,
            name=name,
            on_hand=self._workers.hand,
            on_keep=on_keep,
            tls=tls,
            address_translation=address_translation,
        )
        self._workers.post = self.driver.handle
        self._closing = False

    async def start(self) -> None:
        """Start the node; from now on it may deliver to the application."""
        self.driver.start()

    def ask(self, call: Call[T]) -> Future[T]:
        """Pass a call to the node; the future gets the result or raises the error."""
        return self.driver.ask(call)

    ask_later = ask
    """The same, if nobody awaits the future at once."""

    async def poll(self, call: Call[T], give_back: Call[None]) -> T:
        """As `ask`.

        If it is cancelled, the caller has not seen the result: the node gets `give_back`.
        """
        return await self.driver.poll(call, give_back)

    def hand(self, handed: object) -> None:
        """Deliver this to the application in turn."""
        self._workers.hand(0, handed)

    def resize(self, workers: int) -> None:
        """Set the number of concurrent deliveries."""
        self._workers.resize(workers)

    async def close(self, stop: Call[None], *, cancel: bool = True) -> None:
        """Stop cleanly, and cancel what the application still does; without `cancel` it continues.

        Returns at once while another task is stopping it.
        """
        if self._closing:
            return
        self._closing = True
        with suppress(ClosedError):  # the node has failed, and logged it
            await self.driver.ask(stop)
        await self._workers.close(cancel=cancel)
        await self.driver.close()
