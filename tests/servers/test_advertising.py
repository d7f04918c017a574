"""Brokers that advertise other addresses than they listen on: what `up` passes to each, and that clients reach them there."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.clients.relay import Relay
from tests.servers.exchange import exchange, expected
from tests.waiting import until

from steelyard import Admin
from steelyard.config import BrokerConfig, ClientConfig, HttpConfig, KafkaConsumerConfig, check
from steelyard.errors import ConfigError
from steelyard.servers.deployment import (
    Deployment,
    Placement,
    broker_settings,
    check_ports,
    warnings_of,
)

COMMAND = [sys.executable, "-m", "steelyard"]
FREE = Deployment(nameserver_port=0, broker_port=0)


# -- what each broker gets -------------------------------------------------------------------------


def placed(layout: Deployment) -> list[dict[str, str]]:
    """The options of each broker's command, and then those of the HTTP server."""
    placement = Placement(layout, lambda line: None)
    placement.close()
    assert placement.http is not None
    children = (*placement.brokers.values(), placement.http)
    return [options_of(child.arguments[1:]) for child in children]


def options_of(words: list[str]) -> dict[str, str]:
    given = {}
    while words:
        name, *words = words
        if "=" in name:
            name, _, value = name.partition("=")
        else:
            value, *words = words
        given[name] = value
    return given


def test_without_ports_they_are_those_listened_on() -> None:
    layout = replace(FREE, brokers=2, kafka_port=0, http_port=0)
    first, second, http = placed(replace(layout, advertise="box", kafka_advertise="box"))
    for each in (first, second):
        assert each["--advertise"] == f"box:{each['--port']}"
        assert each["--kafka-advertise"] == f"box:{each['--kafka-port']}"
    ports = [each[name] for each in (first, second) for name in ("--port", "--kafka-port")]
    pairs = ",".join(f"box:{port}=127.0.0.1:{port}" for port in ports)
    for process in (first, second, http):
        assert process["--set"] == f"address_translation={pairs}"


def test_ports_follow_the_first_one() -> None:
    layout = replace(FREE, brokers=3, host="0.0.0.0", kafka_port=0, http_port=0)
    given = replace(layout, advertise="10.0.0.9:20911", kafka_advertise="[fd00::1]:29092")
    *brokers, _ = placed(given)
    advertised = [each["--advertise"] for each in brokers]
    assert advertised == ["10.0.0.9:20911", "10.0.0.9:20921", "10.0.0.9:20931"]
    kafka = [each["--kafka-advertise"] for each in brokers]
    assert kafka == ["[fd00::1]:29092", "[fd00::1]:29093", "[fd00::1]:29094"]
    translated = brokers[0]["--set"].removeprefix("address_translation=").split(",")
    assert translated == [
        pair
        for each in brokers
        for pair in (
            f"{each['--advertise']}=127.0.0.1:{each['--port']}",
            f"{each['--kafka-advertise']}=127.0.0.1:{each['--kafka-port']}",
        )
    ]


def test_nothing_is_advertised_unless_it_is_asked_for() -> None:
    for each in placed(replace(FREE, brokers=2, kafka_port=0, http_port=0)):
        assert not {"--advertise", "--kafka-advertise", "--set"} & each.keys()


def test_what_is_advertised_as_it_is_reached_is_not_translated() -> None:
    for each in placed(replace(FREE, advertise="127.0.0.1", http_port=0)):
        assert "--set" not in each


