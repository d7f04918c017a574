"""What is started together: a nameserver, brokers and an HTTP server, and the ports that they keep.

- The nameserver's listening socket is opened here and passed to its process: brokers may connect
  before it has loaded, and clients that connect during a restart wait some hundred milliseconds
  instead of being refused.
- The ports of brokers are only reserved here (`Reservation`): clients of a dead broker are refused
  at once, so that they use another, and the broker gets the same ports again, even ones picked
  automatically.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from steelyard.addresses import PORT_MAX, address, is_host, is_port, is_wildcard
from steelyard.driver.listening import (
    PAIRS_MAX,
    VIP_DISTANCE,
    Reservation,
    advertised,
    bind,
    check_address,
    unreachable,
)
from steelyard.errors import ConfigError
from steelyard.servers.children import Child
from steelyard.servers.lifecycle import RESTARTS_MAX

BROKERS_MAX = 26
"""broker-a .. broker-z."""

PORT_STEP = 10
"""Distance between the ports of neighbouring brokers.

RocketMQ also uses the two below and the one above.
"""

KAFKA_PORT_STEP = 1
"""Distance between the Kafka ports of neighbouring brokers."""

FORMAT_FILE = "format"
"""The file in the data directory of every broker: `store.identity.PATH`, which loads too much here.
"""

OF_DEPLOYMENT = (
    "name",
    "address",
    "nameservers",
    "address_translation",
    "kafka.address",
    "kafka.node_id",
    "kafka.brokers",
)
"""Settings of brokers that differ between those of a deployment, which gives them."""

NAMESERVER_SHARED = ("max_connections", "max_connections_per_ip", "acl_file", "tls")
"""Settings of a deployment's brokers, or tables of them, that its nameserver has, too."""

HTTP_SHARED = ("tls_client",)
"""The same of its HTTP server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What `steelyard up` starts, and where."""

    brokers: int = 1
    """Number of brokers."""
    data: str = "steelyard-data"
    """Directory with a subdirectory for each broker."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0: all."""
    nameserver_port: int = 9876
    """Port of the nameserver; 0 picks a free one."""
    broker_port: int = 10911
    """Port of the first broker; the others follow in steps of 10. 0 picks a free one for each."""
    kafka_port: int | None = None
    """Port of the first broker's Kafka listener; the others follow.

    0 picks a free one for each; without it there are none.
    """
    http_port: int | None = None
    """Port of the HTTP server with metrics and health; 0 picks a free one.

    Without it there is none.
    """
    http_host: str = ""
    """Address that the HTTP server listens on; default: that of `host`."""
    advertise: str = ""
    """HOST or HOST:FIRST_PORT that RocketMQ clients connect to; default: the address listened on.

    The ports of the other brokers follow FIRST_PORT in steps of 10; without it they are those that
    the brokers listen on.
    """
    kafka_advertise: str = ""
    """The same for Kafka clients; the ports follow in steps of 1."""
    restarts_max: int = RESTARTS_MAX
    """A server is given up after so many restarts in a row; 0: never restarted."""


def broker_name(position: int) -> str:
    """Return the name of the broker at a position, from 0: broker-a, broker-b, ..."""
    return f"broker-{chr(ord('a') + position)}"


def broker_names(layout: Deployment) -> tuple[str, ...]:
    """Return the names of all brokers of a deployment. Raises ConfigError for too many or none."""
    if not 1 <= layout.brokers <= BROKERS_MAX:
        raise ConfigError(f"brokers is {layout.brokers}; it must be 1 to {BROKERS_MAX}")
    return tuple(map(broker_name, range(layout.brokers)))


def check_ports(layout: Deployment) -> None:
    """Raise ConfigError for more brokers than there are names or ports."""
    broker_names(layout)
    last_port = layout.broker_port + PORT_STEP * (layout.brokers - 1)
    if not 0 <= layout.broker_port <= last_port <= 65_535:
        raise ConfigError(
            f"broker port {layout.broker_port} is out of range for {layout.brokers} brokers;"
            " ports go up to 65535"
        )
    kafka_port = layout.kafka_port
    if kafka_port is not None and not 0 <= kafka_port <= 65_536 - layout.brokers:
        raise ConfigError(
            f"Kafka port {kafka_port} is out of range for {layout.brokers} brokers;"
            " ports go up to 65535"
        )
    if layout.http_port is not None and not 0 <= layout.http_port <= 65_535:
        raise ConfigError(f"HTTP port {layout.http_port} is wrong; ports go up to 65535")
    _check_advertised(layout)


