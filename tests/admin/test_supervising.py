"""`steelyard up` as processes: what ends is started again at its address, and what never lasts is given up."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer as KafkaReader
from confluent_kafka import KafkaError
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import Producer as KafkaProducer
from tests.admin.processes import run
from tests.waiting import until

from steelyard import ConsumeFrom, ConsumerConfig, Message, Producer, PushConsumer
from steelyard.errors import SteelyardError
from steelyard.store import identity

COMMAND = [sys.executable, "-m", "steelyard"]
FREE_PORTS = ("--nameserver-port", "0", "--broker-port", "0", "--kafka-port", "0")
CHUNK = 200


class Up:
    """`steelyard up` that is ready, and what it says on standard error."""

    def __init__(self, data: Path, *options: str, brokers: int) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [
                *(*COMMAND, "up", "--brokers", str(brokers), "--data", str(data)),
                *(*FREE_PORTS, "--json", *options),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.ready = json.loads(self.process.stdout.readline())
        self.nameserver: str = self.ready["nameserver"]
        self.kafka: str = self.ready["kafka"]
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stderr)

    def said(self, *texts: str) -> list[str]:
        """The lines with all of these texts."""
        return [line for line in self.lines if all(text in line for text in texts)]

    def pid(self, broker: str) -> int:
        return int((self.data / broker / "lock").read_text())

    def pid_of_nameserver(self) -> int:
        children = psutil.Process(self.process.pid).children()
        return next(child.pid for child in children if "nameserver" in child.cmdline())

    def stop(self) -> int:
        """Stop it cleanly; its exit code."""
        self.process.terminate()
        code = self.process.wait(60)
        self._reader.join(60)
        return code

    def kill(self) -> None:
        """Whatever is left of it."""
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
        self.process.wait(60)
        self._reader.join(60)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def up(data: Path, *options: str, brokers: int = 1) -> Iterator[Up]:
    running = Up(data, *options, brokers=brokers)
    try:
        yield running
    finally:
        running.kill()


class Traffic:
    """A producer of each dialect that sends to both brokers until `stop`, in threads; then all is read again."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self._stopping = threading.Event()
        self.acknowledged: dict[str, list[bytes]] = {"Remoting": [], "kafka": []}
        self.failed: list[str] = []
        self.consumed: set[bytes] = set()
        """By a push consumer that is there all the time."""
        config = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        self._create()
        self._consumer = PushConsumer(
            "readers",
            up.nameserver,
            lambda view: self.consumed.add(bytes(view.body)),
            config=config,
        )
        self._consumer.subscribe("Remoting").start()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._remoting, self._kafka)
        ]
        for thread in self._threads:
            thread.start()

    def _create(self) -> None:
        """The topic, on both brokers."""
        command = ["admin", "updateTopic", "-n", self._up.nameserver, "-c", "DefaultCluster"]
        subprocess.run(
            [*COMMAND, *command, "-t", "Remoting"], check=True, capture_output=True, timeout=60
        )

    def _remoting(self) -> None:
        number = 0
        with Producer("producers", self._up.nameserver) as producer:
            while not self._stopping.is_set():
                body = b"r%d" % number
                number += 1
                try:
                    producer.send(Message("Remoting", body))
                except SteelyardError:
                    self._stopping.wait(0.02)  # not acknowledged; the next one may go elsewhere
                else:
                    self.acknowledged["Remoting"].append(body)

    def _kafka(self) -> None:
        producer = KafkaProducer(
            {
                "bootstrap.servers": self._up.kafka,
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
            }
        )

        def delivered(error: KafkaError | None, message: KafkaMessage) -> None:
            value = message.value()
            assert value is not None
            if error is None:
                self.acknowledged["kafka"].append(value)
            else:
                self.failed.append(str(error))

        number = 0
        while not self._stopping.is_set():
            producer.produce("kafka", b"k%d" % number, key=b"%d" % number, on_delivery=delivered)
            number += 1
            producer.poll(0.002)
        self.failed += ["not flushed"] * producer.flush(60)

    def goes_on(self) -> None:
        """Returns when both have had many more messages acknowledged."""
        wanted = {name: len(bodies) + CHUNK for name, bodies in self.acknowledged.items()}
        until(
            lambda: all(len(self.acknowledged[name]) >= wanted[name] for name in wanted),
            "messages are acknowledged",
        )

    def stop_and_compare(self) -> None:
        """Nothing acknowledged is lost; Kafka's producer, which repeats, had no failure."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(90)
        assert not self.failed
        missing = set(self.acknowledged["Remoting"])
        until(lambda: missing <= self.consumed, "all acknowledged messages are consumed")
        self._consumer.stop()
        assert set(self.acknowledged["kafka"]) <= self._read_kafka()

    def _read_kafka(self) -> set[bytes]:
        reader = KafkaReader(
            {
                "bootstrap.servers": self._up.kafka,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        reader.subscribe(["kafka"])
        wanted, got = set(self.acknowledged["kafka"]), set[bytes]()
        deadline = time.monotonic() + 60
        while not wanted <= got:
            assert time.monotonic() < deadline, f"{len(wanted - got)} Kafka records are missing"
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                got.add(message.value() or b"")
        reader.close()
        return got


def test_a_killed_broker_is_back_at_its_address_and_nothing_is_lost(tmp_path: Path) -> None:
    """1. Clients of both dialects send and read. 2. broker-b is killed, twice. 3. Each time it is back where it was,
    by itself, and says so. 4. Everything acknowledged is read. 5. A stop is as clean as ever."""
    with up(tmp_path, "--kafka-set", "num.partitions=4", brokers=2) as servers:
        address = servers.ready["brokers"]["broker-b"]
        kafka = servers.kafka.split(",")[1]
        traffic = Traffic(servers)
        traffic.goes_on()
        for kills in (1, 2):
            os.kill(servers.pid("broker-b"), signal.SIGKILL)
            until(lambda kills=kills: len(servers.said("is back")) == kills, "broker-b is back")  # type: ignore[misc]
            traffic.goes_on()
        pauses = [line.partition(" in ")[2] for line in servers.said("broker-b ended (signal 9")]
        assert [pause.partition(" s")[0] for pause in pauses] == ["0.2", "0.4"]
        assert (
            servers.said("is back")
            == [f"steelyard: broker-b is back at {address}, Kafka at {kafka}"] * 2
        )
        traffic.stop_and_compare()
        children = psutil.Process(servers.process.pid).children()
        assert servers.stop() == 0
        assert not any(child.is_running() for child in children)
        assert not servers.said("again and again")


def test_a_killed_nameserver_is_back_and_clients_go_on(tmp_path: Path) -> None:
    with up(tmp_path, brokers=2) as servers:
        traffic = Traffic(servers)
        traffic.goes_on()
        os.kill(servers.pid_of_nameserver(), signal.SIGKILL)
        until(
            lambda: servers.said(f"the nameserver is back at {servers.nameserver}"),
            "the nameserver is back",
        )
        traffic.goes_on()

        def is_routed() -> bool:
            done = subprocess.run(
                [*COMMAND, "admin", "topicRoute", "-n", servers.nameserver, "-t", "Remoting", "-l"],
                capture_output=True,
                text=True,
                timeout=60,
            )
            return "broker-a" in done.stdout and "broker-b" in done.stdout

        until(is_routed, "the routes are told again")
        traffic.stop_and_compare()
        assert servers.stop() == 0


def test_a_broker_that_never_lasts_is_given_up_and_can_be_started_by_hand(tmp_path: Path) -> None:
    """1. broker-b's folder becomes unusable, and it is killed. 2. It is started twice more, then given up in one line
    that says why and how to start it. 3. broker-a goes on. 4. The line works. 5. The exit code tells of it."""
    data = tmp_path / "a folder"
    with up(data, "--restarts-max", "2", "--kafka-set", "num.partitions=4", brokers=2) as servers:
        pid = servers.pid("broker-b")
        (data / "broker-b").rename(data / "aside")
        (data / "broker-b").write_text("in the way")
        os.kill(pid, signal.SIGKILL)
        until(lambda: servers.said("is given up"), "broker-b is given up")
        (line,) = servers.said("is given up")
        assert (
            "broker-b ended before it was ready (exit code 2), for the 3rd time in a row," in line
        )
        assert f"its last line: data directory {data}/broker-b" in line
        assert len(servers.said("restarting it in 0.2 s")) == 1
        assert len(servers.said("restarting it in 0.4 s")) == 1
        with Producer("producers", servers.nameserver) as producer:
            assert producer.send(Message("Going", b"on")).queue.broker_name == "broker-a"

        (data / "broker-b").unlink()
        (data / "aside").rename(data / "broker-b")
        command = shlex.split(line.partition("start it alone with: ")[2])
        assert command[:2] == ["steelyard", "broker"]
        again = subprocess.Popen([*COMMAND, *command[1:]], stdout=subprocess.PIPE, text=True)
        assert again.stdout is not None
        address, kafka = servers.ready["brokers"]["broker-b"], servers.kafka.split(",")[1]
        assert again.stdout.readline() == f"ready: broker at {address}, Kafka at {kafka}\n"
        options = dict(zip(command[2::2], command[3::2], strict=False))
        assert (options["--node-id"], options["--kafka-brokers"]) == ("2", "broker-a,broker-b")
        assert "--set=num.partitions=4" in command
        again.terminate()
        assert again.wait(60) == 0
        again.stdout.close()
        assert servers.stop() == 1


def test_up_ends_when_its_only_broker_is_given_up(tmp_path: Path) -> None:
    with up(tmp_path, "--restarts-max", "0") as servers:
        os.kill(servers.pid("broker-a"), signal.SIGKILL)
        assert servers.process.wait(60) == 1
        until(lambda: servers.said("no broker is left: stopping"), "it says why")
        (line,) = servers.said("is given up")
        assert line.startswith(
            "steelyard: broker-a ended (signal 9, SIGKILL) and is given up; after"
        )
        assert f"start it alone with: steelyard broker --name broker-a --data {tmp_path}" in line


def test_up_ends_when_its_nameserver_is_given_up(tmp_path: Path) -> None:
    with up(tmp_path, "--restarts-max", "0") as servers:
        broker = psutil.Process(servers.pid("broker-a"))
        os.kill(servers.pid_of_nameserver(), signal.SIGKILL)
        assert servers.process.wait(60) == 1
        assert not broker.is_running()
        until(lambda: servers.said("without the nameserver"), "it says why")
        (line,) = servers.said("the nameserver ended")
        port = servers.nameserver.rpartition(":")[2]
        assert f"steelyard nameserver --host 127.0.0.1 --port {port}" in line


def test_every_line_is_json_if_asked_for(tmp_path: Path) -> None:
    with up(tmp_path, "--restarts-max", "0", "--log-format", "json", "--verbose") as servers:
        os.kill(servers.pid("broker-a"), signal.SIGKILL)
        assert servers.process.wait(60) == 1
        until(lambda: servers.said("no broker is left: stopping"), "it says why")
    lines = [json.loads(line) for line in servers.lines]
    assert {line["server"] for line in lines} == {"nameserver", "broker-a", "up"}
    (line,) = servers.said("is given up")
    told = json.loads(line)
    assert (told["level"], told["logger"]) == ("ERROR", "steelyard.up")
    assert told["message"].startswith("broker-a ended (signal 9, SIGKILL) and is given up; ")
    assert "its last line: {" not in told["message"]
    assert "--log-format json" in told["message"]


def test_the_line_that_says_ready_is_json_among_lines_that_are(tmp_path: Path) -> None:
    command = [*COMMAND, "up", "--data", str(tmp_path), *FREE_PORTS, "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()).keys() == {"nameserver", "brokers", "kafka"}
        process.terminate()
        assert process.wait(60) == 0


def test_up_does_not_start_inside_a_brokers_directory(tmp_path: Path) -> None:
    """It would be an empty cluster, into which waiting clients write at once."""
    data = tmp_path / "broker-b"
    data.mkdir()
    (data / identity.PATH).write_text("steelyard-store 2")
    done = run("up", "--data", str(data), "--nameserver-port", "0", "--broker-port", "0")
    assert done.returncode == 2
    assert f"{data} is the data directory of one broker" in done.stderr
    assert [each.name for each in data.iterdir()] == [identity.PATH]


def test_the_error_that_ends_a_server_is_json_if_asked_for(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path), "--set", "flush=never", "--log-format", "json")
    done = run("broker", *options)
    assert done.returncode == 2
    line = json.loads(done.stderr)
    assert (line["level"], line["logger"]) == ("ERROR", "steelyard")
    assert "flush" in line["message"]


@contextmanager
def taken(host: str, port: int) -> Iterator[None]:
    """Another program listens there as soon as the port is free."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def is_ours() -> bool:
            try:
                listener.bind((host, port))
            except OSError:
                return False
            return True

        until(is_ours, "the port is free")
        listener.listen()
        yield


