"""TLS at the RocketMQ ports of brokers and nameservers, and between our own servers."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, Pair
from tests.waiting import until_async

from steelyard.aio import Admin, Producer, PullConsumer
from steelyard.config import (
    BrokerConfig,
    HttpConfig,
    NameserverConfig,
    TlsClientConfig,
    TlsConfig,
    check,
)
from steelyard.errors import ConfigError, RemotingError, SteelyardError
from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver

TOPIC = "orders"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server", "/CN=server")


def served(pair: Pair, mode: str = "enforcing", **more: Any) -> TlsConfig:
    return TlsConfig(
        server_mode=mode,  # type: ignore[arg-type]
        server_cert_file=str(pair.certificate),
        server_key_file=str(pair.key),
        **more,
    )


Scenario = Callable[[LocalServer, LocalServer], Awaitable[None]]


def run(
    tls: TlsConfig, data: Path, scenario: Scenario, dialed: TlsClientConfig | None = None
) -> None:
    """Run a coroutine with a nameserver and a broker that both have this TLS."""

    async def main() -> None:
        nameserver = await serve_nameserver(port=0, config=NameserverConfig(tls=tls))
        config = BrokerConfig(
            nameservers=(nameserver.address,), tls=tls, tls_client=dialed or TlsClientConfig()
        )
        broker = await serve_broker(str(data), port=0, config=config)
        try:
            async with asyncio.timeout(60):
                await broker.known()
                await scenario(nameserver, broker)
        finally:
            await broker.stop()
            await nameserver.stop()

    asyncio.run(main())


async def send(nameserver: str, tls: ssl.SSLContext | None, body: bytes) -> None:
    async with Producer("pg", nameserver, tls=tls) as producer:
        await producer.send(TOPIC, body, timeout_ms=20_000)


async def bodies(nameserver: str, tls: ssl.SSLContext | None) -> set[bytes]:
    """Read all messages of the topic."""
    found: set[bytes] = set()
    async with PullConsumer("cg", nameserver, tls=tls) as consumer:
        for queue in await consumer.queues(TOPIC):
            result = await consumer.pull(queue, 0)
            found |= {message.body for message in result.messages}
    return found


def test_permissive(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    """Both kinds of clients use the same ports; servers connect without TLS unless told to."""

    async def scenario(nameserver: LocalServer, broker: LocalServer) -> None:
        await send(nameserver.address, authority.client_context(), b"encrypted")
        await send(nameserver.address, None, b"plain" * 100_000)
        for tls in (None, authority.client_context()):
            assert await bodies(nameserver.address, tls) == {b"encrypted", b"plain" * 100_000}

    run(served(pair, "permissive"), tmp_path, scenario)


def test_enforcing(
    authority: Authority, pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(nameserver: LocalServer, broker: LocalServer) -> None:
        await send(nameserver.address, authority.client_context(), b"encrypted")
        for address in (nameserver.address, broker.address):
            async with Admin(nameserver.address, timeout_ms=5_000) as admin:
                with pytest.raises(RemotingError):
                    await admin.ask(address, 28)
        with pytest.raises(SteelyardError):
            async with Admin(nameserver.address, tls=ssl.create_default_context()) as admin:
                await admin.clusters()  # it trusts nobody who vouches for this certificate

    trusting = TlsClientConfig(trust_file=str(authority.certificate))
    run(served(pair), tmp_path, scenario, trusting)
    assert "this port is encrypted: connect with TLS" in caplog.text


def test_disabled(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    async def scenario(nameserver: LocalServer, broker: LocalServer) -> None:
        await send(nameserver.address, None, b"plain")
        async with Admin(nameserver.address, tls=authority.client_context()) as admin:
            with pytest.raises(RemotingError):
                await admin.clusters()

    run(served(pair, "disabled"), tmp_path, scenario)


def test_certificates_of_clients(authority: Authority, pair: Pair, tmp_path: Path) -> None:
    """Whoever shows none is refused, also a broker; it shows its own at the nameserver."""
    other = authority.sign("other", "/CN=other")

    async def scenario(nameserver: LocalServer, broker: LocalServer) -> None:
        await send(nameserver.address, authority.client_context(other), b"known")
        async with Admin(nameserver.address, tls=authority.client_context()) as admin:
            with pytest.raises(RemotingError):
                await admin.clusters()

    ca = str(authority.certificate)
    tls = served(pair, server_trust_file=ca, server_need_client_auth="require")
    dialed = TlsClientConfig(trust_file=ca, cert_file=str(pair.certificate), key_file=str(pair.key))
    run(tls, tmp_path, scenario, dialed)


def test_renewal(authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New connections use what the files have now, accepted ones and dialed ones."""
    first = authority.sign("first", "/CN=first")
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    trusted = tmp_path / "trusted.pem"
    for source, target in (
        (first.certificate, used.certificate),
        (first.key, used.key),
        (authority.certificate, trusted),
    ):
        target.write_bytes(source.read_bytes())
    later = Authority(tmp_path / "later", "later")
    second = later.sign("second", "/CN=second")

    async def scenario(nameserver: LocalServer, broker: LocalServer) -> None:
        replaced(used.key, second.key)
        await until_async(lambda: "still use the former files" in caplog.text)
        async with Admin(nameserver.address, tls=authority.client_context()) as admin:
            assert await admin.clusters()
        replaced(trusted, later.certificate)
        replaced(used.certificate, second.certificate)

        async def is_second() -> bool:
            async with Admin(nameserver.address, tls=later.client_context()) as admin:
                try:
                    return bool((await admin.clusters()).broker_addr_table)
                except SteelyardError:
                    return False

        await until_async(is_second)
        for link in list(broker.driver._links.values()):  # it has to dial again
            if link.dialed:
                link.cut("the test")
        await until_async(lambda: any(link.dialed for link in broker.driver._links.values()))
        await until_async(is_second)

    tls = TlsConfig(
        server_mode="enforcing",
        server_cert_file=str(used.certificate),
        server_key_file=str(used.key),
    )
    with caplog.at_level(logging.ERROR):
        run(tls, tmp_path / "data", scenario, TlsClientConfig(trust_file=str(trusted)))


