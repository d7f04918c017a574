"""Servers and programs as processes: start, wait until ready, kill, stop.

All of them end with the cluster.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient

BROKERS = ("broker-a", "broker-b")

Queue = tuple[str, int]
"""A broker's name and the number of the queue there."""


class Cluster:
    """A nameserver and brokers, each its own process on loopback, data below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nameserver = ""
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.nameserver = f"127.0.0.1:{self._port('nameserver')}"
        self.spawn(
            "nameserver",
            "-m",
            "steelyard",
            "nameserver",
            "--port",
            self._port("nameserver"),
            "--json",
        )
        self.wait_ready("nameserver")
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self._processes)):
            self.stop(name)

    def start_broker(self, name: str) -> None:
        """Start a broker, or start it again on the data it left."""
        self.spawn(
            name, "-m", "steelyard", "broker", "--name", name, "--data", str(self.folder / name),
            "--port", self._port(name), "--nameserver", self.nameserver, "--json",
            "--kafka-port", self._port(f"{name} for Kafka"), "--kafka-brokers", ",".join(BROKERS),
            "--node-id", str(BROKERS.index(name) + 1),
        )  # fmt: skip
        self.wait_ready(name)

    @property
    def kafka_servers(self) -> str:
        """Where Kafka's clients begin."""
        return ",".join(f"127.0.0.1:{self._port(f'{name} for Kafka')}" for name in BROKERS)

    def queues_of(self, topic: str) -> dict[int, Queue]:
        """The queue that each partition of the topic is: the partitions of a broker are its queues.

        Both in the order of their numbers.
        """
        client = AdminClient({"bootstrap.servers": self.kafka_servers})
        told = client.list_topics(topic, timeout=10).topics[topic].partitions
        led = {
            name: sorted(number for number, one in told.items() if one.leader == node_id)
            for node_id, name in enumerate(BROKERS, 1)
        }
        return {
            partition: (name, queue)
            for name, partitions in led.items()
            for queue, partition in enumerate(partitions)
        }

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic with so many queues on every broker, as an operator would."""
        command = (
            "admin",
            "updateTopic",
            "-n",
            self.nameserver,
            "-c",
            "DefaultCluster",
            "-t",
            topic,
        )
        count = ("-r", str(queues), "-w", str(queues))
        subprocess.run(
            [sys.executable, "-m", "steelyard", *command, *count],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def spawn(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """Run Python with `arguments`; its output is piped, its errors go to a log file."""
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._processes[name] = process
        return process

    def wait_ready(self, name: str) -> None:
        """Until the process has printed its ready line, one JSON object."""
        process = self._processes[name]
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            json.loads(line)
        except json.JSONDecodeError:
            raise SystemExit(f"{name} did not start; see {self.folder / name}.log") from None

    def kill(self, name: str) -> None:
        """SIGKILL: nothing is said, flushed or committed."""
        self._processes[name].kill()
        self._processes.pop(name).wait()

    def stop(self, name: str) -> None:
        """SIGTERM: a clean stop; killed if it takes longer than ten seconds."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _port(self, name: str) -> str:
        """A free port, the same one for the same name."""
        if name not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[name] = probe.getsockname()[1]
        return str(self._ports[name])
