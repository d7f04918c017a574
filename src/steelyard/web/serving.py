"""The HTTP server of a cluster, on the running loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

import uvicorn
from starlette.routing import Router

from steelyard.client.aio.admin import Admin
from steelyard.config import HttpConfig, check
from steelyard.driver.encryption import of_dialing
from steelyard.driver.listening import advertised, bind
from steelyard.errors import ConfigError
from steelyard.sasl.login import Login
from steelyard.web.application import application, console_only
from steelyard.web.connections import HttpConnection
from steelyard.web.console.application import ConsoleApplication
from steelyard.web.console.clusters import ListenerCluster, NameserverCluster
from steelyard.web.console.contract import WatchedCluster
from steelyard.web.console.history import LedgerHistory
from steelyard.web.console.service import now_ms
from steelyard.web.consumers import leave_faults_to_console
from steelyard.web.ledger import LedgerFollower
from steelyard.web.reading import ClusterReader

REQUESTS_MAX = 100
"""Most requests and connections at a time; further ones get 503."""

CONSOLE_FRESH_MS = 100
"""Age up to which the console uses again what brokers answered; its viewers share one reading."""

HEAD_BYTES_MAX = 128 * 1024
"""Largest head of a request: a cursor of a topic with a thousand queues takes 20 KiB."""

STOP_SECONDS = 2
"""Time for requests to end when the server stops."""


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """An async context manager. `address`: `host:port`, as clients reach it.

    `kafka`: brokers of a cluster that is reached by Kafka's protocol instead of nameservers, with
    `tls` or without. `access`: how the nameservers' brokers are asked; default: unsigned. `login`:
    at Kafka listeners. Port 0 picks a free one; `option` gives the port, for an error's text.
    Raises ConfigError if it cannot listen, or a setting is wrong. The cluster may be down, and come
    later.
    """

    def __init__(
        self,
        config: HttpConfig,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        kafka: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
        access: Mapping[str, str] | None = None,
        login: Login | None = None,
        option: str = "",
    ) -> None:
        check(config)
        kafka_tls = tls
        if config.kafka_ca_file:
            kafka_tls = _trusting(config.kafka_ca_file)
        if config.tls_client.trust_file:
            tls = of_dialing(config.tls_client).context()
        self._listener = bind(host, port, option=option)
        self.address = advertised(host, self._listener)
        self._console: ConsoleApplication | None = None
        self._admin: Admin | None = None
        self._follower: LedgerFollower | None = None
        if kafka:
            cluster = ListenerCluster(
                kafka, timeout_ms=config.timeout_ms, tls=kafka_tls, login=login
            )
            self._console = _console(cluster, None, config)
            app = console_only(self._console)
        else:
            app = self._with_nameservers(config, tls, access or {}, kafka_tls, login)
            leave_faults_to_console(self._console is not None)
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                http=HttpConnection,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                ws="none",
                server_header=False,
                limit_concurrency=REQUESTS_MAX,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        # Not even with --verbose: a scrape is no event.
        logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
        self._tasks: list[asyncio.Task[None]] = []

    def _with_nameservers(
        self,
        config: HttpConfig,
        tls: ssl.SSLContext | None,
        access: Mapping[str, str],
        kafka_tls: ssl.SSLContext | None,
        login: Login | None,
    ) -> Router:
        admin = Admin(
            config.nameservers,
            timeout_ms=config.timeout_ms,
            address_translation=config.address_translation,
            tls=tls,
            **access,
        )
        reader = ClusterReader(admin, config)
        history = None
        if config.console:
            history = LedgerHistory(now_ms() - config.console_history_ms)
            fresh_ms = min(CONSOLE_FRESH_MS, config.fresh_ms)
            own = ClusterReader(admin, replace(config, fresh_ms=fresh_ms))
            cluster = NameserverCluster(
                admin,
                own,
                timeout_ms=config.timeout_ms,
                tls=tls,
                kafka_tls=kafka_tls,
                login=login,
            )
            self._console = _console(cluster, history, config)
        self._admin = admin
        self._follower = LedgerFollower(admin, config, history, tls=tls)
        return application(reader, self._follower.costs, config, self._console)

    async def __aenter__(self) -> Self:
        if self._admin is not None:
            await self._admin.start()
        running = [self._uvicorn.serve(sockets=[self._listener])]
        running += [part.run() for part in (self._follower, self._console) if part is not None]
        self._tasks = [asyncio.create_task(each) for each in running]
        return self

    async def ended(self) -> None:
        """Return when the server or a reader of the cluster has ended; raises what ended it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def __aexit__(self, *_: object) -> None:
        self._uvicorn.should_exit = True
        if self._console is not None:
            self._console.close()
        serving, *reading = self._tasks
        await asyncio.wait([serving])
        for task in reading:
            task.cancel()
        if reading:
            await asyncio.wait(reading)
        if self._admin is not None:
            await self._admin.close()


def _trusting(path: str) -> ssl.SSLContext:
    """Return a context for connections to who has a certificate that this file vouches for."""
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"kafka_ca_file {path} cannot be used: {error}") from None


def _console(
    cluster: WatchedCluster, history: LedgerHistory | None, config: HttpConfig
) -> ConsoleApplication:
    return ConsoleApplication(
        cluster, history, hosts=config.hosts, allow_changes=config.allow_changes
    )