def _check_advertised(layout: Deployment) -> None:
    for what, given, step in (
        ("--advertise", layout.advertise, PORT_STEP),
        ("--kafka-advertise", layout.kafka_advertise, KAFKA_PORT_STEP),
    ):
        if not given:
            continue
        host, first = _host_and_port(given)
        if not is_host(host) or not (first is None or is_port(first)):
            raise ConfigError(
                f"{what} is {given!r}; it must be HOST or HOST:FIRST_PORT, with an IPv6 address in"
                " brackets"
            )
        last = int(first or 1) + step * (layout.brokers - 1)
        check_address(address(host, min(last, PORT_MAX)), what)
        if last > PORT_MAX:
            raise ConfigError(
                f"{what} is {given!r}; the ports of {layout.brokers} brokers would go up to {last},"
                f" but ports end at {PORT_MAX}"
            )
    if layout.kafka_advertise and layout.kafka_port is None:
        raise ConfigError("--kafka-advertise needs a Kafka listener: give --kafka-port as well")


def check_data(layout: Deployment) -> None:
    """Raise ConfigError for the data directory of a single broker."""
    if os.path.exists(os.path.join(layout.data, FORMAT_FILE)):
        raise ConfigError(
            f"{layout.data} is the data directory of one broker; `up` wants the directory above it,"
            " with a subdirectory for each broker"
        )


def _host_and_port(given: str) -> tuple[str, str | None]:
    """Split HOST[:FIRST_PORT]; the port is None if there is none."""
    host, colon, port = given.rpartition(":")
    return (given, None) if not colon or given.endswith("]") else (host, port)


