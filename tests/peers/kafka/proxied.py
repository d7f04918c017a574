"""Five brokers behind Toxiproxy, of Apache Kafka or ours, that can be stopped and started: what sarama's own tests want.

They look for the proxies kafka1 to kafka5 at Toxiproxy's usual port, connect to the ports 29091 to 29095,
and use `docker compose` to stop and start a broker, to read its log and to run Kafka's own tools in its
container. The program `docker` that they find here (suites/sarama_docker.py) does that with `Fleet`.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.peers.apache import Missing, free_port, java_environment
from tests.peers.kafka.builds import SERVER, jars, toxiproxy
from tests.peers.kafka.servers import QUICK_START, QUIET, STEELYARD
from tests.waiting import until

NAMES = tuple(f"kafka-{node}" for node in range(1, 6))
PROXIED = {name: f"127.0.0.1:{29091 + place}" for place, name in enumerate(NAMES)}
"""Where clients reach each broker; sarama's tests have these addresses."""
CONTROL_PORT = 8474
"""Toxiproxy's own, where sarama's tests look for it."""
STOP_S = 10.0
"""How long Docker waits before it kills."""

TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-consumer.sh": "org.apache.kafka.tools.VerifiableConsumer",
}

SETTINGS = {
    "default.replication.factor": 2,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "process.roles": "broker,controller",
}
"""Of Apache's brokers, as in sarama's docker-compose.yml."""

OUR_SETTINGS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}


class Fleet:
    """Processes that run, each by its name and with a log of its own; those of one name follow one another."""

    def __init__(self, folder: Path, commands: Mapping[str, list[str]]) -> None:
        self.folder = folder
        self.commands = commands
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def start(self, name: str) -> None:
        """Start a process unless it runs; it may take a while until it serves."""
        if name in self._running:
            return
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                self.commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=java_environment(),
            )

    def stop(self, name: str) -> None:
        """Stop a process in order, or kill it if that takes too long; it has ended then."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """AssertionError with the ends of their logs if processes have ended that nobody stopped."""
        ended = [name for name, process in self._running.items() if process.poll() is not None]
        assert ended == [], [self.log(name).read_text()[-2000:] for name in ended]

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


class _Order(socketserver.StreamRequestHandler):
    """One line of suites/sarama_docker.py, such as `stop kafka-3`; answered when it is done."""

    server: _Orders

    def handle(self) -> None:
        fleet = self.server.fleet
        what, name = self.rfile.readline().decode().split()
        {"start": fleet.start, "stop": fleet.stop}[what](name)
        self.wfile.write(b"done\n")


class _Orders(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(("127.0.0.1", 0), _Order)
        self.fleet = fleet


def steelyard_commands(folder: Path, kafka: Mapping[str, str]) -> dict[str, list[str]]:
    """A nameserver and our brokers, which advertise the proxies."""
    nameserver = free_port()
    commands = {"nameserver": [str(STEELYARD), "nameserver", "--port", str(nameserver)]}
    for node, (name, address) in enumerate(kafka.items(), 1):
        commands[name] = [
            *(str(STEELYARD), "broker", "--name", name, "--node-id", str(node)),
            *("--data", str(folder / "data" / name), "--port", str(free_port())),
            *("--nameserver", f"127.0.0.1:{nameserver}", "--kafka-brokers", ",".join(NAMES)),
            *("--kafka-port", address.rpartition(":")[2], "--kafka-advertise", PROXIED[name]),
            *(f"--kafka-set={key}={value}" for key, value in OUR_SETTINGS.items()),
        ]
    return commands


def apache_commands(folder: Path, kafka: Mapping[str, str]) -> dict[str, list[str]]:
    """Apache's brokers, each also a controller; among themselves they do without the proxies. Raises Missing."""
    java = ["java", *QUICK_START, "-Xmx384m", QUIET, "-cp", f"{jars('server', SERVER)}/*"]
    quorum = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
    voters = ",".join(f"{node}@{address}" for node, address in enumerate(quorum.values(), 1))
    commands = {}
    for node, name in enumerate(NAMES, 1):
        internal = f"127.0.0.1:{free_port()}"
        lines = {
            **SETTINGS,
            "node.id": node,
            "broker.rack": node,
            "controller.quorum.voters": voters,
            "listeners": f"INTERNAL://{internal},LOCAL://{kafka[name]},CONTROLLER://{quorum[name]}",
            "advertised.listeners": f"INTERNAL://{internal},LOCAL://{PROXIED[name]}",
            "log.dirs": folder / "data" / name,
        }
        properties = folder / f"{name}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        subprocess.run(
            [
                *(*java, "kafka.tools.StorageTool", "format"),
                *("-t", "c3RlZWx5YXJkLXBlZXJzIQ", "-c", str(properties)),
            ],
            check=True,
            capture_output=True,
            env=java_environment(),
        )
        commands[name] = [*java, "kafka.Kafka", str(properties)]
    return commands


