"""The servers under test: `steelyard up` with a Kafka listener, and Apache Kafka in KRaft mode, one broker each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import KafkaError, Producer

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.servers import Server, listens  # noqa: E402
from tests.peers.kafka.servers import SETTINGS, run_apache  # noqa: E402

if TYPE_CHECKING:
    from confluent_kafka import Message

APACHE_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""kafka-server-start.sh of Apache Kafka, with G1 as kafka-run-class.sh sets it."""

FIRST_TOPIC = "first"


class KafkaServer(Server):
    """A running broker. `bootstrap` is where its clients begin."""

    bootstrap: str

    def found(self, processes: list[psutil.Process], begun: float) -> None:
        """It runs: wait for the first message, and see which process is the broker."""
        first_message(self.bootstrap)
        self.startup_s = time.perf_counter() - begun
        self.processes = processes
        port = int(self.bootstrap.rpartition(":")[2])
        self.broker_process = next(each for each in processes if listens(each, port))


class Apache(KafkaServer):
    """Its storage is formatted before the clock runs; heartbeats of KIP-848 groups come every 5 s, as Steelyard's."""

    kind = "apache"

    def __init__(self, folder: Path) -> None:
        settings = {name: value for name, value in SETTINGS.items() if "group.consumer" not in name}
        before = set(psutil.Process().children())
        self._context = run_apache(
            folder, settings=settings, java_options=APACHE_OPTIONS, wait=False
        )
        running = self._context.__enter__()
        self.bootstrap = running.bootstrap
        self.found(list(set(psutil.Process().children()) - before), running.begun)

    def stop(self) -> None:
        self.thaw()
        self._context.__exit__(None, None, None)


class Steelyard(KafkaServer):
    kind = "steelyard"

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "steelyard", "up", "--data", str(folder), "--json"]
        command += ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"]
        # As an installed package: compiled once, and kept so.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        begun = time.perf_counter()
        self._up = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert self._up.stdout is not None
        self.bootstrap = json.loads(self._up.stdout.readline())["kafka"]
        up = psutil.Process(self._up.pid)
        self.found([up, *up.children(recursive=True)], begun)

    def stop(self) -> None:
        self.thaw()
        self._up.terminate()
        self._up.wait(20)


def first_message(bootstrap: str) -> None:
    """Returns when a message was acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0}
    producer = Producer(settings | {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 10})
    producer.produce(FIRST_TOPIC, b"first", on_delivery=delivered)
    left = producer.flush(60)
    if left or failed:
        raise RuntimeError(f"{bootstrap} takes no message: {failed}")