def test_a_port_that_is_taken_meanwhile_is_waited_for(tmp_path: Path) -> None:
    """1. broker-a is killed, and another program listens on its port, as it may with SO_REUSEADDR, before the supervisor, which
    is suspended, starts the broker again. 2. The broker cannot start and is tried again. 3. The port is free, and the broker
    is back at it."""
    with up(tmp_path) as servers:
        host, _, port = servers.ready["brokers"]["broker-a"].rpartition(":")
        servers.process.send_signal(signal.SIGSTOP)
        os.kill(servers.pid("broker-a"), signal.SIGKILL)
        with taken(host, int(port)):
            servers.process.send_signal(signal.SIGCONT)
            until(
                lambda: servers.said("broker-a ended before it was ready", "the port is in use"),
                "the port is missed",
            )
        until(lambda: servers.said(f"broker-a is back at {host}:{port}"), "broker-a is back")
        assert servers.stop() == 0


def test_a_stop_does_not_wait_for_what_is_to_be_started_again(tmp_path: Path) -> None:
    with up(tmp_path, "--restarts-max", "9", brokers=2) as servers:
        pid = servers.pid("broker-b")
        (tmp_path / "broker-b").rename(tmp_path / "aside")
        (tmp_path / "broker-b").write_text("in the way")
        os.kill(pid, signal.SIGKILL)
        until(lambda: servers.said("restarting it in 1.6 s"), "the pauses grow")
        servers.process.send_signal(signal.SIGINT)
        assert servers.process.wait(60) == 0


