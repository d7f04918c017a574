"""Servers with accounts: their file while they run, and that they know each other."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.waiting import until_async

from steelyard.aio import Admin, Producer
from steelyard.config import (
    BrokerConfig,
    KafkaConfig,
    NameserverConfig,
    ProducerConfig,
    TlsClientConfig,
    TlsConfig,
)
from steelyard.errors import BrokerError, ConfigError, RouteError
from steelyard.nodes.broker.node import BrokerNode
from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver
from steelyard.servers.watched_files import FILE_BYTES_MAX

ACCOUNTS = """\
accounts:
- accessKey: the-brokers
  secretKey: {secret}
  admin: true
- accessKey: clerk-one
  secretKey: clerk-secret
  topicPerms:
  - orders={permission}
"""


def written(path: Path, *, secret: str = "brokers-secret", permission: str = "PUB") -> None:
    """Write the file as editors do: another one under its name."""
    new = path.with_suffix(".new")
    new.write_text(ACCOUNTS.format(secret=secret, permission=permission))
    os.replace(new, path)


Scenario = Callable[[LocalServer, list[LocalServer]], Awaitable[None]]


def run(file: Path, data: Path, scenario: Scenario, *, tls: Authority | None = None) -> None:
    """Run a coroutine with a nameserver and two brokers with Kafka listeners."""
    served, dialed = TlsConfig(), TlsClientConfig()
    if tls is not None:
        pair = tls.sign("server", "/CN=server")
        served = TlsConfig(
            server_mode="enforcing",
            server_cert_file=str(pair.certificate),
            server_key_file=str(pair.key),
        )
        dialed = TlsClientConfig(trust_file=str(tls.certificate))

    async def main() -> None:
        nameserver = await serve_nameserver(
            port=0, config=NameserverConfig(acl_file=str(file), tls=served)
        )
        brokers: list[LocalServer] = []
        names = ("broker-a", "broker-b")
        try:
            async with asyncio.timeout(120):
                for number, name in enumerate(names, 1):
                    config = BrokerConfig(
                        name=name,
                        nameservers=(nameserver.address,),
                        acl_file=str(file),
                        acl_access_key="the-brokers",
                        tls=served,
                        tls_client=dialed,
                        kafka=KafkaConfig(node_id=number, brokers=names),
                    )
                    folder = str(data / name)
                    brokers.append(await serve_broker(folder, port=0, kafka_port=0, config=config))
                for broker in brokers:
                    await broker.known()
                await scenario(nameserver, brokers)
        finally:
            for broker in brokers:
                await broker.stop()
            await nameserver.stop()

    asyncio.run(main())


async def is_sent(nameserver: LocalServer, secret: str = "clerk-secret") -> bool:
    config = ProducerConfig(access_key="clerk-one", secret_key=secret)
    try:
        async with Producer("pg", nameserver.address, config=config) as producer:
            await producer.send("orders", b"hello", timeout_ms=20_000)
    except (BrokerError, RouteError) as refused:
        error = str(refused)
    else:
        return True
    assert re.search("check signature failed|no permission", error)
    return False


def test_the_file_while_servers_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "plain_acl.yml"
    written(file)

    async def scenario(nameserver: LocalServer, brokers: list[LocalServer]) -> None:
        assert await is_sent(nameserver)
        assert not await is_sent(nameserver, "some-other-secret")
        written(file, permission="DENY")

        async def is_refused() -> bool:
            return not await is_sent(nameserver)

        await until_async(is_refused)
        written(file, permission="ALL")
        await until_async(
            lambda: caplog.text.count("'ALL' is no permission") >= 3  # of three servers
        )
        assert not await is_sent(nameserver)
        written(file, secret="brokers-new-secret")
        await until_async(lambda: is_sent(nameserver))
        file.unlink()
        await until_async(lambda: "No such file" in caplog.text)
        assert await is_sent(nameserver)

    with caplog.at_level(logging.WARNING):
        run(file, tmp_path, scenario)
    assert "the former accounts still apply" in caplog.text
    for secret in ("brokers-secret", "brokers-new-secret", "clerk-secret"):
        assert secret not in caplog.text


def test_brokers_know_each_other(tmp_path: Path) -> None:
    """With accounts, and TLS everywhere: users and topics reach the other broker."""
    authority = Authority(tmp_path / "tls")
    file = tmp_path / "plain_acl.yml"
    written(file)

    async def scenario(nameserver: LocalServer, brokers: list[LocalServer]) -> None:
        nodes = [broker.driver.node for broker in brokers]
        first, second = (node for node in nodes if isinstance(node, BrokerNode))
        user = first._parts.users.changed("alice", {})
        first._parts.users.merge([user])
        await until_async(lambda: second._parts.users.digest == first._parts.users.digest)
        context = authority.client_context()
        key, secret = "the-brokers", "brokers-secret"
        async with Admin(
            nameserver.address, tls=context, access_key=key, secret_key=secret
        ) as admin:
            assert len((await admin.clusters()).broker_addr_table) == 2
        async with Admin(nameserver.address, tls=context) as admin:
            for broker in brokers:
                for code in (28, 9007, 9008, 9009):
                    with pytest.raises(BrokerError, match="not signed"):
                        await admin.ask(broker.address, code)

    run(file, tmp_path, scenario, tls=authority)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "No such file"),
        (b"accounts:\n- accessKey: \xff", "is not UTF-8"),
        (b"x" * (FILE_BYTES_MAX + 1), "has more than"),
        (b"accounts: 1", "accounts is not a list"),
        (b"accounts:", "own account 'the-brokers'"),
    ],
)
def test_a_wrong_file_at_the_start(tmp_path: Path, data: bytes | None, words: str) -> None:
    file = tmp_path / "plain_acl.yml"
    if data is not None:
        file.write_bytes(data)
    config = BrokerConfig(acl_file=str(file), acl_access_key="the-brokers")
    with pytest.raises(ConfigError, match=words):
        asyncio.run(serve_broker(str(tmp_path / "data"), port=0, config=config))
