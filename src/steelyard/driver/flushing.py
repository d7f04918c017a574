"""Flushes: what the node wrote is synced to the disk in a thread of its own.

Requests that come while a flush is going on share the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

# Loaded with the module, because later there may be no free descriptor for it.
from concurrent.futures import ThreadPoolExecutor

from steelyard.errors import DescriptorsError

AGAIN_MS = 100
"""Delay after which a flush without a free file descriptor is retried."""

RETRIES_PER_LINE = 300
"""Number of consecutive retries per log line."""


class Flushing:
    """The flushes of one node. In the loop's thread only, but for the syncing itself.

    `prepare`: called in the loop's thread, returns what to sync. `synced`: is told how many seconds
    each took; `flushed`: gets each ticket when its flush is done; `failed`: gets the error of a
    flush that failed, after which nothing may be acknowledged any more.
    """

    def __init__(
        self,
        prepare: Callable[[], Callable[[], None]],
        *,
        loop: asyncio.AbstractEventLoop,
        log: logging.Logger,
        synced: Callable[[float], None],
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._prepare = prepare
        self._loop = loop
        self._log = log
        self._synced = synced
        self._flushed = flushed
        self._failed = failed
        self._thread = ThreadPoolExecutor(1, "steelyard-flush")
        self._tickets: list[int] = []
        self._is_going_on = False
        self._retries = 0
        self._is_stopped = False

    def ask(self, ticket: int) -> None:
        """Flush what was written so far."""
        self._tickets.append(ticket)
        if not self._is_going_on:
            self._is_going_on = True
            self._loop.call_soon(self._begin)

    def stop(self) -> None:
        """Tell nobody of flushes any more."""
        self._is_stopped = True

    async def close(self) -> None:
        """Wait for a flush that is going on."""
        await self._loop.run_in_executor(None, self._thread.shutdown)

    def _begin(self) -> None:
        """Flush once for all tickets so far; later ones share the next flush."""
        tickets, self._tickets = self._tickets, []
        self._sync(self._prepare(), tickets)

    def _sync(self, sync: Callable[[], None], tickets: list[int]) -> None:
        if self._is_stopped:
            return
        future = self._loop.run_in_executor(self._thread, _timed, sync)
        future.add_done_callback(lambda done: self._ended(done, sync, tickets))

    def _ended(
        self, done: asyncio.Future[float], sync: Callable[[], None], tickets: list[int]
    ) -> None:
        if done.cancelled() or self._is_stopped:
            return
        error = done.exception()
        if isinstance(error, DescriptorsError):
            # The disk was not accessed, so nothing is lost: everything that waits for it waits a
            # little longer.
            self._log.log(
                logging.DEBUG if self._retries % RETRIES_PER_LINE else logging.WARNING,
                "%s; trying again every %d ms, nothing is acknowledged meanwhile",
                *(error, AGAIN_MS),
            )
            self._retries += 1
            self._loop.call_later(AGAIN_MS / 1000, self._sync, sync, tickets)
            return
        self._retries = 0
        if error is not None:
            self._failed(error)
            return
        self._synced(done.result())
        for ticket in tickets:
            self._flushed(ticket)
        if self._tickets:
            self._loop.call_soon(self._begin)
        else:
            self._is_going_on = False


def _timed(sync: Callable[[], None]) -> float:
    """Sync; return how many seconds that took."""
    began = time.monotonic()
    sync()
    return time.monotonic() - began
