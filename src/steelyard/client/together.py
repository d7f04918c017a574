"""Many questions at once, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

AT_ONCE = 16
"""Questions of one reading that are on their way at a time."""

T = TypeVar("T")
R = TypeVar("R")


async def at_once(
    ask: Callable[[T], Awaitable[R]], things: Iterable[T], limit: int = AT_ONCE
) -> list[R]:
    """Ask about each thing, at most `limit` at a time; return the answers in their order."""
    room = asyncio.Semaphore(limit)

    async def one(thing: T) -> R:
        async with room:
            return await ask(thing)

    return list(await asyncio.gather(*map(one, things)))