def test_the_http_server_listens_where_the_brokers_do_unless_told_otherwise() -> None:
    layout = replace(FREE, host="0.0.0.0", http_port=0)
    broker, http = placed(layout)
    assert (broker["--host"], http["--host"]) == ("0.0.0.0", "0.0.0.0")
    broker, http = placed(replace(layout, http_host="127.0.0.1"))
    assert (broker["--host"], http["--host"]) == ("0.0.0.0", "127.0.0.1")


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"advertise": "a b"}, r"--advertise is 'a b'; it must be HOST or HOST:FIRST_PORT"),
        ({"advertise": ":10911"}, "it must be HOST or HOST:FIRST_PORT"),
        ({"advertise": "host:"}, "it must be HOST or HOST:FIRST_PORT"),
        ({"advertise": "host:0"}, "it must be HOST or HOST:FIRST_PORT"),
        ({"advertise": "http://host"}, "it must be HOST or HOST:FIRST_PORT"),
        ({"advertise": "::1"}, "an IPv6 address in brackets"),
        ({"advertise": "0.0.0.0"}, "to which clients cannot connect"),
        ({"advertise": "[::]:10911"}, "to which clients cannot connect"),
        ({"advertise": "host:65530", "brokers": 2}, "would go up to 65540, but ports end at 65535"),
        ({"kafka_advertise": "host:65535", "brokers": 2, "kafka_port": 0}, "would go up to 65536"),
        ({"kafka_advertise": "host"}, "--kafka-advertise needs a Kafka listener"),
    ],
)
def test_wrong_addresses(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_ports(replace(FREE, **given))


@pytest.mark.parametrize("given", ["host", "host:65535", "[::1]", "[::1]:1"])
def test_right_addresses(given: str) -> None:
    check_ports(replace(FREE, kafka_port=0, advertise=given, kafka_advertise=given))


@pytest.mark.parametrize("given", ["a:1", "a:1=b", "a=b:1", "a:1=b:2=c:3", "=", "a:0=b:1"])
@pytest.mark.parametrize("cls", [BrokerConfig, ClientConfig, HttpConfig, KafkaConsumerConfig])
def test_wrong_translations(cls: type, given: str) -> None:
    with pytest.raises(ConfigError, match="expected ADVERTISED=REACHED, both HOST:PORT"):
        check(cls(address_translation=("c:1=d:2", given)))


def test_up_gives_the_translation_itself() -> None:
    with pytest.raises(ConfigError, match="address_translation cannot be set here"):
        broker_settings({"address_translation": ("a:1=b:2",)})


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--nameserver-port", "0", "--broker-port", "0", "--advertise", "0.0.0.0"],
        ["up", "--nameserver-port", "0", "--broker-port", "0", "--kafka-advertise", "box"],
        ["broker", "--port", "0", "--advertise", "0.0.0.0:10911"],
        ["broker", "--port", "0", "--set", "address_translation=a"],
    ],
)
def test_a_wrong_address_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    command = [*COMMAND, *arguments, "--data", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("host", "advertised", "is_warned"),
    [
        ("127.0.0.1", "box", True),
        ("localhost", "10.0.0.1:10911", True),
        ("::1", "box", True),
        ("127.0.0.1", "localhost", False),
        ("127.0.0.1", "", False),
        ("0.0.0.0", "127.0.0.1", False),
        ("10.0.0.1", "box", False),
    ],
)
def test_a_warning_that_nobody_may_reach_it(host: str, advertised: str, is_warned: bool) -> None:
    layout = replace(FREE, host=host, advertise=advertised, kafka_advertise=advertised)
    assert len(warnings_of(layout)) == is_warned


# -- behind forwarded ports ------------------------------------------------------------------------


