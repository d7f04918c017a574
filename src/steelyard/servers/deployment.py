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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from steelyard.driver.listening import Reservation, advertised, bind
from steelyard.errors import ConfigError
from steelyard.servers.children import Child
from steelyard.servers.lifecycle import RESTARTS_MAX

BROKERS_MAX = 26
"""broker-a .. broker-z."""

PORT_STEP = 10
"""Distance between the ports of neighbouring brokers.

RocketMQ also uses the two below and the one above.
"""

OF_DEPLOYMENT = (
    "name",
    "address",
    "nameservers",
    "kafka.address",
    "kafka.node_id",
    "kafka.brokers",
)
"""Settings of brokers that differ between those of a deployment, which gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What `steelyard up` starts, and where."""

    brokers: int = 1
    """Number of brokers, 1 to 26."""
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
    """Port of the HTTP server with metrics and health; 0 picks a free one, None: there is none."""
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
        self._layout = layout
        self._pass_on = pass_on
        self._reservations: list[Reservation] = []
        self._listener = bind(layout.host, layout.nameserver_port)
        self.address = advertised(layout.host, self._listener)
        self.nameserver = self._nameserver(nameserver_options)
        self.brokers: dict[str, Child] = {}
        self.http: Child | None = None
        try:
            for position, name in enumerate(broker_names(layout)):
                self.brokers[name] = self._broker(position, name, options)
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

    def _broker(self, position: int, name: str, options: Sequence[str]) -> Child:
        layout = self._layout
        port = layout.broker_port + PORT_STEP * position if layout.broker_port else 0
        arguments = ["broker", "--name", name]
        arguments += ["--data", os.path.abspath(os.path.join(layout.data, name))]
        arguments += ["--host", layout.host, "--port", self._reserve(name, port)]
        arguments += ["--nameserver", self.address]
        if layout.kafka_port is not None:
            kafka_port = layout.kafka_port + position if layout.kafka_port else 0
            arguments += ["--kafka-port", self._reserve(name, kafka_port)]
            arguments += ["--node-id", str(position + 1)]
            arguments += ["--kafka-brokers", ",".join(broker_names(layout))]
        return Child(name, [*arguments, *options], self._pass_on)

    def _http(self, port: int, options: Sequence[str]) -> Child:
        name = "the HTTP server"
        arguments = ["http", "--host", self._layout.host, "--port", self._reserve(name, port)]
        arguments += ["--nameserver", self.address, "--brokers", ",".join(self.brokers)]
        return Child(name, [*arguments, *options], self._pass_on)

    def _reserve(self, name: str, port: int) -> str:
        try:
            reservation = Reservation(self._layout.host, port)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        self._reservations.append(reservation)
        return str(reservation.port)
