"""One reading for all who ask: what was read a moment ago is used again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Fresh(Generic[T]):
    """What `read` returns, read again when it is older than `fresh_ms`.

    Whoever asks while it is being read waits for the same result, or error.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], fresh_ms: int) -> None:
        self._read = read
        self._fresh_ms = fresh_ms
        self._last: tuple[T, float] | None = None
        self._reading: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return it."""
        if self._last is not None:
            value, at = self._last
            if (time.monotonic() - at) * 1000 < self._fresh_ms:
                return value
        if self._reading is None or self._reading.done():
            self._reading = self._begun()
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        """Read it again when it is asked for next: it has changed."""
        self._last = None

    async def renewed(self) -> T:
        """Return it as it is now: of a reading that begins after the call."""
        running = self._reading
        if running is not None and not running.done():
            await asyncio.wait([running])
        if self._reading is running:
            self._reading = self._begun()
        assert self._reading is not None
        return await asyncio.shield(self._reading)

    def _begun(self) -> asyncio.Task[T]:
        """Begin to read. Whoever waited may be gone when it fails: then nobody is told."""
        reading = asyncio.create_task(self._renew())
        reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return reading

    async def _renew(self) -> T:
        value = await self._read()
        self._last = value, time.monotonic()
        return value


class FreshByKey(Generic[K, T]):
    """The same for each key; of the keys, the `keys_max` that were asked for last are kept."""

    def __init__(
        self, read: Callable[[K], Awaitable[T]], fresh_ms: int, *, keys_max: int = 200
    ) -> None:
        self._read = read
        self._fresh_ms = fresh_ms
        self._keys_max = keys_max
        self._values: dict[K, Fresh[T]] = {}

    async def get(self, key: K) -> T:
        """Return the value of a key."""
        value = self._values.pop(key, None) or Fresh(lambda: self._read(key), self._fresh_ms)
        self._values[key] = value
        while len(self._values) > self._keys_max:
            del self._values[next(iter(self._values))]
        return await value.get()
