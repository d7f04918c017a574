"""Listening sockets. Quick to import: the supervisor binds before it loads anything else."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterable, Mapping

from steelyard import addresses
from steelyard.addresses import is_loopback, is_wildcard
from steelyard.errors import ConfigError

BACKLOG = 1024
"""Connections that the kernel queues until accepted (NettyServerConfig.serverSocketBacklog)."""


def bind(host: str, port: int, *, listen: bool = True, option: str = "") -> socket.socket:
    """Bind a listening socket, so that the port is known and peers may connect before the start.

    Port 0 picks a free one. Without `listen` nobody can connect yet. Raises ConfigError, which
    names the `option` that gives another port if this one is in use.
    """
    if not 0 <= port <= 65_535:
        raise ConfigError(f"cannot listen on {host}:{port}: ports go from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {_reason(error)}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        if listen:
            listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = _reason(error)
        if option and error.errno == errno.EADDRINUSE:
            reason += f"; give another one with {option}"
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}") from None
    return listener


VIP_DISTANCE = 2
"""How far below a broker's port its second one is (BrokerController.initialize, fastConfig)."""

PAIRS_MAX = 100
"""Attempts to find a free port whose second one is free as well."""


def bind_pair(host: str, port: int, *, option: str = "") -> tuple[socket.socket, socket.socket]:
    """Bind listening sockets at a port and at the one `VIP_DISTANCE` below it.

    Port 0 picks two free ones. Raises ConfigError, as `bind` does.
    """
    if 0 < port <= VIP_DISTANCE:
        raise ConfigError(f"there is no port {VIP_DISTANCE} below {port}, as vip_channel needs it")
    for left in reversed(range(PAIRS_MAX)):
        first = bind(host, port, option=option)
        below = first.getsockname()[1] - VIP_DISTANCE
        try:
            return first, bind(host, below, option=option)
        except ConfigError:
            first.close()
            if port or not left:
                raise
    raise AssertionError("the last attempt returns or raises")


class Reservation:
    """Reserves a port for a process that will listen on it, across its restarts.

    On Linux a socket that is bound but does not listen keeps the port from being assigned to
    anybody who requests any free port, and from programs that do not set SO_REUSEADDR; our servers
    do, and may listen besides it. While nobody listens, clients are refused at once. On other
    systems a port cannot be shared like this: there a free one is only looked up. Raises
    ConfigError when the port is in use, as `bind` does.
    """

    def __init__(self, host: str, port: int, option: str = "") -> None:
        self._socket = bind(host, port, listen=False, option=option)
        self.port: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    return error.strerror or str(error)


def advertised(host: str, listener: socket.socket) -> str:
    """Return the `host:port` advertised to clients.

    A wildcard host becomes this machine's address.
    """
    if is_wildcard(host):
        from steelyard.driver.identity import local_ip

        host = local_ip()
    return addresses.address(host, listener.getsockname()[1])


def check_address(address: str, what: str) -> None:
    """Raise ConfigError unless this is a `host:port` that can be advertised."""
    if not addresses.is_address(address):
        raise ConfigError(f"{what} is {address!r}; it must be HOST:PORT")
    if is_wildcard(address.rpartition(":")[0]):
        raise ConfigError(
            f"{what} is {address!r}, to which clients cannot connect; give an address of this"
            " machine, or its name"
        )


def exposed(host: str, doors: Mapping[str, str]) -> list[str]:
    """Warn that anybody who reaches this address may use what listens there.

    `host` is listened on; `doors`: what asks nobody for a login there, and what to do about it. No
    warning on loopback.
    """
    if not doors or is_loopback(host):
        return []
    advice = "; ".join(dict.fromkeys(doors.values()))
    return [
        f"{' and '.join(doors)} at {host}: no login is asked for, so whoever reaches this address"
        f" may read, write and administrate everything: {advice}"
    ]


def remoting_doors(what: str, *, has_logins: bool) -> dict[str, str]:
    """Return the entry of a RocketMQ port, or several, for `exposed`."""
    if has_logins:
        return {}
    return {
        what: "give --acl-file, or let only machines that you trust reach it, or listen on loopback"
        " (--host 127.0.0.1)"
    }


def kafka_doors(*, has_logins: bool) -> dict[str, str]:
    """Return the entry of a Kafka listener for `exposed`."""
    if has_logins:
        return {}
    return {"the Kafka port": "give --kafka-sasl and --users, or --kafka-tls-client-auth required"}


def unreachable(host: str, advertised_hosts: Iterable[str]) -> list[str]:
    """Describe each advertised host that clients probably cannot connect to.

    `host` is listened on.
    """
    if not is_loopback(host):
        return []
    return [
        f"clients are told to connect to {each}, but the listener is at {host}, which only programs"
        " on this machine reach: give --host an address that clients reach, or 0.0.0.0 for all,"
        " unless something forwards their connections"
        for each in dict.fromkeys(advertised_hosts)
        if not is_loopback(each)
    ]
