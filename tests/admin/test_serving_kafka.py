"""The Kafka options of `steelyard up` and `steelyard broker`: what is wrong is said in one line; two brokers are one cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.waiting import PATIENCE_S


def steelyard(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "steelyard", *arguments]


@contextmanager
def running(*arguments: str) -> Iterator[dict[str, object]]:
    """A server, and the line that it says when it is ready."""
    command = steelyard(*arguments, "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            ready: dict[str, object] = json.loads(process.stdout.readline())
            yield ready
        finally:
            process.terminate()
            assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kafka-port", "70000"], "70000"),
        (
            ["--kafka-port", "0", "--kafka-set", "num.partitions=0"],
            "num.partitions is '0'; it must be an int of 1 to",
        ),
        (
            ["--kafka-port", "0", "--kafka-set", "num.partitions=x"],
            "num.partitions is 'x'; it must be an int",
        ),
        (
            ["--kafka-port", "0", "--kafka-set", "no.such=1"],
            "unknown setting 'no.such'; docs/SETTINGS.md lists all that there are",
        ),
        (["--kafka-port", "0", "--kafka-set", "auto.create.topics.enable=si"], "true or false"),
        (
            ["--kafka-port", "0", "--kafka-sasl", "FOO"],
            "is 'FOO'; it must be one or more of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512',"
            " 'OAUTHBEARER', separated by commas",
        ),
    ],
)
@pytest.mark.parametrize("what", ["up", "broker"])
def test_bad_options_are_one_line(
    tmp_path: Path, what: str, arguments: list[str], words: str
) -> None:
    ports = ["--nameserver-port", "0", "--broker-port", "0"] if what == "up" else ["--port", "0"]
    command = steelyard(what, "--data", str(tmp_path / "data"), *ports, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kafka-sasl", "PLAIN"], "--kafka-sasl needs a Kafka listener: give --kafka-port as"),
        (["--kafka-authorizer", "acl"], "--kafka-authorizer needs a Kafka listener"),
        (["--allow-changes"], "--allow-changes needs the console: give --http as well"),
    ],
)
def test_options_without_effect_are_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    ports = ["--nameserver-port", "0", "--broker-port", "0"]
    command = steelyard("up", "--data", str(tmp_path / "data"), *ports, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert words in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--node-id", "-1"], "kafka.node_id is '-1'"),
        (["--node-id", str(2**31)], f"kafka.node_id is '{2**31}'"),
        (["--name", "a,b"], "must not contain a comma"),
        (["--kafka-advertise", "nowhere"], "kafka.address is 'nowhere'"),
        (["--kafka-advertise", "host:x"], "must be HOST:PORT"),
        (["--advertise", ":10911"], "address is ':10911'"),
    ],
)
def test_bad_options_of_one_broker_are_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    data = ["--data", str(tmp_path / "data"), "--port", "0", "--kafka-port", "0"]
    command = steelyard("broker", *data, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_one_broker_without_a_nameserver_is_a_cluster(tmp_path: Path) -> None:
    options = ["--data", str(tmp_path), "--port", "0", "--kafka-port", "0", "--node-id", "7"]
    # By default it would join what runs on this machine.
    with running("broker", "--nameserver", "127.0.0.1:1", *options) as ready:
        admin = AdminClient({"bootstrap.servers": str(ready["kafka"])})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        told = admin.list_topics(timeout=60)
        assert list(told.brokers) == [7]
        assert [p.leader for p in told.topics["t"].partitions.values()] == [7, 7]


def test_up_takes_a_file_and_options_go_before_it(tmp_path: Path) -> None:
    """What a server gets that `up` starts is what the file says of it, but for what an option says."""
    file = tmp_path / "steelyard.toml"
    file.write_text("""
        [up]
        brokers = 2
        nameserver_port = 0
        broker_port = 0
        kafka_port = 0
        restarts_max = 0

        [nameserver]
        broker_expiry_ms = 60000

        [broker]
        num.partitions = 3
        cluster = "Other"
        auto.create.topics.enable = false
    """)
    options = ["--data", str(tmp_path), "--cluster", "Mine", "--kafka-set", "log.roll.ms=5000"]
    with running("up", "--config", str(file), *options) as ready:
        brokers, kafka = ready["brokers"], str(ready["kafka"])
        assert isinstance(brokers, dict)
        assert list(brokers) == ["broker-a", "broker-b"]
        listed = subprocess.run(
            steelyard("admin", "clusterList", "-n", str(ready["nameserver"])),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Mine" in listed.stdout
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic("t", -1, 1)])["t"].result(20)
        assert len(admin.list_topics("t", timeout=20).topics["t"].partitions) == 3
        for node_id in ("1", "2"):
            resource = ConfigResource(ResourceType.BROKER, node_id)
            told = admin.describe_configs([resource])[resource].result(20)
            assert told["log.roll.ms"].value == "5000"
            assert told["auto.create.topics.enable"].value == "false"


def test_two_brokers_are_one_cluster_from_the_first_moment(tmp_path: Path) -> None:
    ports = ["--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0"]
    with running("up", "--brokers", "2", "--data", str(tmp_path), *ports) as ready:
        assert isinstance(ready["kafka"], str)
        addresses = ready["kafka"].split(",")
        assert len(addresses) == 2
        admins = [AdminClient({"bootstrap.servers": address}) for address in addresses]
        admins[1].create_topics([NewTopic("t", 4, 1)])["t"].result(60)
        told = [admin.list_topics(timeout=60) for admin in admins]
        for each in told:
            assert sorted(f"{b.host}:{b.port}" for b in each.brokers.values()) == sorted(addresses)
            leaders = [p.leader for p in each.topics["t"].partitions.values()]
            assert sorted(leaders) == [1, 1, 2, 2]


def test_clients_survive_a_killed_broker_that_comes_back(tmp_path: Path) -> None:
    """1. A producer sends to the partitions of two brokers, all the time. 2. One is killed: its partitions lose their
    leader. 3. It starts again: they have it back. 4. Every message is acknowledged, once."""
    with (
        running("nameserver", "--port", "0") as nameserver,
        running(*_broker(tmp_path, "broker-a", 1, str(nameserver["nameserver"]))) as first,
    ):
        options = _broker(tmp_path, "broker-b", 2, str(nameserver["nameserver"]))
        second, ready = _start(*options)
        try:
            servers = f"{first['kafka']},{ready['kafka']}"
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_topics([NewTopic("t", 4, 1)])["t"].result(60)
            traffic = _Traffic(servers)
            traffic.until(lambda: len(traffic.acknowledged) >= 100)
            second.kill()
            second.wait(60)
            traffic.until(lambda: -1 in _leaders(admin))
            ports = [str(ready[key]).rpartition(":")[2] for key in ("broker", "kafka")]
            second, _ = _start(*options, "--port", ports[0], "--kafka-port", ports[1])
            traffic.until(lambda: sorted(_leaders(admin)) == [1, 1, 2, 2])
            assert traffic.producer.flush(60) == 0
            assert not traffic.failed
            assert sorted(traffic.acknowledged) == list(range(traffic.sent))
        finally:
            second.terminate()
            assert second.wait(60) == 0
            assert second.stdout is not None
            second.stdout.close()


def _broker(folder: Path, name: str, node_id: int, nameserver: str) -> list[str]:
    options = ["--name", name, "--node-id", str(node_id), "--nameserver", nameserver]
    return ["broker", "--data", str(folder / name), "--port", "0", "--kafka-port", "0", *options]


def _start(*arguments: str) -> tuple[subprocess.Popen[bytes], dict[str, object]]:
    process = subprocess.Popen(
        steelyard(*arguments, "--json"), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def _leaders(admin: AdminClient) -> list[int]:
    topic = admin.list_topics("t", timeout=60).topics["t"]
    return [partition.leader for partition in topic.partitions.values()]


class _Traffic:
    """A producer that sends numbers to all partitions while it waits for something."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5}
        )
        self.sent = 0
        self.acknowledged: list[int] = []
        self.failed: list[str] = []

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, "the state was not reached"
            for _ in range(4):
                number = self.sent
                self.producer.produce(
                    "t", str(number), partition=number % 4, on_delivery=self._delivered
                )
                self.sent += 1
            self.producer.poll(0.01)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert value is not None
        if error is None:
            self.acknowledged.append(int(value))
        else:
            self.failed.append(str(error))
