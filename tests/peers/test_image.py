"""The image of `deploy/Dockerfile`, run by hand and by Compose: killed, hung, and run again.

Needs Docker, or a program of that name with its commands, and the image python:3.13-slim; Docker
Compose and a Docker whose processes run on this machine for `deploy/compose.yaml`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer
from tests.peers.apache import free_port
from tests.waiting import until

import steelyard

pytestmark = pytest.mark.peer

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
CONFIG = ROOT / "deploy" / "steelyard.toml"
COMPOSE = ROOT / "deploy" / "compose.yaml"
PULLS_S = 300
RECORDS = 1_000
VALUES = [str(number).encode() for number in range(RECORDS)]
MESSAGES = 100


def docker(*words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *words], capture_output=True, text=True, check=False, timeout=seconds
    )


def done(*words: str, seconds: float = 60) -> str:
    """The output of a command that must succeed."""
    process = docker(*words, seconds=seconds)
    assert process.returncode == 0, f"docker {' '.join(words)}: {process.stdout}{process.stderr}"
    return process.stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if (process := docker("info")).returncode != 0:
        pytest.skip(f"docker does not run: {process.stderr.strip().splitlines()[-1:]}")
    (base,) = set(re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE))
    if docker("image", "inspect", base).returncode != 0:
        process = docker("pull", "--quiet", base, seconds=PULLS_S)
        if process.returncode != 0:
            pytest.skip(f"{base} cannot be pulled: {process.stderr.strip().splitlines()[-1:]}")
    name = f"steelyard-test-{uuid.uuid4().hex[:8]}"
    done("build", "--file", str(DOCKERFILE), "--tag", name, str(ROOT), seconds=PULLS_S * 2)
    yield name
    docker("rmi", "--force", name)


@dataclass
class Ports:
    nameserver: int
    broker: int
    kafka: int

    @classmethod
    def free(cls) -> Ports:
        return cls(*(free_port() for _ in range(3)))


@pytest.fixture
def run(image: str) -> Iterator[Callable[[], tuple[str, Ports]]]:
    """Start a container of the image, each on the same volume and ports."""
    volume = f"{image}-data"
    ports = Ports.free()
    started: list[str] = []

    def start() -> tuple[str, Ports]:
        container = done(
            *("run", "--detach", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL"),
            *("--security-opt=no-new-privileges", f"--volume={volume}:/data"),
            f"--volume={CONFIG}:/etc/steelyard.toml:ro",
            f"--publish=127.0.0.1:{ports.nameserver}:9876",
            f"--publish=127.0.0.1:{ports.broker}:10911",
            f"--publish=127.0.0.1:{ports.kafka}:9092",
            *(image, "up", "--data=/data", "--host=0.0.0.0", "--kafka-port=9092"),
            f"--advertise=127.0.0.1:{ports.broker}",
            f"--kafka-advertise=127.0.0.1:{ports.kafka}",
            *("--log-format=json", "--config=/etc/steelyard.toml"),
        ).strip()
        started.append(container)
        until(lambda: '"nameserver"' in docker("logs", container).stdout, "the ready line")
        return container, ports

    yield start
    for container in started:
        docker("rm", "--force", container)
    docker("volume", "rm", "--force", volume)


def healthy(container: str) -> bool:
    """What the image's own HEALTHCHECK says."""
    text = DOCKERFILE.read_text().replace("\\\n", "")
    (words,) = re.findall(r"HEALTHCHECK .*?CMD (\[.*\])", text)
    return docker("exec", container, *json.loads(words)).returncode == 0