def replaced(path: Path, source: Path) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    os.replace(new, path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server_cert_file": "/nowhere.pem"}, "tls.server_cert_file /nowhere.pem .*No such file"),
        ({"server_key_file": "{ca}"}, "cannot be used"),
        ({"server_need_client_auth": "require"}, "give tls.server_trust_file"),
        ({"server_mode": "strict"}, "server_mode"),
        ({"server_cert_file": ""}, "tls.server_key_file is given without"),
        ({"server_cert_file": "", "server_key_file": ""}, "'enforcing' without"),
        (
            {
                "server_mode": "permissive",
                "server_cert_file": "",
                "server_key_file": "",
                "server_need_client_auth": "optional",
            },
            "only TLS connections have certificates",
        ),
    ],
)
def test_wrong_settings(
    authority: Authority, pair: Pair, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    given: dict[str, Any] = {
        name: value.format(ca=authority.certificate) for name, value in changes.items()
    }
    tls = replace(served(pair), **given)
    with pytest.raises(ConfigError, match=words):
        asyncio.run(serve_broker(str(tmp_path), port=0, config=BrokerConfig(tls=tls)))
    with pytest.raises(ConfigError, match=words):
        asyncio.run(serve_nameserver(port=0, config=NameserverConfig(tls=tls)))


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        (TlsClientConfig(key_file="key"), "without tls_client.cert_file"),
        (TlsClientConfig(cert_file="cert"), "without tls_client.trust_file"),
    ],
)
def test_wrong_settings_of_dialing(tls: TlsClientConfig, words: str) -> None:
    for config in (BrokerConfig(tls_client=tls), HttpConfig(tls_client=tls)):
        with pytest.raises(ConfigError, match=words):
            check(config)
