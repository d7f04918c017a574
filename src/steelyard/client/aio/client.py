"""The common base of the asyncio RocketMQ clients: start, calls and close."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from steelyard.client.aio.running import Running
from steelyard.client.settings import Seconds, begin_call
from steelyard.errors import ClosedError
from steelyard.nodes.seam import Call


class Client:
    """A client that is started once, called, and closed."""

    _running: Running | None = None
    _closed = False

    async def start(self, timeout: Seconds | None = None) -> Self:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _begin(self, running: Running, timeout: Seconds | None, *first: Call[None]) -> None:
        """Start the node, ask it these, and wait for its first news.

        After an error the client is closed.
        """
        self._running = running
        try:
            await running.start()
            for call in (*first, begin_call(timeout)):
                await running.ask(call)
        except BaseException:
            await self.close()
            raise

    async def _end(self, stop: Call[None]) -> None:
        """Close. What runs meanwhile, such as a hook, may still ask the node."""
        self._closed = True
        if self._running is not None and await self._running.close(stop):
            self._running = None

    def _check_open(self) -> None:
        if self._closed:
            name = type(self).__name__
            raise ClosedError(f"the {name} is not running: it was closed; create a new one")

    def _live(self) -> Running:
        if self._running is None:
            self._check_open()
            text = f"the {type(self).__name__} is not running; use `async with` or start()"
            raise ClosedError(text)
        return self._running