def test_a_new_container_goes_on_where_a_killed_one_stood(
    run: Callable[[], tuple[str, Ports]],
) -> None:
    container, ports = run()
    assert healthy(container)
    assert "uid=10001" in done("exec", container, "id")
    produce(ports.kafka)
    with steelyard.Producer(nameservers=f"127.0.0.1:{ports.nameserver}") as sender:
        for number in range(MESSAGES):
            sender.send(steelyard.Message("messages", str(number).encode()))
    half = take(ports.kafka, RECORDS // 2)

    done("kill", "--signal=KILL", container)
    done("rm", container)
    container, ports = run()
    assert healthy(container)
    rest = take(ports.kafka, RECORDS - len(half))
    assert sorted(half + rest, key=int) == VALUES
    with steelyard.PullConsumer("looker", nameservers=f"127.0.0.1:{ports.nameserver}") as reader:
        queues = reader.queues("messages")
        assert sum(reader.max_offset(queue) for queue in queues) == MESSAGES

    began = time.monotonic()
    done("stop", "--time=60", container)
    assert time.monotonic() - began < 50  # it ended by itself
    state = done("inspect", "--format={{.State.ExitCode}}", container)
    assert state.strip() == "0"


# -- Compose ---------------------------------------------------------------------------------------


@dataclass
class Composed:
    """The one container of `deploy/compose.yaml`, as a project of its own."""

    file: Path
    project: str

    def run(self, *words: str, seconds: float = 120) -> str:
        own = ("--project-name", self.project, "--file", str(self.file))
        return done("compose", *own, *words, seconds=seconds)

    @property
    def container(self) -> str:
        return self.run("ps", "--all", "--quiet").strip()

    def state(self) -> dict[str, object]:
        (found,) = json.loads(done("inspect", self.container))
        return {"restarts": found["RestartCount"], **found["State"]}

    def is_healthy(self) -> bool:
        """What Docker found with the health check of the file."""
        health = self.state()["Health"]
        assert isinstance(health, dict)
        return bool(health["Status"] == "healthy")

    def process(self, words: str) -> int:
        """The process whose command has these words, by its number on this machine."""
        lines = done("top", self.container, "-eo", "pid,args").splitlines()
        (found,) = (line for line in lines if words in line)
        return int(found.split()[0])


@pytest.fixture
def composed(image: str, tmp_path: Path) -> Iterator[tuple[Composed, Ports]]:
    """The file's service, started and healthy, with free ports and quick checks."""
    if docker("compose", "version").returncode != 0:
        pytest.skip("Docker Compose is not installed")
    ports = Ports.free()
    settings = yaml.safe_load(COMPOSE.read_text())
    service = settings["services"]["steelyard"]
    service["image"] = image
    service["build"]["context"] = str(ROOT)
    published = {9876: ports.nameserver, 10911: ports.broker, 9092: ports.kafka}
    assert len(service["ports"]) == len(published)
    service["ports"] = [f"127.0.0.1:{own}:{inner}" for inner, own in published.items()]
    advertised = {"--advertise": ports.broker, "--kafka-advertise": ports.kafka}
    service["command"] = [
        f"{word}:{advertised[option]}" if (option := word.partition("=")[0]) in advertised else word
        for word in service["command"]
    ]
    service["healthcheck"] |= {"interval": "1s", "timeout": "10s", "retries": 1}
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY:  # as for whoever starts containers without rights of its own
        service["ulimits"]["nofile"] = min(service["ulimits"]["nofile"], most)
    service["volumes"] = [word.replace("./", f"{COMPOSE.parent}/") for word in service["volumes"]]
    file = tmp_path / "compose.yaml"
    file.write_text(yaml.safe_dump(settings))
    made = Composed(file, image)
    try:
        made.run("up", "--detach", "--wait", seconds=PULLS_S * 2)
        yield made, ports
    finally:
        made.run("down", "--volumes")


def test_compose_restarts_it_and_says_whether_it_is_well(composed: tuple[Composed, Ports]) -> None:
    service, ports = composed
    assert service.is_healthy()
    produce(ports.kafka)
    half = take(ports.kafka, RECORDS // 2)
    try:
        os.kill(service.process("steelyard up"), signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pytest.skip("the processes of containers are not this machine's, or not this user's")
    until(lambda: service.state()["restarts"] == 1 and service.is_healthy(), "a restart", 120)
    rest = take(ports.kafka, RECORDS - len(half))
    assert sorted(half + rest, key=int) == VALUES

    broker = service.process("steelyard broker")
    os.kill(broker, signal.SIGSTOP)
    until(lambda: not service.is_healthy(), "a broker that stands still is found", 60)
    os.kill(broker, signal.SIGCONT)
    until(service.is_healthy, "a broker that goes on is found", 60)

    service.run("stop")
    assert service.state()["ExitCode"] == 0


# -- Kafka's clients -------------------------------------------------------------------------------


def produce(port: int) -> None:
    """Write `VALUES`, all of which must be acknowledged."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    refused: list[KafkaError] = []
    for value in VALUES:
        producer.produce(
            "records",
            value,
            on_delivery=lambda error, _: refused.append(error) if error is not None else None,
        )
    assert producer.flush(60) == 0
    assert not refused


def kafka_consumer(port: int) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def take(port: int, count: int) -> list[bytes]:
    """Consume and commit so many records."""
    consumer = kafka_consumer(port)
    consumer.subscribe(["records"])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} records"
        for record in consumer.consume(count - len(values), 1):
            assert record.error() is None
            values.append(record.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return values
