"""A nameserver and brokers in this process, on an event loop in a thread of its own.

Starting them takes no new interpreter. They share this process's processor time, and neither pauses
nor real kills are possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from steelyard.config import BrokerConfig, KafkaConfig, NameserverConfig
from steelyard.driver.listening import Reservation
from steelyard.driver.loops import Background
from steelyard.errors import ConfigError
from steelyard.servers.deployment import (
    NAMESERVER_SHARED,
    Deployment,
    broker_names,
    shared_names,
)
from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver
from steelyard.settings import build

_OTHER_PROCESS = "needs brokers in processes of their own; start the Server without in_process=True"


class InProcessServers:
    """The same servers as those of `ServerProcesses`, with the same methods.

    `settings`: of all brokers, by name.
    """

    def __init__(self, layout: Deployment, settings: Mapping[str, object]) -> None:
        self.names = broker_names(layout)
        self.nameserver = ""
        self._layout = layout
        self._config = build(BrokerConfig, settings)
        shared = {name: settings[name] for name in shared_names(settings, NAMESERVER_SHARED)}
        self._nameserver_config = build(NameserverConfig, shared)
        self._reserved: dict[str, tuple[Reservation, Reservation]] = {}
        self._brokers: dict[str, LocalServer] = {}
        self._kafka: dict[str, str] = {}
        self._nameserver: LocalServer | None = None
        self._background = Background()

    @property
    def kafka(self) -> str:
        """The Kafka addresses of all brokers, joined by commas; of those that were ready once."""
        return ",".join(self._kafka[name] for name in self.names if name in self._kafka)

    def start(self) -> None:
        """Start all servers, and wait until clients can use them."""
        for name in self.names:
            self._reserved[name] = (
                Reservation(self._layout.host, 0),
                Reservation(self._layout.host, 0),
            )
        self._background.wait(self._start_all())

    async def _start_all(self) -> None:
        self._nameserver = await serve_nameserver(
            self._layout.host, 0, config=self._nameserver_config
        )
        self.nameserver = self._nameserver.address
        try:
            async with asyncio.TaskGroup() as tasks:
                for name in self.names:
                    tasks.create_task(self._start(name))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _start(self, name: str) -> None:
        position = self.names.index(name)
        kafka = None
        if self._layout.kafka_port is not None:
            given = self._config.kafka or KafkaConfig()
            kafka = replace(given, node_id=position + 1, brokers=self.names)
        config = replace(self._config, name=name, nameservers=(self.nameserver,), kafka=kafka)
        port, kafka_port = (each.port for each in self._reserved[name])
        server = await serve_broker(
            str(Path(self._layout.data) / name),
            host=self._layout.host,
            port=port,
            config=config,
            kafka_port=None if kafka is None else kafka_port,
        )
        self._brokers[name] = server
        if server.kafka:
            self._kafka[name] = server.kafka
        await server.known()

    def stop(self, *, cleanly: bool = True) -> None:
        """Stop all servers and the thread."""
        self._background.wait(self._stop_all(cleanly=cleanly))
        for reservations in self._reserved.values():
            for reservation in reservations:
                reservation.close()
        self._background.stop()

    async def _stop_all(self, *, cleanly: bool) -> None:
        await asyncio.gather(*(self._stop(name, cleanly=cleanly) for name in list(self._brokers)))
        if self._nameserver is not None:
            await self._nameserver.stop()

    async def _stop(self, name: str, *, cleanly: bool) -> None:
        server = self._brokers.pop(name, None)
        if server is not None:
            await (server.stop() if cleanly else server.kill())

    def kill(self, name: str) -> None:
        """Stop a broker abruptly: connections are cut and it does nothing more, not even a flush.

        Unlike the death of a process it keeps no half-written entry: what the broker has written is
        written whole.
        """
        self._background.wait(self._stop(name, cleanly=False))

    def restart(self, name: str) -> None:
        """Start a broker again at its addresses, stopping it cleanly before if it runs."""
        self._background.wait(self._restart(name))

    async def _restart(self, name: str) -> None:
        await self._stop(name, cleanly=True)
        await self._start(name)

    def pause(self, name: str) -> None:
        """Not possible here. Raises ConfigError."""
        raise ConfigError(f"pausing a broker {_OTHER_PROCESS}")

    def slow(self, name: str, pause_ms: int, run_ms: int) -> None:
        """Not possible here. Raises ConfigError."""
        raise ConfigError(f"slowing a broker {_OTHER_PROCESS}")

    def resume(self, name: str) -> None:
        """Do nothing: no broker is paused here."""
