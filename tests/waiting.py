"""How tests wait for what threads, tasks and processes bring about: for a state, until a deadline that a busy machine meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""What is right comes long before; pytest's own time-out of a test comes after."""


def until(
    look: Callable[[], T | None], what: object = "the state", seconds: float = PATIENCE_S
) -> T:
    """Look until it gives something true, and return that. AssertionError shows `what`, as it is then, after the deadline."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)
    return found


async def until_async(
    look: Callable[[], object | Awaitable[object]], what: object = "the state"
) -> None:
    """The same in a task, without a result; `look` may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if await found if isawaitable(found) else found:
            return
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        await asyncio.sleep(0.002)
