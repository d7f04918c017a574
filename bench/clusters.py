"""Two brokers and a nameserver, Steelyard's or Apache RocketMQ's, each a process; brokers can stop and return.

Those of Apache Kafka: see `kafka_clusters`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.load import create_topic  # noqa: E402
from bench.servers import APACHE_OPTIONS  # noqa: E402
from tests.peers import apache  # noqa: E402
from tests.waiting import until  # noqa: E402

NAMES = ("broker-a", "broker-b")


class Cluster(Protocol):
    kind: str
    nameserver: str
    brokers: dict[str, str]
    """Addresses by name; for RocketMQ's clients, where they are served."""
    kafka: dict[str, str]
    """The same for Kafka's clients."""

    def create_topic(self, topic: str, queues: int) -> None:
        """With so many queues on each broker; returns when clients find them."""

    def stop_broker(self, name: str) -> None:
        """Begin a clean stop of the broker."""

    def start_broker(self, name: str) -> None:
        """Wait for the end of its stop, then start it again with what it had."""

    def close(self) -> None: ...


def create_remoting_topic(
    brokers: dict[str, str], nameserver: str, topic: str, queues: int
) -> None:
    """With RocketMQ's protocol, at each broker."""
    for address in brokers.values():
        create_topic(address, topic, queues)
    names = set(brokers)
    until(
        lambda: apache.brokers_of(nameserver, topic) == names,
        f"route of {topic} to {sorted(names)}",
    )


class Steelyard:
    kind = "steelyard"

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._options = options
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port = str(apache.free_port())
        self.nameserver = self._spawn("nameserver", ["nameserver", "--port", port])
        self.brokers = {name: f"127.0.0.1:{apache.free_port()}" for name in NAMES}
        self._kafka_ports = {name: str(apache.free_port()) for name in NAMES}
        self.kafka = {name: f"127.0.0.1:{port}" for name, port in self._kafka_ports.items()}
        for name in NAMES:
            self.start_broker(name)

    def _spawn(self, name: str, arguments: list[str]) -> str:
        """Start the program and wait until it says where it is ready."""
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "steelyard", *arguments, "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._processes[name] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{name} ended: {(self._folder / f'{name}.log').read_text()[-2000:]}"
            )
        return str(next(iter(json.loads(line).values())))

    def create_topic(self, topic: str, queues: int) -> None:
        create_remoting_topic(self.brokers, self.nameserver, topic, queues)

    def stop_broker(self, name: str) -> None:
        self._processes[name].terminate()

    def start_broker(self, name: str) -> None:
        if name in self._processes:
            self._processes[name].wait(30)
        port = self.brokers[name].rpartition(":")[2]
        options = ["--name", name, "--data", str(self._folder / name), "--port", port]
        options += ["--kafka-port", self._kafka_ports[name], "--kafka-brokers", ",".join(NAMES)]
        options += ["--node-id", str(NAMES.index(name) + 1)]
        options += ["--nameserver", self.nameserver, *self._options]
        self._spawn(name, ["broker", *options])

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Apache:
    kind = "apache"

    def __init__(self, folder: Path) -> None:
        self._cluster = apache.Cluster(
            folder, names=NAMES, java_options=APACHE_OPTIONS, commit_log_bytes=256 * 1024 * 1024
        )
        self.nameserver, self.brokers = self._cluster.nameserver, self._cluster.brokers
        self.kafka: dict[str, str] = {}
        try:
            self._cluster.start().wait_ready()
        except BaseException:
            self.close()
            raise

    def create_topic(self, topic: str, queues: int) -> None:
        create_remoting_topic(self.brokers, self.nameserver, topic, queues)

    def stop_broker(self, name: str) -> None:
        self._cluster.processes[name].terminate()

    def start_broker(self, name: str) -> None:
        process = self._cluster.processes[name]
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._cluster.start_broker(name)

    def close(self) -> None:
        self._cluster.stop()