COMMANDS = {"steelyard": steelyard_commands, "apache": apache_commands}


@contextmanager
def run_proxied(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Five brokers of a kind behind proxies; the environment that sarama's tests need. Raises Missing."""
    need_ports()
    folder.mkdir(parents=True, exist_ok=True)
    kafka = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
    toxic = [str(toxiproxy()), "-host", "127.0.0.1", "-port", str(CONTROL_PORT)]
    fleet = Fleet(folder, {"toxiproxy": toxic, **COMMANDS[kind](folder, kafka)})
    with ExitStack() as stack:
        stack.callback(fleet.kill)
        orders = stack.enter_context(_Orders(fleet))
        threading.Thread(target=orders.serve_forever, daemon=True).start()
        stack.callback(orders.shutdown)
        for name in fleet.commands:
            fleet.start(name)
        wait_ready(fleet, kafka)
        scripts = make_scripts(folder / "bin")
        yield {
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "KAFKA_VERSION": SERVER,
            "SUITE_ORDERS": str(orders.server_address[1]),
            "SUITE_LOGS": str(folder),
            "SUITE_TOOLS": str(scripts),
            "SUITE_BROKER": kafka[NAMES[0]],
        }
        fleet.check()


def need_ports() -> None:
    """Raises Missing if one of the ports is taken that sarama's tests use."""
    proxied = (int(address.rpartition(":")[2]) for address in PROXIED.values())
    for port in (CONTROL_PORT, *proxied):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise Missing(f"sarama's tests need port {port}: {error}") from None


def make_scripts(folder: Path) -> Path:
    """A folder with `docker` and Kafka's tools under their usual names. Raises Missing."""
    folder.mkdir()
    docker = Path(__file__).parent / "suites" / "sarama_docker.py"
    java = ["java", *QUICK_START, QUIET, "-cp", f"{jars('server', SERVER)}/*"]
    commands = {name: [*java, program] for name, program in TOOLS.items()}
    for name, command in {"docker": [sys.executable, str(docker)], **commands}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    return folder


def wait_ready(fleet: Fleet, kafka: Mapping[str, str]) -> None:
    """Make the proxies, and wait until a client sees all brokers through them."""
    control = f"http://127.0.0.1:{CONTROL_PORT}/proxies"

    def answers() -> bool:
        fleet.check()
        with suppress(URLError), urlopen(control, timeout=5):
            return True
        return False

    until(answers, "Toxiproxy")
    for name, address in kafka.items():
        proxy = {"name": name.replace("-", ""), "listen": PROXIED[name], "upstream": address}
        with urlopen(control, json.dumps({**proxy, "enabled": True}).encode(), timeout=5):
            pass
    admin = AdminClient({"bootstrap.servers": ",".join(PROXIED.values()), "log_level": 0})

    def ready() -> bool:
        fleet.check()
        with suppress(KafkaException):
            return len(admin.list_topics(timeout=5).brokers) == len(NAMES)
        return False

    until(ready, "five brokers")
