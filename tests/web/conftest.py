"""A cluster in this process, and an HTTP server beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.api.kafka import KafkaServers

from steelyard.config import HttpConfig
from steelyard.driver.loops import Background
from steelyard.web.serving import HttpServer


class Watched(NamedTuple):
    """Brokers, and the address of the HTTP server beside them."""

    servers: KafkaServers
    http: str


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    servers = KafkaServers(tmp_path)
    config = HttpConfig(
        nameservers=(servers.nameservers,),
        brokers=("broker-0", "broker-1"),
        fresh_ms=0,
        timeout_ms=10_000,
        rebalance_settle_ms=500,
    )
    background = Background()

    async def start() -> HttpServer:
        return await HttpServer(config).__aenter__()

    server = background.wait(start(), 60)
    yield Watched(servers, server.address)
    background.wait(server.__aexit__(), 60)
    background.loop.call_soon_threadsafe(background.loop.stop)
    servers.stop()
