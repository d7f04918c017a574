"""`steelyard.aio.Server`: the blocking class, whose methods wait in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from steelyard.embedded.server import Server as BlockingServer
from steelyard.embedded.server import SettingValue

P = ParamSpec("P")
R = TypeVar("R")


def _in_thread(
    method: Callable[Concatenate[BlockingServer, P], R],
) -> Callable[Concatenate[Server, P], Coroutine[Any, Any, R]]:
    """The coroutine function with the same arguments and text."""

    @wraps(method)
    async def call(server: Server, /, *args: P.args, **options: P.kwargs) -> R:
        return await asyncio.to_thread(method, server._server, *args, **options)

    return call


class Server:
    """A nameserver and brokers for this program: free ports, temporary data, ready in an instant.

    >>> async with Server(brokers=2) as server:  # doctest: +SKIP
    ...     await server.create_topic("Orders")
    ...     client = aio.Producer("orders", server.nameserver)

    Arguments and errors are those of `steelyard.Server`. With `in_process` the servers have an
    event loop of their own, in a thread: they go on while yours is busy.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        kafka: bool = True,
        in_process: bool = False,
        settings: Mapping[str, SettingValue] | None = None,
        data: str | Path | None = None,
    ) -> None:
        self._server = BlockingServer(
            brokers=brokers, kafka=kafka, in_process=in_process, settings=settings, data=data
        )

    def __repr__(self) -> str:
        """Return whether it runs and at which addresses."""
        return repr(self._server)

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Start the servers; returns when clients of either dialect can use them.

        `async with` calls this. If it is cancelled, what was started is stopped.
        """
        starting = asyncio.ensure_future(asyncio.to_thread(self._server.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])
            await self.stop()
            raise
        return self

    stop = _in_thread(BlockingServer.stop)
    close = stop

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- where clients find it ---------------------------------------------------------------------

    @property
    def nameserver(self) -> str:
        """The nameserver's address, host:port, for RocketMQ clients."""
        return self._server.nameserver

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for Kafka clients, host:port joined by commas; empty for none.

        Those of brokers that are down are among them.
        """
        return self._server.bootstrap_servers

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of all brokers, running or not."""
        return self._server.brokers

    create_topic = _in_thread(BlockingServer.create_topic)
    log = _in_thread(BlockingServer.log)
    log_size = _in_thread(BlockingServer.log_size)

    # -- groups and faults -------------------------------------------------------------------------

    rebalances = _in_thread(BlockingServer.rebalances)
    handoffs = _in_thread(BlockingServer.handoffs)
    lose_member = _in_thread(BlockingServer.lose_member)
    force_rebalance = _in_thread(BlockingServer.force_rebalance)
    kill_broker = _in_thread(BlockingServer.kill_broker)
    restart_broker = _in_thread(BlockingServer.restart_broker)
    pause_broker = _in_thread(BlockingServer.pause_broker)
    resume_broker = _in_thread(BlockingServer.resume_broker)
    slow_broker = _in_thread(BlockingServer.slow_broker)