@contextmanager
def up(*arguments: str, prefix: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """`steelyard up` on free ports: its ready line."""
    ports = ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"]
    command = [*prefix, *COMMAND, "up", *ports, "--json", "--until-stdin-closes", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            assert process.wait(60) == 0


def free_ports() -> tuple[int, int]:
    """A port such that the tenth after it is free as well, and one such that the next is."""
    found = []
    for step in (10, 1):
        while True:
            with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
                port = listener.getsockname()[1]
                try:
                    stack.enter_context(socket.create_server(("127.0.0.1", port + step)))
                except (OSError, OverflowError):
                    continue
                found.append(port)
                break
    return found[0], found[1]


def test_forwarded_ports(tmp_path: Path) -> None:
    """1. Two brokers advertise ports that a relay forwards to those that they listen on. 2. The relay is not there yet:
    the brokers and the HTTP server reach each other all the same. 3. With it, clients of both protocols send, and
    consume what is at either broker. 4. A broker that is killed comes back and advertises the same."""
    first, kafka_first = free_ports()
    options = ["--brokers", "2", "--http", "0", "--data", str(tmp_path)]
    options += [
        "--advertise",
        f"localhost:{first}",
        "--kafka-advertise",
        f"localhost:{kafka_first}",
    ]
    with up(*options) as ready:
        assert ready["brokers"] == {
            "broker-a": f"localhost:{first}",
            "broker-b": f"localhost:{first + 10}",
        }
        assert ready["kafka"] == f"localhost:{kafka_first},localhost:{kafka_first + 1}"
        with urllib.request.urlopen(f"http://{ready['http']}/readyz", timeout=60) as answer:
            assert answer.status == 200  # both brokers answer, and have found each other
        commands = {name: command_of(tmp_path / name) for name in ready["brokers"]}
        relays = [
            Relay(int(options_of(command)[option]), port + step * position)
            for position, command in enumerate(commands.values())
            for option, port, step in (("--port", first, 10), ("--kafka-port", kafka_first, 1))
        ]
        try:
            found = exchange(ready["nameserver"], ready["kafka"], "Before")
            assert found == expected()
            with Admin(ready["nameserver"]) as admin:
                addresses = {e.broker_addrs[0] for e in admin.clusters().broker_addr_table.values()}
                assert addresses == set(ready["brokers"].values())
            killed = broker_on(tmp_path / "broker-b")
            assert killed is not None
            killed.kill()
            killed.wait(60)
            until(lambda: command_of(tmp_path / "broker-b"))
            assert command_of(tmp_path / "broker-b") == commands["broker-b"]
            assert exchange(ready["nameserver"], ready["kafka"], "After") == expected()
        finally:
            for relay in relays:
                relay.close()


def broker_on(data: Path) -> psutil.Process | None:
    """The process of the broker on this directory, unless it has just ended."""
    for process in psutil.process_iter(["cmdline"]):
        if str(data) in (process.info["cmdline"] or ()):
            return process
    return None


def command_of(data: Path) -> list[str]:
    """The options of the broker on this directory; empty if it does not run."""
    process = broker_on(data)
    with suppress(psutil.Error):
        words: list[str] = process.cmdline() if process is not None else []
        return words[words.index("broker") + 1 : words.index("--supervised")] if words else []
    return []


# -- in networks of their own ----------------------------------------------------------------------

NAME = "queue.example"
"""Advertised by the brokers, which do not know this name themselves."""


@pytest.fixture
def networks() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a cable: the servers', at 10.213.0.1, and the clients', who know it as NAME."""
    if shutil.which("ip") is None:
        pytest.skip("the command `ip` of iproute2 is missing")
    servers, clients = (f"sy{os.getpid()}{end}" for end in "sc")
    names = Path("/etc/netns") / clients
    steps = [
        f"ip netns add {servers}",
        f"ip netns add {clients}",
        f"ip link add {servers} netns {servers} type veth peer name {clients} netns {clients}",
    ]
    for name, own in ((servers, "10.213.0.1/24"), (clients, "10.213.0.2/24")):
        steps += [f"ip -n {name} address add {own} dev {name}"]
        steps += [f"ip -n {name} link set {each} up" for each in ("lo", name)]
    try:
        for step in steps:
            done = subprocess.run(step.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {step}: {done.stderr.strip()}")
        names.mkdir(parents=True)
        (names / "hosts").write_text(f"127.0.0.1 localhost\n10.213.0.1 {NAME}\n")
        yield servers, clients
    finally:
        for name in (servers, clients):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        shutil.rmtree(names, ignore_errors=True)
        with suppress(OSError):  # others may be using it
            names.parent.rmdir()


def test_clients_in_another_network(networks: tuple[str, str], tmp_path: Path) -> None:
    """1. Two brokers listen at an address of their network and advertise a name that only clients can look up. 2. Clients
    in another network, which have no other way to the brokers, send and consume."""
    servers, clients = (["ip", "netns", "exec", each] for each in networks)
    options = ["--brokers", "2", "--data", str(tmp_path), "--host", "10.213.0.1"]
    with up(*options, "--advertise", NAME, "--kafka-advertise", NAME, prefix=servers) as ready:
        addresses = [*ready["brokers"].values(), *ready["kafka"].split(",")]
        assert {address.rpartition(":")[0] for address in addresses} == {NAME}
        command = [sys.executable, "-m", "tests.servers.exchange"]
        done = subprocess.run(
            [*clients, *command, ready["nameserver"], ready["kafka"], "Orders"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == expected()
