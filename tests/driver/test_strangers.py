"""Clients that come to the wrong port are told so, in the log and, where their protocol allows it, in an answer."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver
from steelyard.wire.remoting import frame
from steelyard.wire.remoting.command import Command

API_VERSIONS = bytes.fromhex(
    "0000002400120003000000010006647269766572000b6c696272646b61666b6107322e31362e3000"
)
REMOTING = frame.encode(Command(code=34, ext={"topic": "t"}))
TLS = bytes.fromhex("160301020001000001fc0303")


async def heard(address: str, data: bytes) -> bytes:
    """Everything that the port says until it closes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    async with asyncio.timeout(20):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_at_a_nameserver(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_at_a_nameserver(caplog))


async def _at_a_nameserver(caplog: pytest.LogCaptureFixture) -> None:
    server: LocalServer = await serve_nameserver(port=0)
    try:
        assert (await heard(server.address, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert (await heard(server.address, TLS))[:1] == b"\x15"
        assert await heard(server.address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == b""
        for _ in range(3):
            assert await heard(server.address, API_VERSIONS) == b""
    finally:
        await server.stop()
    said = warnings(caplog)
    assert len(said) == 4, said
    assert all("a RocketMQ nameserver" in text for text in said)
    assert "speaks HTTP to" in said[0]
    assert "without TLS" in said[1]
    assert "gRPC" in said[2]
    assert "Kafka port of a broker" in said[3]


def test_at_a_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_at_a_broker(tmp_path, caplog))


async def _at_a_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve_broker(str(tmp_path), port=0, kafka_port=0)
    try:
        assert await heard(server.address, API_VERSIONS) == b""
        assert await heard(server.kafka, REMOTING) == b""
    finally:
        await server.stop()
    said = [text for text in warnings(caplog) if "speaks" in text]
    assert len(said) == 2, said
    assert f"Kafka clients connect to {server.kafka}" in said[0]
    assert "the RocketMQ port of broker" in said[0]
    assert server.address in said[1]
    assert "the Kafka port of broker" in said[1]
