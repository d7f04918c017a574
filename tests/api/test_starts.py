"""No silent start: who cannot reach its servers says so, with address and cause, and so does `start(timeout=...)`."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.conftest import Servers
from tests.api.twins import Twins
from tests.waiting import until_async

from steelyard import Admin, ClosedError, ConfigError, ConnectError, RouteError
from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.driver.loops import Background, background, run
from steelyard.servers.server import LocalServer, serve_broker, serve_nameserver

CLIENTS = ("Producer", "PushConsumer", "LitePullConsumer", "PullConsumer", "KafkaConsumer")
SHELLS = ("blocking", "aio")
WAITS = (0.3, 3, 30)
"""Seconds. The first is long enough to fail on a quick machine, where the cause is known at once."""


def make(twins: Twins, client: str, address: str, topic: str = "Starts", **more: Any) -> Any:
    """A client of that kind for this address, not started; consumers want the topic."""
    if client == "KafkaConsumer":
        return twins.make(client, topic, bootstrap_servers=address, group_id=f"g-{twins.kind}")
    if client == "Producer":
        return twins.make(client, f"p-{twins.kind}", address)
    listener = (bool,) if client == "PushConsumer" else ()
    made = twins.make(client, f"g-{client}-{twins.kind}", address, *listener)
    return (
        made.register(topic, **more) if client == "PullConsumer" else made.subscribe(topic, **more)
    )


@pytest.fixture(params=SHELLS)
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalServer, LocalServer]]:
    """A nameserver and a broker with a Kafka listener; topics are made by operators only."""
    loop = background()
    nameserver = loop.wait(serve_nameserver(port=0))

    async def serve() -> LocalServer:
        config = BrokerConfig(
            nameservers=(nameserver.address,), auto_create_topics=False, kafka=KafkaConfig()
        )
        folder = str(tmp_path_factory.mktemp("strict"))
        server = await serve_broker(folder, port=0, config=config, kafka_port=0)
        await server.registered()
        return server

    broker = loop.wait(serve(), 30)
    with Admin(nameserver.address) as admin:
        admin.create_topic("Starts")
    yield nameserver, broker
    loop.wait(broker.stop(), 30)
    loop.wait(nameserver.stop(), 30)


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


async def fails(twins: Twins, client: str, address: str, *words: str) -> None:
    """Its start with a time-out raises ConnectError with these words, and leaves nothing behind."""
    for seconds in WAITS:
        made = make(twins, client, address)
        with pytest.raises(ConnectError) as caught:
            await twins.wrap(made).start(seconds)
        with pytest.raises(ClosedError):
            await twins.wrap(made).start()
        if "no answer" not in str(caught.value):
            break
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("client", CLIENTS)
def test_nobody_there(twins: Twins, client: str, caplog: pytest.LogCaptureFixture) -> None:
    address = closed_port()

    async def main() -> None:
        wrapped = twins.wrap(make(twins, client, address))
        with caplog.at_level(logging.WARNING):
            await wrapped.start()
            await until_async(
                lambda: any(address in line and "refused" in line for line in caplog.messages)
            )
        await (wrapped.close() if client == "KafkaConsumer" else wrapped.stop())
        await fails(twins, client, address, address, "Connection refused")

    run(main())


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_is_silent(
    twins: Twins, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts connections, and that is all: the start goes on after a second, and a warning names the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener, caplog.at_level(logging.WARNING):
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        async def main() -> None:
            made = make(twins, client, address)
            await twins.wrap(made).start()
            assert f"{address} yet; trying again" in "\n".join(caplog.messages)
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            wrapped = twins.wrap(made)
            await (wrapped.close() if client == "KafkaConsumer" else wrapped.stop())
            await fails(twins, client, address, address)

        run(main())


@pytest.mark.parametrize("client", CLIENTS)
def test_servers_that_are_there(
    twins: Twins,
    client: str,
    strict: tuple[LocalServer, LocalServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    nameserver, broker = strict

    async def main() -> None:
        address = broker.kafka if client == "KafkaConsumer" else nameserver.address
        wrapped = twins.wrap(make(twins, client, address))
        with caplog.at_level(logging.WARNING):
            await wrapped.start(30)
        assert not [r for r in caplog.records if r.name != "steelyard.broker-a"]
        await (wrapped.close() if client == "KafkaConsumer" else wrapped.stop())

    run(main())


@pytest.mark.parametrize("client", CLIENTS)
def test_wrong_doors(twins: Twins, client: str, strict: tuple[LocalServer, LocalServer]) -> None:
    nameserver, broker = strict
    wants_kafka = client == "KafkaConsumer"
    doors = (
        [
            (
                nameserver.address,
                "a RocketMQ nameserver answers at this address, not a Kafka broker",
                "9092",
            ),
            (
                broker.address,
                "a RocketMQ broker answers at this address, not a Kafka broker",
                "9092",
            ),
        ]
        if wants_kafka
        else [
            (broker.address, "is the port of a RocketMQ broker, not of a nameserver", "9876"),
            (broker.kafka, "a Kafka broker answers at this address, not a RocketMQ", "9876"),
        ]
    )

    async def main() -> None:
        for address, *words in doors:
            await fails(twins, client, address, address, *words)

    run(main())


def test_an_admin_at_a_brokers_port(strict: tuple[LocalServer, LocalServer]) -> None:
    _, broker = strict
    with (
        Admin(broker.address) as admin,
        pytest.raises(ConnectError, match="port of a RocketMQ broker"),
    ):
        admin.topics()


@pytest.mark.parametrize("client", ["PushConsumer", "LitePullConsumer"])
def test_a_rejected_condition(
    twins: Twins, client: str, strict: tuple[LocalServer, LocalServer]
) -> None:
    nameserver, _ = strict

    async def main() -> None:
        made = make(twins, client, nameserver.address, sql="price >>> 3")
        with pytest.raises(ConfigError, match=r"cannot filter topic Starts as subscribed.*SQL92"):
            await twins.wrap(made).start()
        good = twins.wrap(make(twins, client, nameserver.address, sql="price > 3"))
        await good.start()
        await good.stop()

    run(main())


@pytest.mark.parametrize("client", ["PushConsumer", "LitePullConsumer", "PullConsumer"])
def test_a_topic_that_nobody_makes(
    twins: Twins, client: str, strict: tuple[LocalServer, LocalServer], nameservers: str
) -> None:
    """Where brokers make topics that are sent to, it is waited for instead."""
    nameserver, _ = strict

    async def main() -> None:
        with pytest.raises(RouteError, match=r"no topic Nowhere.*create it first"):
            await twins.wrap(make(twins, client, nameserver.address, "Nowhere")).start(30)
        waiting = twins.wrap(make(twins, client, nameservers, "Nowhere"))
        await waiting.start(30)
        await waiting.stop()

    run(main())


@pytest.mark.parametrize("client", ["PushConsumer", "LitePullConsumer", "PullConsumer"])
def test_brokers_that_are_not_there_yet(
    twins: Twins, client: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start with a time-out waits for the first broker, and raises where none comes."""
    loop = Background()
    nameserver = loop.wait(serve_nameserver(port=0))

    async def main() -> None:
        with caplog.at_level(logging.WARNING):
            await fails(twins, client, nameserver.address, "no broker has registered")
        assert "waiting for one" in "\n".join(caplog.messages)
        starting = asyncio.ensure_future(
            twins.wrap(made := make(twins, client, nameserver.address)).start(60)
        )
        config = BrokerConfig(nameservers=(nameserver.address,))
        broker = await asyncio.to_thread(
            lambda: loop.wait(serve_broker(str(tmp_path), port=0, config=config), 30)
        )
        await starting
        await twins.wrap(made).stop()
        await asyncio.to_thread(lambda: loop.wait(broker.stop(), 30))

    run(main())
    loop.wait(nameserver.stop(), 30)
    loop.loop.call_soon_threadsafe(loop.loop.stop)


