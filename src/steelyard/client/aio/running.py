"""A node on the running loop, and its calls from coroutines."""

from __future__ import annotations

import asyncio
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
    """A node with its own driver on the running loop, and `workers` tasks for its application.

    `beside`: what has a task of its own, because it must not wait for the others.
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
        self._workers = Workers(application, workers, f"steelyard-{name}")
        self._hooks = Workers(application, 1 if beside else 0, f"steelyard-{name}-hooks")
        self._beside = beside
        self.driver = Driver(
            node,
            name=name,
            on_hand=self._deliver if beside else self._workers.hand,
            on_keep=on_keep,
            tls=tls,
            address_translation=address_translation,
        )
        self._name = name
        self._workers.post = self._hooks.post = self.driver.handle
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the node; from now on it may deliver to the application."""
        self.driver.start()

    def ask(self, call: Call[T]) -> Future[T]:
        """Pass a call to the node; the future gets the result or raises the error.

        Raises ClosedError on another event loop.
        """
        self._check_loop()
        return self.driver.ask(call)

    ask_later = ask
    """The same, if nobody awaits the future at once."""

    async def poll(self, call: Call[T], give_back: Call[None]) -> T:
        """As `ask`.

        If it is cancelled, the caller has not seen the result: the node gets `give_back`.
        """
        self._check_loop()
        return await self.driver.poll(call, give_back)

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError(
                f"the {self._name} was started on another event loop: create one for each loop"
            )

    def _deliver(self, ticket: int, handed: object) -> None:
        workers = self._hooks if type(handed) in self._beside else self._workers
        workers.hand(ticket, handed)

    def hand(self, handed: object) -> None:
        """Deliver this to the application in turn."""
        self._workers.hand(0, handed)

    def resize(self, workers: int) -> None:
        """Set the number of concurrent deliveries."""
        self._workers.resize(workers)

    async def close(self, stop: Call[None], *, cancel: bool = True) -> bool:
        """Stop cleanly, and cancel what the application still does; without `cancel` it continues.

        All callers wait for the same end, which goes on if one of them is cancelled. Returns
        whether it was reached: a listener or hook does not wait, because the end waits for it.
        """
        self._check_loop()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(stop, cancel))
        if self._workers.is_inside() or self._hooks.is_inside():
            return False
        await asyncio.shield(self._ending)
        return True

    async def _end(self, stop: Call[None], cancel: bool) -> None:
        with suppress(ClosedError):  # the node has failed, and logged it
            await self.driver.ask(stop)
        await self._workers.close(cancel=cancel)
        await self._hooks.close(cancel=cancel)
        await self.driver.close()
