"""How tests wait for what threads, tasks and processes bring about: for a state, until a deadline that a busy machine meets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

PATIENCE_S = 120.0
"""What is right comes long before; pytest's own time-out of a test comes after."""


def until(holds: Callable[[], object], what: object = "the state") -> None:
    """Wait until `holds()` is true. AssertionError shows `what`, as it is then, after the deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.005)


async def until_async(
    holds: Callable[[], object | Awaitable[object]], what: object = "the state"
) -> None:
    """The same in a task; `holds` may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if await found if isawaitable(found) else found:
            return
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        await asyncio.sleep(0.002)
