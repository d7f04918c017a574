"""A nameserver or a broker in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steelyard.config import BrokerConfig, KafkaConfig, NameserverConfig, check
from steelyard.driver.descriptors import connections_max, files_max, in_use, raise_limit
from steelyard.driver.driver import Driver
from steelyard.driver.links import LinkLimits
from steelyard.driver.listening import advertised, bind, bind_pair, check_address
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError, DamageError, OwnerError, SteelyardError, StorageError
from steelyard.nodes.seam import KAFKA, Call
from steelyard.wire.strangers import Signs, Stranger

if TYPE_CHECKING:
    from steelyard.config import TlsConfig
    from steelyard.driver.encryption import TlsContext
    from steelyard.nodes.broker.users import User
    from steelyard.servers.accounts import AccountsFile
    from steelyard.store.recovery import Recovery
    from steelyard.store.store import Store

STOP_SECONDS = 10.0
"""Time for a clean stop before the process ends anyway."""

PORT_OPTION, KAFKA_PORT_OPTION = "--port", "--kafka-port"
"""Of `steelyard nameserver` and `broker`, whose users give fixed ports."""

_log = logger("steelyard.server")


@dataclass(slots=True)
class LocalServer:
    """A running server: its addresses, and how to stop it."""

    address: str
    driver: Driver
    kafka: str = ""
    """The address of its Kafka listener; empty for none."""
    stop_call: Call[None] | None = None
    """A call for the node at a clean stop, if it has something to do then."""
    after: Callable[[], None] = lambda: None
    """Frees remaining resources afterwards."""

    async def stop(self) -> None:
        """Stop cleanly: the node stops, its writes reach the disk, links are closed."""
        if self.stop_call is not None:
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self.driver.ask(self.stop_call)
            except (SteelyardError, TimeoutError) as error:
                _log.warning("the stop was not clean: %r", error)
        await self.driver.close()
        self.after()

    async def kill(self) -> None:
        """Stop as a killed process does: connections are cut, and the node does nothing more.

        What it has written, the kernel has.
        """
        await self.driver.close(timeout_seconds=0)
        self.after()

    async def registered(self) -> None:
        """Wait until RocketMQ's clients find this broker."""
        from steelyard.nodes.broker.peers.registration import AwaitRegistration

        await self.driver.ask(AwaitRegistration())

    async def known(self) -> None:
        """Wait until clients of either dialect find this broker."""
        from steelyard.nodes.broker.node import KafkaReady

        await self.registered()
        if self.kafka:
            await self.driver.ask(KafkaReady())


async def serve_nameserver(
    host: str = "127.0.0.1",
    port: int = 9876,
    *,
    config: NameserverConfig | None = None,
    listener: socket.socket | None = None,
) -> LocalServer:
    """Start a nameserver. Port 0 picks a free one. Raises ConfigError if it cannot listen."""
    from steelyard.nodes.nameserver import NameserverNode

    config = config or NameserverConfig()
    check(config)
    if listener is None:
        listener = bind(host, port, option=PORT_OPTION)
    try:
        tls = _tls_of(config.tls, "nameserver")
        accounts = _accounts_of(config.acl_file)
    except ConfigError:
        listener.close()
        raise
    limits = LinkLimits(accepted_max=connections_max(raise_limit(), in_use(), 0))
    node = NameserverNode(config, None if accounts is None else accounts.first)
    driver = Driver(node, name="nameserver", limits=limits)
    driver.start()
    await driver.listen(
        listener,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        signs=Signs("a RocketMQ nameserver", encrypted=_encrypted(config.tls)),
        tls=tls,
        is_tls_optional=config.tls.server_mode == "permissive",
    )
    after = _watched(accounts, driver, "nameserver")
    return LocalServer(advertised(host, listener), driver, after=after)


def _accounts_of(path: str) -> AccountsFile | None:
    """Read a file of accounts, if there is one. Raises ConfigError."""
    if not path:
        return None
    from steelyard.servers.accounts import AccountsFile

    return AccountsFile(path)


def _watched(accounts: AccountsFile | None, driver: Driver, name: str) -> Callable[[], None]:
    """Watch a file of accounts; return what ends that."""
    if accounts is None:
        return lambda: None
    accounts.watch(driver, asyncio.get_running_loop(), logger(f"steelyard.{name}"))
    return accounts.close


def _tls_of(config: TlsConfig, name: str) -> TlsContext | None:
    """Return the TLS context of a RocketMQ port. Raises ConfigError if a file cannot be used."""
    if not config.is_on:
        return None
    from steelyard.driver.encryption import TlsContext, of_listener

    return TlsContext(of_listener(config), logger(f"steelyard.{name}"))


def _encrypted(config: TlsConfig) -> Stranger | None:
    """Return what clients of a RocketMQ port speak within TLS, if they must."""
    return Stranger.REMOTING if config.is_on and config.server_mode == "enforcing" else None


