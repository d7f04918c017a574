"""A broker's Kafka listener with TLS: certificates of both sides, their renewal, strangers."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, Pair
from tests.waiting import until_async

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.awaited_links import KafkaRequester
from steelyard.errors import ConfigError, RemotingError, SteelyardError
from steelyard.nodes.broker.node import BrokerNode
from steelyard.servers.server import LocalServer, serve_broker
from steelyard.wire.kafka.messages.cluster import METADATA, MetadataRequest, MetadataResponse


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("broker", "/CN=broker")


def settings(pair: Pair, **more: Any) -> KafkaConfig:
    return KafkaConfig(
        ssl_certificate_file=str(pair.certificate), ssl_key_file=str(pair.key), **more
    )


def run(config: KafkaConfig, data: Path, scenario: Callable[[LocalServer], Any]) -> None:
    """Run a coroutine with a broker that has this Kafka listener."""

    async def main() -> None:
        broker = BrokerConfig(kafka=config)
        server = await serve_broker(str(data), port=0, kafka_port=0, config=broker)
        try:
            await scenario(server)
        finally:
            await server.stop()

    asyncio.run(main())


async def brokers(address: str, tls: ssl.SSLContext | None) -> int:
    """Ask for the metadata on a connection of its own; return how many brokers there are."""
    requester = KafkaRequester("test", timeout_ms=20_000, tls=tls)
    try:
        answer = await requester.call(address, METADATA, MetadataRequest(), MetadataResponse)
        return len(answer.brokers)
    finally:
        await requester.close()


def owners(server: LocalServer) -> set[str]:
    """The owners of the certificates of all Kafka clients that are connected."""
    node = server.driver.node
    assert isinstance(node, BrokerNode)
    assert node._kafka is not None
    return {peer.owner for peer in node._kafka.channel._peers.values()}


def test_an_encrypted_listener(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    async def scenario(server: LocalServer) -> None:
        assert await brokers(server.kafka, authority.client_context()) == 1
        with pytest.raises(SteelyardError, match="certificate verify failed"):
            await brokers(server.kafka, ssl.create_default_context())

        old = authority.client_context()
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(SteelyardError):
            await brokers(server.kafka, old)

    run(settings(pair), tmp_path, scenario)


def test_clients_that_speak_the_wrong_way(
    authority: Authority, pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def encrypted(server: LocalServer) -> None:
        with pytest.raises(RemotingError):
            await brokers(server.kafka, None)
        host, _, port = server.kafka.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        assert await brokers(server.kafka, authority.client_context()) == 1

    async def plain(server: LocalServer) -> None:
        with pytest.raises(SteelyardError):
            await brokers(server.kafka, authority.client_context())

    with caplog.at_level(logging.WARNING):
        run(settings(pair), tmp_path / "a", encrypted)
        assert "this port is encrypted: set security.protocol to SSL" in caplog.text
        run(KafkaConfig(), tmp_path / "b", plain)
        assert "this port is not encrypted: connect without TLS" in caplog.text


@pytest.mark.parametrize("demand", ["requested", "required"])
def test_certificates_of_clients(
    authority: Authority, pair: Pair, tmp_path: Path, demand: str
) -> None:
    alice = authority.sign("alice", "/O=Orders/CN=alice")
    stranger = Authority(tmp_path / "other").sign("alice", "/O=Orders/CN=alice")

    async def scenario(server: LocalServer) -> None:
        requester = KafkaRequester("test", timeout_ms=20_000, tls=authority.client_context(alice))
        await requester.call(server.kafka, METADATA, MetadataRequest(), MetadataResponse)
        assert owners(server) == {"CN=alice,O=Orders"}
        await requester.close()

        with pytest.raises(SteelyardError):
            await brokers(server.kafka, authority.client_context(stranger))
        if demand == "requested":
            assert await brokers(server.kafka, authority.client_context()) == 1
        else:
            with pytest.raises(SteelyardError):
                await brokers(server.kafka, authority.client_context())
        await until_async(lambda: not owners(server))
        (listening,) = (one for one in server.driver.accepting.listeners if one.name == "kafka")
        await until_async(lambda: listening.count == 0)
        assert not listening.by_ip

    ca = str(authority.certificate)
    run(settings(pair, ssl_client_auth=demand, ssl_client_ca_file=ca), tmp_path, scenario)


def test_renewal(authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A new pair serves new connections, a broken one is told of; no open connection notices."""
    first = authority.sign("first", "/CN=first")
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    for source, target in zip(vars(first).values(), vars(used).values(), strict=True):
        target.write_bytes(source.read_bytes())

    async def name(server: LocalServer) -> str:
        host, _, port = server.kafka.rpartition(":")
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=authority.client_context(), server_hostname="127.0.0.1"
        )
        found = writer.get_extra_info("peercert")["subject"][0][0][1]
        writer.close()
        return str(found)

    async def scenario(server: LocalServer) -> None:
        requester = KafkaRequester("test", timeout_ms=20_000, tls=authority.client_context())
        await requester.call(server.kafka, METADATA, MetadataRequest(), MetadataResponse)
        assert await name(server) == "first"

        second = authority.sign("second", "/CN=second")
        replaced(used.certificate, second.certificate.read_bytes())
        await until_async(lambda: "cannot be used" in caplog.text)  # the key is still the first's
        assert await name(server) == "first"
        replaced(used.key, second.key.read_bytes())

        async def is_second() -> bool:
            return await name(server) == "second"

        await until_async(is_second)
        await requester.call(server.kafka, METADATA, MetadataRequest(), MetadataResponse)
        node = server.driver.node
        assert isinstance(node, BrokerNode)
        assert node._kafka is not None
        await until_async(lambda: len(node._kafka.channel._peers) == 1)  # type: ignore[union-attr]
        await requester.close()

    with caplog.at_level(logging.ERROR):
        run(settings(used), tmp_path / "data", scenario)
    assert "new connections still use the former files" in caplog.text


def replaced(path: Path, data: bytes) -> None:
    """Replace a file as those who renew certificates do: by another one under its name."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ssl_certificate_file": "/nowhere.pem"}, "cannot be read: No such file"),
        ({"ssl_key_file": "{ca}"}, "cannot be used"),
        ({"ssl_client_auth": "required"}, "give kafka.ssl_client_ca_file"),
        ({"ssl_client_auth": "perhaps"}, "ssl_client_auth"),
        ({"ssl_client_auth": "required", "ssl_client_ca_file": "/nowhere.pem"}, "cannot be read"),
        ({"ssl_certificate_file": ""}, "ssl_key_file is given without"),
        (
            {"ssl_certificate_file": "", "ssl_key_file": "", "ssl_client_auth": "required"},
            "only TLS connections",
        ),
    ],
)
def test_wrong_settings(
    authority: Authority, pair: Pair, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    given: dict[str, Any] = {
        name: value.format(ca=authority.certificate) for name, value in changes.items()
    }
    config = BrokerConfig(kafka=replace(settings(pair), **given))
    with pytest.raises(ConfigError, match=words):
        asyncio.run(serve_broker(str(tmp_path), port=0, kafka_port=0, config=config))


def test_an_encrypted_key(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    import subprocess

    key = tmp_path / "secret.key"
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret"]
    subprocess.run(
        [*command, "-in", str(pair.key), "-out", str(key)], check=True, capture_output=True
    )
    config = BrokerConfig(kafka=replace(settings(pair), ssl_key_file=str(key)))
    with pytest.raises(ConfigError, match="the key is encrypted"):
        asyncio.run(serve_broker(str(tmp_path / "data"), port=0, kafka_port=0, config=config))
