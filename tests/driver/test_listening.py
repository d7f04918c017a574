"""Ports that are kept for a process that is started again."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from steelyard.driver.listening import Reservation, bind, exposed, kafka_doors, remoting_doors
from steelyard.errors import ConfigError
from steelyard.nodes.seam import Opened

HOST = "127.0.0.1"

Run = Callable[[Callable[..., object]], None]

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shares a port so")


@linux
def test_a_reserved_port_is_for_its_server_alone() -> None:
    """1. Nobody listens: clients are refused. 2. Nobody else gets the port. 3. Its server does, again and again, also
    with connections of the one before still open."""
    reservation = Reservation(HOST, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, reservation.port), 5)
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind((HOST, reservation.port))
    for _ in range(3):
        with bind(HOST, reservation.port) as listener:
            client = socket.create_connection((HOST, reservation.port), 5)
            accepted, _address = listener.accept()
        accepted.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, reservation.port), 5)
        client.close()
    reservation.close()


@linux
def test_a_port_that_is_found_is_not_found_again() -> None:
    reservations = [Reservation(HOST, 0) for _ in range(200)]
    assert len({each.port for each in reservations}) == 200
    for each in reservations:
        each.close()


def test_a_port_in_use_cannot_be_reserved() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}: the port is in use"):
            Reservation(HOST, port)


@pytest.mark.parametrize(
    ("host", "has_logins", "words"),
    [
        ("127.0.0.1", False, ()),
        ("[::1]", False, ()),
        ("0.0.0.0", True, ("the RocketMQ port at 0.0.0.0", "listen on loopback")),
        ("0.0.0.0", False, ("the RocketMQ port and the Kafka port", "--kafka-sasl and --users")),
    ],
)
def test_who_asks_nobody_for_a_login_says_so(
    host: str, has_logins: bool, words: tuple[str, ...]
) -> None:
    found = exposed(
        host,
        remoting_doors("the RocketMQ port", has_logins=False) | kafka_doors(has_logins=has_logins),
    )
    assert len(found) == (1 if words else 0)
    for each in words:
        assert each in found[0]


@linux
def test_an_ipv4_client_of_a_dual_stack_listener_has_its_ipv4_address(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        await bench.drive(node).listen(listener)
        for host in (HOST, "::1"):
            _, writer = await bench.connect(f"{host}:{listener.getsockname()[1]}")
            writer.close()
        await bench.until(lambda: sum(isinstance(each, Opened) for each in node.events) == 2)
        opened = [each.address for each in node.events if isinstance(each, Opened)]
        assert [address.rpartition(":")[0] for address in opened] == [HOST, "[::1]"]

    run_scenario(scenario)