@pytest.mark.parametrize("client", ["PushConsumer", "LitePullConsumer"])
def test_a_broker_that_is_down(
    twins: Twins, client: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The nameserver still lists it: the warning and the error name the broker and the cause."""
    servers = Servers(tmp_path)
    with Admin(servers.nameservers) as admin:
        admin.create_topic("Starts")
    loop = servers._background
    for name in ("broker-a", "broker-b"):
        loop.wait(kill(servers._brokers[name]), 30)

    async def main() -> None:
        with caplog.at_level(logging.WARNING):
            await fails(
                twins,
                client,
                servers.nameservers,
                "cannot connect to 127.0.0.1",
                "Connection refused",
            )
        assert "broker 127.0.0.1" in "\n".join(caplog.messages)

    run(main())
    servers.stop()


async def kill(server: LocalServer) -> None:
    """Its port is closed; nobody is told."""
    for listener in server.driver._servers:
        listener.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_failed_says_why(
    twins: Twins, client: str, strict: tuple[LocalServer, LocalServer]
) -> None:
    """A broken state stops the client; every later call names the cause."""
    nameserver, broker = strict

    async def main() -> None:
        address = broker.kafka if client == "KafkaConsumer" else nameserver.address
        made = make(twins, client, address)
        wrapped = twins.wrap(made)
        await wrapped.start(30)
        driver = made._running.driver
        calls: dict[str, Callable[[], Any]] = {
            "Producer": lambda: wrapped.queues("Starts"),
            "PushConsumer": lambda: wrapped.state(),
            "LitePullConsumer": lambda: wrapped.assignment(),
            "PullConsumer": lambda: wrapped.queues("Starts"),
            "KafkaConsumer": lambda: wrapped.assignment(),
        }
        await calls[client]()
        broken = AssertionError("two owners of one queue")
        driver._loop.call_soon_threadsafe(driver._crash, "the state is broken", broken)
        await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(asyncio.wait_for(driver.failed, 30), driver._loop)
        )
        with pytest.raises(ClosedError, match="two owners of one queue") as caught:
            await calls[client]()
        assert caught.value.__cause__ is broken

    run(main())