async def serve_broker(
    data: str,
    *,
    host: str = "127.0.0.1",
    port: int = 10911,
    advertise: str | None = None,
    config: BrokerConfig | None = None,
    kafka_port: int | None = None,
    kafka_advertise: str | None = None,
) -> LocalServer:
    """Start a broker on the directory `data`.

    The addresses in `config` are replaced by those it listens on. `kafka_port`: of the Kafka
    listener, 0 picks a free one, None for no such listener. Raises ConfigError if it cannot listen,
    StorageError if the directory cannot be used.
    """
    import random

    from steelyard.driver.disk import LiveDisk
    from steelyard.nodes.broker.identity import identity_of
    from steelyard.nodes.broker.node import BrokerNode, Stop
    from steelyard.store.store import Store

    config = config or BrokerConfig()
    config = replace(config, kafka=None if kafka_port is None else config.kafka or KafkaConfig())
    check(config)
    for told, name in ((advertise, "address"), (kafka_advertise, "kafka.address")):
        if told:
            check_address(told, name)
    users: tuple[User, ...] = ()
    if config.users_file:
        from steelyard.servers.users import read_users

        users = read_users(config.users_file)
    disk = LiveDisk(data)
    listeners: list[socket.socket] = []
    try:
        if config.vip_channel:
            listeners += bind_pair(host, port, option=PORT_OPTION)
        else:
            listeners.append(bind(host, port, option=PORT_OPTION))
        listener, *vip = listeners
        if kafka_port is not None:
            listeners.append(bind(host, kafka_port, option=KAFKA_PORT_OPTION))
        tls = _tls_of(config.tls, config.name)
        accounts = _accounts_of(config.acl_file)
        token_keys = None
        if config.kafka is not None and config.kafka.sasl_oauthbearer_jwks_endpoint_url:
            from steelyard.servers.token_keys import TokenKeySource

            token_keys = TokenKeySource(config.kafka)
        kafka_tls = peer_tls = None
        if config.kafka is not None and config.kafka.ssl_certificate_file:
            from steelyard.driver.encryption import TlsContext, of_kafka_listener

            kafka_tls = TlsContext(
                of_kafka_listener(config.kafka), logger(f"steelyard.{config.name}")
            )
        if config.tls_client.trust_file:
            from steelyard.driver.encryption import TlsContext, of_dialing

            peer_tls = TlsContext(of_dialing(config.tls_client), logger(f"steelyard.{config.name}"))
        address = advertise or advertised(host, listener)
        kafka = "" if kafka_port is None else kafka_advertise or advertised(host, listeners[-1])
        settings = config.kafka and replace(config.kafka, address=kafka)
        limit = raise_limit()
        files = files_max(limit)
        limits = LinkLimits(accepted_max=connections_max(limit, in_use(), files))
        config = replace(config, address=address, kafka=settings)
        store = Store(disk, config.store, identity_of(config), open_files_max=files)
        recovery = _opened(store, data)
        node = BrokerNode(
            config,
            store,
            random.Random(os.urandom(16)),
            users=users,
            accounts=None if accounts is None else accounts.first,
            secrets=random.SystemRandom(),
        )
        driver = Driver(
            node,
            name=config.name,
            prepare_flush=lambda: store.take_dirty().sync,
            limits=limits,
            peer_tls=peer_tls,
            measures=True,
            address_translation=config.address_translation,
        )
    except (OSError, SteelyardError) as error:
        for listener in listeners:
            listener.close()
        disk.close()
        if isinstance(error, OSError) and not isinstance(error, SteelyardError):
            raise StorageError(f"data directory {data}: {error.strerror or error}") from None
        raise
    _log.info("%s: %s", config.name, recovery)
    for text in recovery.warnings():
        _log.warning("%s: data directory %s: %s", config.name, data, text)
    driver.start()
    if token_keys is not None:
        await token_keys.start(driver, logger(f"steelyard.{config.name}"))
    await driver.listen(
        listener,
        connections_max=config.max_connections,
        connections_per_ip_max=config.max_connections_per_ip,
        signs=Signs(f"the RocketMQ port of {config.name}", kafka, address, _encrypted(config.tls)),
        also=vip,
        tls=tls,
        is_tls_optional=config.tls.server_mode == "permissive",
    )
    if settings is not None:
        await driver.listen(
            listeners[-1],
            KAFKA,
            connections_max=settings.max_connections,
            connections_per_ip_max=settings.max_connections_per_ip,
            signs=Signs(
                f"the Kafka port of {config.name}",
                kafka,
                address,
                Stranger.KAFKA if kafka_tls is not None else None,
            ),
            tls=kafka_tls,
            has_logins=bool(settings.sasl_enabled_mechanisms),
        )
    unwatch = _watched(accounts, driver, config.name)

    def after() -> None:
        unwatch()
        if token_keys is not None:
            token_keys.close()
        disk.close()

    return LocalServer(address, driver, kafka, Stop(), after)


def _opened(store: Store, data: str) -> Recovery:
    """Open the store of a data directory; errors name the directory and the remedy."""
    try:
        return store.open(time.time_ns() // 1_000_000)
    except DamageError as error:
        raise DamageError(
            f"data directory {data}: {error}. Nothing was changed. `steelyard check {data}` lists"
            " all damage,"
            f" `steelyard check --repair {data}` sets damaged files aside and reports what is lost",
            error.paths,
        ) from None
    except OwnerError as error:
        raise OwnerError(
            f"data directory {data}: {error}. Start the broker on its own directory (--data,"
            " --name, --cluster,"
            " --node-id); if the broker was renamed on purpose, run `steelyard check --disown"
            f" {data}` first"
        ) from None


def stop_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set.

    Call this before reporting that the server is ready.
    """
    import signal

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def until_stopped(driver: Driver, stop: asyncio.Event, *also: Awaitable[object]) -> int:
    """Wait for `stop`, one of `also`, or the node's failure; return the exit code."""
    waits: list[asyncio.Future[object]] = [
        asyncio.ensure_future(stop.wait()),
        asyncio.ensure_future(asyncio.wait([driver.failed])),
    ]
    waits += map(asyncio.ensure_future, also)
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    return 1 if driver.failed.done() else 0
