"""Links that are dialed with TLS, against a peer with a certificate of its own making."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.client.settings import tls_context
from steelyard.driver.driver import Driver
from steelyard.errors import ConfigError
from steelyard.nodes.seam import Dial, Effect, Event, Opened, Received, Refused, Send
from steelyard.wire.remoting.command import Command

Run = Callable[[Callable[..., object]], None]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def dialed(bench: Any, address: str, tls: ssl.SSLContext | None) -> list[Event]:
    """What a node hears that dials and says hello: all up to the echo, or to the refusal."""

    def react(event: Event, now: int) -> list[Effect]:
        if isinstance(event, Opened):
            return [Send(event.link, Command(7, body=b"x" * 100_000))]
        return []

    node = bench.node(react, begin=[Dial(address)])
    driver = Driver(node, name="test", tls=tls)
    bench.drivers.append(driver)
    driver.start()
    ends = (Received, Refused)
    await bench.until(lambda: any(isinstance(event, ends) for event in node.events))
    return list(node.events)


def test_an_encrypted_link(run_scenario: Run, certificate: Path) -> None:
    async def scenario(bench: Any) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        believing = ssl.create_default_context(cafile=str(certificate))
        assert tls_context(believing) is believing
        assert await dialed(bench, address, believing) == [
            Opened(1, address, dialed=True),
            Received(1, Command(7, body=b"x" * 100_000)),
        ]

        (refused,) = await dialed(bench, address, tls_context(True))
        assert isinstance(refused, Refused)
        assert "certificate verify failed" in refused.reason
        server.close()

    run_scenario(scenario)


def test_a_peer_that_speaks_plainly(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\0\0\0\4nope")
            writer.close()

        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        events = await dialed(bench, address, tls_context(True))
        assert [type(event) for event in events] == [Refused]
        server.close()

    run_scenario(scenario)


def test_settings() -> None:
    assert tls_context(None) is None
    assert tls_context(False) is None
    usual = tls_context(True)
    assert usual is not None
    assert usual.verify_mode is ssl.CERT_REQUIRED
    assert usual.check_hostname
    with pytest.raises(ConfigError, match="SSLContext"):
        tls_context("yes")  # type: ignore[arg-type]
