"""The blocking and the asyncio clients behind one face, so that one test runs against both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import steelyard
from steelyard import aio


class Blocking:
    """A blocking client whose methods are awaited; each call runs in a thread."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.client, name)

        async def call(*args: Any, **more: Any) -> Any:
            return await asyncio.to_thread(method, *args, **more)

        return call

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


class Twins:
    """Makes clients of one kind. Set them up by their own methods first: `twins.wrap(client.subscribe("T"))`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def make(self, name: str, *args: Any, **more: Any) -> Any:
        """The client class of that name, not wrapped yet."""
        return getattr(aio if self.kind == "aio" else steelyard, name)(*args, **more)

    def wrap(self, client: Any) -> Any:
        """What tests await."""
        return client if self.kind == "aio" else Blocking(client)
