"""A nameserver and two brokers in this process, on free ports, for the public API's tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from steelyard.config import BrokerConfig
from steelyard.driver.loops import Background
from steelyard.nodes.broker.node import BrokerNode
from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver
from steelyard.types import MessageQueue


class Servers:
    """A small cluster on a loop of its own. `config`: of its brokers, but for names and nameservers."""

    def __init__(self, folder: Path, config: BrokerConfig | None = None) -> None:
        self._config = config or BrokerConfig()
        self._background = Background()
        self._folder = folder
        self._nameserver = self._background.wait(serve_nameserver(port=0))
        self.nameservers = self._nameserver.address
        self._brokers: dict[str, LocalServer] = {}
        for name in ("broker-a", "broker-b"):
            self.start_broker(name)

    def start_broker(self, name: str, port: int = 0) -> None:
        config = replace(self._config, name=name, nameservers=(self.nameservers,))

        async def start() -> LocalServer:
            server = await serve_broker(str(self._folder / name), port=port, config=config)
            await server.registered()
            return server

        self._brokers[name] = self._background.wait(start(), PATIENCE_S)

    def stop_broker(self, name: str) -> int:
        """Stop one broker cleanly; the port it had."""
        server = self._brokers.pop(name)
        self._background.wait(server.stop(), PATIENCE_S)
        return int(server.address.rpartition(":")[2])

    def parked(self, queue: MessageQueue) -> int:
        """How many pulls wait at the queue's broker for its next message."""
        node = self._brokers[queue.broker_name].driver.node
        assert isinstance(node, BrokerNode)
        return len(node._pulls.parked.of_queue((queue.topic, queue.queue_id)) or ())

    def stop(self) -> None:
        for name in list(self._brokers):
            self.stop_broker(name)
        self._background.wait(self._nameserver.stop(), PATIENCE_S)
        self._background.loop.call_soon_threadsafe(self._background.loop.stop)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("brokers"))
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def nameservers(servers: Servers) -> str:
    return servers.nameservers