def test_a_bad_number_of_restarts(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "up", "--data", str(tmp_path), "--restarts-max", "-1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == "steelyard: restarts_max is -1; it must be 0 to 1000000\n"


# -- doubles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"--name": "broker-a"}, "the broker name broker-a is in use by the broker at {address}"),
        ({"--node-id": "1"}, "the Kafka node id 1 is in use by the broker broker-a at {address}"),
        ({"--kafka-advertise": "{kafka}"}, "the Kafka address {kafka} is in use by the broker"),
        ({"--advertise": "{address}"}, "the address {address} is in use by the broker broker-a"),
    ],
    ids=["name", "node id", "Kafka address", "address"],
)
def test_a_double_is_refused_in_one_line_and_the_running_broker_goes_on(
    cluster: Up, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    places = {"address": cluster.ready["brokers"]["broker-a"], "kafka": cluster.kafka}
    chosen = {"--name": "double", "--node-id": "9", "--port": "0", "--kafka-port": "0"} | options
    command = [*COMMAND, "broker", "--data", str(tmp_path), "--nameserver", cluster.nameserver]
    for name, value in chosen.items():
        command += [name, value.format(**places)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"steelyard: {words.format(**places)}")
    assert done.stderr.endswith("or stop the other\n")
    assert done.stderr.count("\n") == 1
    listing = [*COMMAND, "admin", "clusterList", "-n", cluster.nameserver]
    listed = subprocess.run(listing, capture_output=True, text=True, timeout=60).stdout
    rows = [line.split()[1:4] for line in listed.splitlines()[1:]]
    assert rows == [["broker-a", "0", places["address"]]]
    with Producer("producers", cluster.nameserver) as producer:
        assert producer.send(Message("Doubled", b"x")).queue.broker_name == "broker-a"
    assert not cluster.lines


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("cluster")) as running:
        yield running
        assert running.stop() == 0
