"""The servers under test: `steelyard up` with a Kafka listener, and Apache Kafka in KRaft mode, one broker each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import KafkaError, Producer

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.servers import Server, listens  # noqa: E402
from tests.certificates import Authority, Pair  # noqa: E402
from tests.peers.kafka.servers import SETTINGS, run_apache  # noqa: E402

if TYPE_CHECKING:
    from confluent_kafka import Message

APACHE_OPTIONS = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""kafka-server-start.sh of Apache Kafka, with G1 as kafka-run-class.sh sets it."""

FIRST_TOPIC = "first"


class KafkaServer(Server):
    """A running broker. `bootstrap` is where its clients begin, `client` what they set besides."""

    bootstrap: str
    client: Mapping[str, str]

    def found(self, processes: list[psutil.Process], begun: float) -> None:
        """It runs: wait for the first message, and see which process is the broker."""
        first_message(self.bootstrap, self.client)
        self.startup_s = time.perf_counter() - begun
        self.processes = processes
        port = int(self.bootstrap.rpartition(":")[2])
        self.broker_process = next(each for each in processes if listens(each, port))


class Apache(KafkaServer):
    """Its storage is formatted before the clock runs; heartbeats of KIP-848 groups come every 5 s, as Steelyard's.

    Clients of one with an `authority` begin at a listener for TLS.
    """

    kind = "apache"

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        certificate = None
        if authority is not None:
            pair = signed(authority)
            certificate = pair.key.with_name("key-and-certificate.pem")
            certificate.write_text(pair.key.read_text() + pair.certificate.read_text())
        settings = {name: value for name, value in SETTINGS.items() if "group.consumer" not in name}
        before = set(psutil.Process().children())
        self._context = run_apache(
            folder,
            settings=settings,
            java_options=APACHE_OPTIONS,
            wait=False,
            certificate=certificate,
        )
        running = self._context.__enter__()
        self.bootstrap = running.encrypted or running.bootstrap
        self.client = client_settings(authority)
        self.found(list(set(psutil.Process().children()) - before), running.begun)

    def stop(self) -> None:
        self.thaw()
        self._context.__exit__(None, None, None)


class Steelyard(KafkaServer):
    kind = "steelyard"

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        command = [sys.executable, "-m", "steelyard", "up", "--data", str(folder), "--json"]
        command += ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"]
        if authority is not None:
            pair = signed(authority)
            command += ["--kafka-tls-certificate", str(pair.certificate)]
            command += ["--kafka-tls-key", str(pair.key)]
        self.client = client_settings(authority)
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


def signed(authority: Authority) -> Pair:
    return authority.sign("server", "/CN=server")


def client_settings(authority: Authority | None) -> Mapping[str, str]:
    """What clients set to trust the authority; nothing without TLS."""
    if authority is None:
        return {}
    return {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}


def first_message(bootstrap: str, client: Mapping[str, str]) -> None:
    """Returns when a message was acknowledged."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0, **client}
    producer = Producer(settings | {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 10})
    producer.produce(FIRST_TOPIC, b"first", on_delivery=delivered)
    left = producer.flush(60)
    if left or failed:
        raise RuntimeError(f"{bootstrap} takes no message: {failed}")
