"""The HTTP server of a cluster, on the running loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import uvicorn

from steelyard.client.aio.admin import Admin
from steelyard.config import HttpConfig, check
from steelyard.driver.listening import advertised, bind
from steelyard.web.application import application
from steelyard.web.ledger import LedgerFollower
from steelyard.web.reading import ClusterReader

REQUESTS_MAX = 100
"""Most requests and connections at a time; further ones get 503."""

STOP_SECONDS = 2
"""Time for requests to end when the server stops."""


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """An async context manager. `address`: `host:port`, as clients reach it.

    Port 0 picks a free one. Raises ConfigError if it cannot listen, or a setting is wrong. The
    cluster may be down, and come later.
    """

    def __init__(self, config: HttpConfig, *, host: str = "127.0.0.1", port: int = 0) -> None:
        check(config)
        self._config = config
        self._listener = bind(host, port)
        self.address = advertised(host, self._listener)
        self._admin = Admin(
            config.nameservers,
            timeout_ms=config.timeout_ms,
            address_translation=config.address_translation,
        )
        self._follower = LedgerFollower(self._admin, config)
        reader = ClusterReader(self._admin, config)
        app = application(reader, self._follower.costs, config)
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                http="h11",
                ws="none",
                server_header=False,
                limit_concurrency=REQUESTS_MAX,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        # Not even with --verbose: a scrape is no event.
        logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._admin.start()
        serving = self._uvicorn.serve(sockets=[self._listener])
        self._tasks = [
            asyncio.create_task(serving),
            asyncio.create_task(self._follower.run()),
        ]
        return self

    async def ended(self) -> None:
        """Return when the server or the ledger's reader has ended; raises what ended it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def __aexit__(self, *_: object) -> None:
        self._uvicorn.should_exit = True
        serving, following = self._tasks
        following.cancel()
        await asyncio.wait([serving, following])
        await self._admin.close()