def broker_settings(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return settings for all brokers, by their own names. Raises ConfigError for wrong ones."""
    from steelyard.config import BrokerConfig
    from steelyard.settings import build

    for name in OF_DEPLOYMENT:
        if name in given:
            text = f"{name} cannot be set here: each broker gets its own"
            raise ConfigError(text)
    build(BrokerConfig, given)
    return given


def shared_texts(texts: Iterable[str], shared: Collection[str]) -> list[str]:
    """Return those of the brokers' settings, NAME=VALUE, that others of the deployment share.

    Raises ConfigError for wrong ones.
    """
    if not texts:
        return []
    from steelyard.config import BrokerConfig
    from steelyard.settings import from_texts

    return [text for text in texts if shared_names(from_texts(BrokerConfig, [text]), shared)]


def shared_names(names: Iterable[str], shared: Collection[str]) -> list[str]:
    """Return those of the brokers' settings, by their own names, that others share."""
    return [name for name in names if name.partition(".")[0] in shared]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """Of a broker: those that it listens on, and the addresses that it advertises in their place.

    `kafka`: None without a Kafka listener. An address is empty where it is that of the port.
    """

    node_id: int
    port: int
    advertised: str
    kafka: int | None
    kafka_advertised: str


def _advertised(given: str, port: int, distance: int) -> str:
    """Return the address that a broker advertises; empty for the one that it listens on.

    `port`: that it listens on; `distance`: of its ports from those of the first broker.
    """
    if not given:
        return ""
    host, first = _host_and_port(given)
    return address(host, int(first) + distance if first else port)


def warnings_of(layout: Deployment) -> list[str]:
    """Say what is advertised although clients may not reach it."""
    given = filter(None, (layout.advertise, layout.kafka_advertise))
    return unreachable(layout.host, (_host_and_port(each)[0] for each in given))


class Placement:
    """The processes of a deployment, which are not started yet, and the ports reserved for them.

    `nameserver`, `brokers` by name, `http` if wanted: to be started by the caller; `address`: of
    the nameserver. `pass_on` gets whole lines of their standard error; `options` are further ones
    of the brokers' commands, and those of the other processes follow. Raises ConfigError if a port
    is not free. Call `close` after the processes have ended.
    """

    def __init__(
        self,
        layout: Deployment,
        pass_on: Callable[[bytes], None],
        options: Sequence[str] = (),
        nameserver_options: Sequence[str] = (),
        http_options: Sequence[str] = (),
    ) -> None:
        check_ports(layout)
        check_data(layout)
        self._layout = layout
        self._pass_on = pass_on
        self._reservations: list[Reservation] = []
        self._translation: list[str] = []
        """For the brokers, which may not reach each other as their clients do, and the HTTP server.
        """
        self._listener = bind(layout.host, layout.nameserver_port, option="--nameserver-port")
        self.address = advertised(layout.host, self._listener)
        self.nameserver = self._nameserver(nameserver_options)
        self.brokers: dict[str, Child] = {}
        self.http: Child | None = None
        try:
            ports = [self._ports(position) for position in range(layout.brokers)]
            self._translation = [pair for each in ports for pair in self._translated(each)]
            for name, each in zip(broker_names(layout), ports, strict=True):
                self.brokers[name] = self._broker(name, each, options)
            if layout.http_port is not None:
                self.http = self._http(layout.http_port, http_options)
        except ConfigError:
            self.close()
            raise

    @property
    def kafka(self) -> str:
        """The Kafka addresses of all brokers that have reported one, joined by commas."""
        return ",".join(child.kafka for child in self.brokers.values() if child.kafka)

    def release_nameserver(self) -> None:
        """Free the nameserver's port."""
        self._listener.close()

    def close(self) -> None:
        """Free all ports. May be called again."""
        self.release_nameserver()
        for reservation in self._reservations:
            reservation.close()

    def _nameserver(self, options: Sequence[str]) -> Child:
        port = self._listener.getsockname()[1]
        arguments = ["nameserver", "--host", self._layout.host, "--port", str(port), *options]
        return Child("the nameserver", arguments, self._pass_on, self._listener.fileno())

    def _ports(self, position: int) -> _Ports:
        """Reserve the ports of a broker. Raises ConfigError if one is in use."""
        layout, name, node_id = self._layout, broker_name(position), position + 1
        port = layout.broker_port + PORT_STEP * position if layout.broker_port else 0
        reserved = self._reserve(name, port, "--broker-port") if port else self._reserve_pair(name)
        seen = _advertised(layout.advertise, reserved, PORT_STEP * position)
        if layout.kafka_port is None:
            return _Ports(
                node_id=node_id, port=reserved, advertised=seen, kafka=None, kafka_advertised=""
            )
        kafka_port = layout.kafka_port + KAFKA_PORT_STEP * position if layout.kafka_port else 0
        kafka = self._reserve(name, kafka_port, "--kafka-port")
        kafka_seen = _advertised(layout.kafka_advertise, kafka, KAFKA_PORT_STEP * position)
        return _Ports(
            node_id=node_id,
            port=reserved,
            advertised=seen,
            kafka=kafka,
            kafka_advertised=kafka_seen,
        )

    def _translated(self, ports: _Ports) -> Iterator[str]:
        """Yield how processes of this deployment reach a broker, where it is not as clients do."""
        host = self._layout.host
        if is_wildcard(host):
            host = "::1" if ":" in host else "127.0.0.1"
        for seen, port in (ports.advertised, ports.port), (ports.kafka_advertised, ports.kafka):
            if seen and port is not None and seen != address(host, port):
                yield f"{seen}={address(host, port)}"

    def _broker(self, name: str, ports: _Ports, options: Sequence[str]) -> Child:
        layout = self._layout
        arguments = ["broker", "--name", name]
        arguments += ["--data", os.path.abspath(os.path.join(layout.data, name))]
        arguments += ["--host", layout.host, "--port", str(ports.port)]
        arguments += ["--nameserver", self.address]
        if ports.advertised:
            arguments += ["--advertise", ports.advertised]
        if ports.kafka is not None:
            arguments += ["--kafka-port", str(ports.kafka)]
            if ports.kafka_advertised:
                arguments += ["--kafka-advertise", ports.kafka_advertised]
            arguments += ["--node-id", str(ports.node_id)]
            arguments += ["--kafka-brokers", ",".join(broker_names(layout))]
        arguments += self._translating()
        return Child(name, [*arguments, *options], self._pass_on)

    def _http(self, port: int, options: Sequence[str]) -> Child:
        name = "the HTTP server"
        host = self._layout.http_host or self._layout.host
        arguments = [
            "http",
            "--host",
            host,
            "--port",
            str(self._reserve(name, port, "--http", host)),
        ]
        arguments += ["--nameserver", self.address, "--brokers", ",".join(self.brokers)]
        arguments += self._translating()
        return Child(name, [*arguments, *options], self._pass_on)

    def _translating(self) -> list[str]:
        pairs = ",".join(self._translation)
        return [f"--set=address_translation={pairs}"] if pairs else []

    def _reserve_pair(self, name: str) -> int:
        """Reserve a free port, and the one below it that the broker listens on as well if told so.

        Return the former. Raises ConfigError.
        """
        for _ in range(PAIRS_MAX):
            port = self._reserve(name, 0, "")
            below = port - VIP_DISTANCE
            if below not in {each.port for each in self._reservations}:
                with suppress(ConfigError):
                    self._reserve(name, below, "")
                    return port
            self._reservations.pop().close()
        raise ConfigError(f"{name}: there are no two free ports at a distance of {VIP_DISTANCE}")

    def _reserve(self, name: str, port: int, option: str, host: str | None = None) -> int:
        """Reserve a port, which `option` gives.

        `host`: where it is listened on, if not where the brokers listen.
        """
        try:
            reservation = Reservation(host or self._layout.host, port, option)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        self._reservations.append(reservation)
        return reservation.port
