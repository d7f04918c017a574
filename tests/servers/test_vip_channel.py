"""The second port of a broker, two below its own: the same listener for clients of RocketMQ 4.x that use it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from steelyard import Admin
from steelyard.driver import listening
from steelyard.driver.listening import VIP_DISTANCE, bind, bind_pair
from steelyard.errors import ConfigError
from steelyard.servers.deployment import Deployment, Placement

COMMAND = [sys.executable, "-m", "steelyard"]
HOST = "127.0.0.1"


@contextmanager
def running(*arguments: str) -> Iterator[dict[str, Any]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *arguments, "--json"], stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            assert process.wait(60) == 0


def below(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - VIP_DISTANCE}"


UP = ("up", "--brokers", "2", "--nameserver-port", "0", "--broker-port", "0")


def test_both_ports_are_of_one_broker(tmp_path: Path) -> None:
    """Either is answered by the same broker, and connections to both are counted together."""
    options = ("--set", "vip_channel=true", "--max-connections-per-ip", "2")
    with (
        running(*UP, "--data", str(tmp_path), *options) as ready,
        Admin(ready["nameserver"]) as admin,
    ):
        for name, address in ready["brokers"].items():
            started = admin.runtime(address)["bootTimestamp"]
            assert admin.runtime(below(address))["bootTimestamp"] == started
            assert admin.broker_config(below(address))["brokerName"] == name
            # Two are open now, one to each port.
            with socket.create_connection((HOST, int(below(address).rpartition(":")[2]))) as third:
                third.settimeout(60)
                assert third.recv(1) == b""


def test_without_the_setting_there_is_no_such_port(tmp_path: Path) -> None:
    with running(*UP, "--data", str(tmp_path)) as ready:
        for address in ready["brokers"].values():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, int(below(address).rpartition(":")[2])), 5)


def test_free_ports_of_brokers_are_not_second_ports_of_others() -> None:
    placement = Placement(Deployment(brokers=26, nameserver_port=0, broker_port=0), print)
    placement.close()
    ports = set()
    for child in placement.brokers.values():
        port = int(child.arguments[child.arguments.index("--port") + 1])
        ports |= {port, port - VIP_DISTANCE}
    assert len(ports) == 52


def test_a_pair_of_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = bind_pair(HOST, 0)
    with first, second:
        port = first.getsockname()[1]
        assert second.getsockname()[1] == port - VIP_DISTANCE
        with pytest.raises(ConfigError, match="the port is in use"):
            bind_pair(HOST, port + VIP_DISTANCE)
        with bind(HOST, 0) as other:  # what was bound first was released
            assert other.getsockname()[1] != port + VIP_DISTANCE
        bind(HOST, port + VIP_DISTANCE).close()
    monkeypatch.setattr(listening, "VIP_DISTANCE", 70_000)
    with pytest.raises(ConfigError, match="ports go from 0 to 65535"):
        bind_pair(HOST, 0)


@pytest.mark.parametrize("port", [1, 2])
def test_no_port_below(port: int) -> None:
    with pytest.raises(ConfigError, match="there is no port 2 below"):
        bind_pair(HOST, port)


def test_a_second_port_that_is_in_use_is_one_line(tmp_path: Path) -> None:
    with bind(HOST, 0) as taken:
        port = taken.getsockname()[1] + VIP_DISTANCE
        command = [*COMMAND, "broker", "--data", str(tmp_path / "data"), "--port", str(port)]
        ended = subprocess.run(
            [*command, "--set", "vip_channel=true"], capture_output=True, text=True, timeout=60
        )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert f"cannot listen on {HOST}:{port - VIP_DISTANCE}: the port is in use" in ended.stderr
