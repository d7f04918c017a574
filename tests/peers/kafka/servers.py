"""Servers that speak Kafka, on free loopback ports: Apache Kafka in KRaft mode, and `steelyard up`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.peers.apache import free_port, java_environment
from tests.peers.kafka.builds import SERVER, jars
from tests.waiting import PATIENCE_S, until

STEELYARD = Path(sys.executable).with_name("steelyard")
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx512m")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
"""As in Kafka's own config/log4j.properties."""
SESSION_MS, HEARTBEAT_MS = 6000, 500
"""The shortest session that a broker allows, and how often members of a `group.protocol=consumer` group are heard."""

SETTINGS = {
    "num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.min.session.timeout.ms": SESSION_MS,
    "group.streams.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.streams.min.heartbeat.interval.ms": HEARTBEAT_MS,
}
"""What the Apache broker is told beyond its defaults: one of everything, and no waiting."""


class Running(NamedTuple):
    """A cluster that is up: where its Kafka clients begin, how many brokers it has, where RocketMQ's clients begin."""

    kind: str
    bootstrap: str
    brokers: int = 1
    nameserver: str = ""
    begun: float = 0.0
    """When its process began, by `time.perf_counter`."""
    restart: Callable[[], None] | None = None
    """Stops an Apache broker in order, or kills each of ours in turn, and starts it again."""
    encrypted: str = ""
    """Where it speaks TLS."""
    login: str = ""
    """Where it asks for a login."""
    encrypted_login: str = ""
    """Where it speaks TLS and asks for a login."""


def verbose(folder: Path) -> tuple[str, ...]:
    """Options of Java for broker logs of the level INFO, as Kafka's own configuration prints them.

    Servers of 3.x bring Log4j 1; the others log through SLF4J's simple logger here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j.properties").write_text(LOG4J)
    return (
        f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]",
    )


@contextmanager
def run_apache(
    folder: Path,
    *,
    settings: Mapping[str, object] = SETTINGS,
    java_options: Sequence[str] = QUICK_START,
    wait: bool = True,
    version: str = SERVER,
    logging: Sequence[str] = (QUIET,),
    certificate: Path | None = None,
    logins: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Apache Kafka, broker and controller in one process, until the block ends. Raises Missing.

    Without `wait` the block begins when the process does. With a `certificate`, a file that also has
    its key, there is a listener for TLS besides; with `logins`, passwords by user, one that asks for
    a login by PLAIN or SCRAM (whose users are still to be made); with both also one for a login over TLS.
    Its data is in `folder/data`, what it logs in `folder/server.out`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    java = ["java", *java_options, *logging, "-cp", f"{jars('server', version)}/*"]
    controller = free_port()
    protocols = ["PLAINTEXT"]
    protocols += ["SSL"] if certificate is not None else []
    protocols += ["SASL_PLAINTEXT"] if logins is not None else []
    protocols += ["SASL_SSL"] if certificate is not None and logins is not None else []
    addresses = {protocol: f"127.0.0.1:{free_port()}" for protocol in protocols}
    listeners = [f"{protocol}://{address}" for protocol, address in addresses.items()]
    lines: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{controller}"]),
        "advertised.listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", *(f"{protocol}:{protocol}" for protocol in protocols)]
        ),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        **settings,
    }
    if certificate is not None:
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    if logins is not None:
        lines["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        users = " ".join(f'user_{name}="{password}"' for name, password in logins.items())
        modules = {"plain": f"plain.PlainLoginModule required {users}"} | {
            f"scram-sha-{bits}": "scram.ScramLoginModule required" for bits in (256, 512)
        }
        lines |= {
            f"listener.name.{protocol.lower()}.{mechanism}.sasl.jaas.config": (
                f"org.apache.kafka.common.security.{module};"
            )
            for protocol in protocols
            if protocol.startswith("SASL")
            for mechanism, module in modules.items()
        }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    cluster_id = "c3RlZWx5YXJkLXBlZXJzIQ"
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)],
        check=True,
        capture_output=True,
        env=java_environment(),
    )

    begun = time.perf_counter()

    def start() -> subprocess.Popen[bytes]:
        with (folder / "server.out").open("ab") as log:
            return subprocess.Popen(
                [*java, "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=java_environment(),
            )

    process = start()

    def restart() -> None:
        nonlocal process
        process.terminate()
        process.wait(PATIENCE_S)
        process = start()
        wait_ready(running, process, folder / "server.out")

    running = Running(
        f"apache-{version}",
        addresses["PLAINTEXT"],
        begun=begun,
        restart=restart,
        encrypted=addresses.get("SSL", ""),
        login=addresses.get("SASL_PLAINTEXT", ""),
        encrypted_login=addresses.get("SASL_SSL", ""),
    )
    try:
        if wait:
            wait_ready(running, process, folder / "server.out")
        yield running
    finally:
        process.kill()  # nobody needs its log afterwards
        process.wait()


@contextmanager
def run_steelyard(
    folder: Path, *options: str, brokers: int = 1, is_waited_for: bool = True
) -> Iterator[Running]:
    """`steelyard up` with a Kafka port and these options, until the block ends; it must stop cleanly then.

    Unless `is_waited_for`, its brokers may not have found each other when the block begins.
    """
    folder.mkdir(parents=True, exist_ok=True)
    errors = folder / "up.log"
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(STEELYARD), "up", "--brokers", str(brokers), "--data", str(folder / "data")),
                *("--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0", "--json"),
                *("--kafka-set", f"group.consumer.session.timeout.ms={SESSION_MS}"),
                *("--kafka-set", f"group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}"),
                *("--kafka-set", f"group.streams.session.timeout.ms={SESSION_MS}"),
                *("--kafka-set", f"group.streams.heartbeat.interval.ms={HEARTBEAT_MS}"),
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            env=java_environment(),
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"steelyard up ended: {errors.read_text()[-2000:]}"
        ready = json.loads(line)
        running = Running("steelyard", ready["kafka"], brokers, ready["nameserver"])
        if is_waited_for:
            wait_ready(running, process, errors)
        yield running
        assert process.poll() is None, f"steelyard up ended: {errors.read_text()[-2000:]}"
    finally:
        process.terminate()
        try:
            assert process.wait(PATIENCE_S) == 0, "steelyard up did not stop cleanly"
        finally:
            process.kill()


def wait_ready(running: Running, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a client sees all brokers; AssertionError with the log's end when the server ends instead."""
    quiet: dict[str, str | int | float | bool] = {
        "bootstrap.servers": running.bootstrap,
        "log_level": 0,
    }
    admin = AdminClient(quiet)

    def ready() -> bool:
        assert process.poll() is None, f"the server has ended: {log.read_text()[-2000:]}"
        try:
            return len(admin.list_topics(timeout=5).brokers) == running.brokers
        except KafkaException:
            return False

    until(ready, f"{running.brokers} brokers of {running.kind}")


if __name__ == "__main__":  # an Apache broker to try things on, until Ctrl-C
    with tempfile.TemporaryDirectory() as place, run_apache(Path(place)) as apache:
        print(apache.bootstrap, flush=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        signal.sigwait((signal.SIGINT, signal.SIGTERM))
