"""A cluster in this process with a console beside it that may change it, for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.api.kafka import KafkaServers

from steelyard.config import HttpConfig
from steelyard.driver.loops import Background
from steelyard.web.serving import HttpServer


class Consoles(NamedTuple):
    """Servers, and consoles of them: one that only reads, one that may change things, and one that uses Kafka's protocol."""

    servers: KafkaServers
    http: str
    changing: str
    kafka: str


@contextmanager
def console(config: HttpConfig, kafka: str = "", *, host: str = "127.0.0.1") -> Iterator[str]:
    """An HTTP server in this process, by its address."""
    background = Background()

    async def start() -> HttpServer:
        addresses = kafka.split(",") if kafka else ()
        return await HttpServer(config, host=host, kafka=addresses).__aenter__()

    server = background.wait(start(), 60)
    try:
        yield server.address
    finally:
        background.wait(server.__aexit__(), 60)
        background.loop.call_soon_threadsafe(background.loop.stop)


@pytest.fixture(scope="module")
def consoles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    folder: Path = tmp_path_factory.mktemp("consoles")
    servers = KafkaServers(folder)
    reading = HttpConfig(nameservers=(servers.nameservers,), fresh_ms=0, timeout_ms=10_000)
    changing = replace(reading, allow_changes=True)
    with (
        console(reading) as http,
        console(changing) as other,
        console(changing, servers.bootstrap) as kafka,
    ):
        yield Consoles(servers, http, other, kafka)
    servers.stop()
