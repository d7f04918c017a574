"""A broker is killed with SIGKILL under real clients and started again: nothing acknowledged is lost, nothing comes twice."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.aio import AioKafka
from tests.clients.confluent import Confluent
from tests.clients.kafka_python import KafkaPython
from tests.clients.libraries import Library, Sent
from tests.clients.relay import Relay
from tests.crash.conftest import ready
from tests.peers.apache import brokers_of, free_port
from tests.peers.kafka.members import (
    AIOKAFKA,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    LONG_MS,
    Client,
    Group,
    names,
)
from tests.peers.kafka.servers import Running
from tests.waiting import until

from steelyard import Admin

STEELYARD = str(Path(sys.executable).with_name("steelyard"))
CHUNK, CHUNKS = 100, 6
KILLED_IN, STARTED_IN = 2, 3
"""In which chunk of the records the broker is killed, and in which it is started again."""
KILLED = 2
"""The node id of the broker that is killed."""


class Brokers:
    """A nameserver and two brokers, each a process that can be killed and started again. Kafka clients come through relays."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options`: of `steelyard broker`."""
        self._folder = folder
        self._options = options
        command = [STEELYARD, "nameserver", "--port", "0", "--json"]
        self._nameserver = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.nameserver = ready(self._nameserver)["nameserver"]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports = {node_id: (free_port(), free_port()) for node_id in (1, 2)}
        self._relays = {node_id: Relay(kafka) for node_id, (_, kafka) in self._ports.items()}
        for node_id in self._ports:
            self.start(node_id)

    def start(self, node_id: int) -> None:
        """At the ports it had."""
        port, kafka_port = self._ports[node_id]
        relay = self._relays[node_id]
        relay.loses_answers = False
        process = subprocess.Popen(
            [
                *(STEELYARD, "broker", "--json", "--name", f"broker-{node_id}"),
                *("--data", str(self._folder / str(node_id)), "--nameserver", self.nameserver),
                *("--port", str(port), "--kafka-port", str(kafka_port), "--node-id", str(node_id)),
                *("--kafka-advertise", f"127.0.0.1:{relay.port}"),
                *("--kafka-brokers", "broker-1,broker-2"),
                *self._options,
            ],
            stdout=subprocess.PIPE,
        )
        self._processes[node_id] = process
        ready(process)

    def lose_answers(self, node_id: int) -> None:
        """What a broker answers to Kafka clients does not arrive, until it is started again."""
        self._relays[node_id].loses_answers = True

    def kill(self, node_id: int) -> None:
        process = self._processes.pop(node_id)
        process.kill()
        process.wait()

    def restart(self) -> None:
        """Kill each broker in turn, and start it again."""
        for node_id in self._ports:
            self.kill(node_id)
            self.start(node_id)

    @property
    def running(self) -> Running:
        places = ",".join(f"127.0.0.1:{relay.port}" for relay in self._relays.values())
        return Running("steelyard", places, 2, self.nameserver, restart=self.restart)

    def stop(self) -> None:
        for process in (*self._processes.values(), self._nameserver):
            process.terminate()
            assert process.wait(60) == 0
        for relay in self._relays.values():
            relay.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path_factory.mktemp("killed"))
    yield brokers
    brokers.stop()


class Story:
    """The records of one test, and what happens while a producer takes them."""

    def __init__(self, brokers: Brokers, topic: str, group: Group) -> None:
        self._brokers = brokers
        self._topic = topic
        self._group = group
        self._starting = threading.Thread(target=brokers.start, args=(KILLED,))
        self.sent: dict[int, list[bytes]] = {0: [], 1: []}

    def _stored(self) -> int:
        """How much the broker that will be killed has of the topic, by the word of its other listener."""
        with Admin(self._brokers.nameserver) as admin:
            stats = admin.topic_stats(self._topic)
        broker = f"broker-{KILLED}"
        return sum(each.max_offset for queue, each in stats.items() if queue.broker_name == broker)

    def records(self) -> Iterator[Sent]:
        for chunk in range(CHUNKS):
            first = chunk * CHUNK
            before = len(self.sent[0])  # the partitions get the same
            if chunk == KILLED_IN:
                self._brokers.lose_answers(KILLED)
            for number in range(CHUNK):
                value = b"%d" % (first + number)
                self.sent[number % 2].append(value)
                self._group.sent.add(value.decode())
                yield Sent(value, partition=number % 2)
            if chunk == KILLED_IN:
                until(lambda: self._stored() > before, "some are stored")  # noqa: B023
                self._brokers.kill(KILLED)
            elif chunk == STARTED_IN:
                self._starting.start()
                self._starting.join()
            elif chunk < KILLED_IN:
                self._group.wait_read()


@pytest.mark.parametrize(
    ("library", "client"),
    [(Confluent, LIBRDKAFKA), (KafkaPython, KAFKA_PYTHON), (AioKafka, AIOKAFKA)],
    ids=lambda each: getattr(each, "name", None),
)
def test_a_killed_broker_loses_and_repeats_nothing(
    brokers: Brokers, library: type[Library], client: Client, name: str, tmp_path: Path
) -> None:
    """1. An idempotent producer writes to both brokers, two members read. 2. One broker, which also coordinates the group,
    is killed when it has stored what it could not acknowledge any more. 3. The producer goes on while it is down. 4. It is started again."""
    running = brokers.running
    producer = library(running.bootstrap)
    group_name = _coordinated_by(KILLED, running, name)
    patient = {"session_ms": LONG_MS, "poll_ms": LONG_MS}  # who is expelled may read again
    with Group(running, group_name, tmp_path, topics=name, **patient) as group:
        group.create_topic(name, 2)
        until(
            lambda: brokers_of(brokers.nameserver, name) == {"broker-1", "broker-2"},
            "a partition on each broker",
        )
        group.join(client, "m1")
        group.join(client, "m2")
        group.wait_shared(names(name, 2))
        story = Story(brokers, name, group)
        offsets = producer.send(name, story.records(), idempotent=True)
        assert len(offsets) == CHUNK * CHUNKS
        for partition, values in story.sent.items():
            found = producer.read(name, {partition: 0}, len(values))
            assert [record.value for record in found] == values
            assert producer.ends(name, partition) == (0, len(values))
        group.wait_read()
        early = {str(number) for number in range(CHUNK)}
        everyone = [record for member in group.members.values() for record in member.records]
        times = Counter(record["value"] for record in everyone if record["value"] in early)
        assert times == Counter(dict.fromkeys(early, 1)), "what was committed came again"
    producer.close()


@pytest.mark.parametrize("kind", [Confluent, KafkaPython, AioKafka], ids=lambda kind: kind.name)
def test_an_open_transaction_outlives_kills(
    brokers: Brokers, kind: type[Library], name: str
) -> None:
    """1. A transaction has sent. 2. Each broker is killed and started again: the one with its records, the one that coordinates
    it. 3. Nobody sees it before it is committed, everybody does then, once."""
    library = kind(brokers.running.bootstrap)
    library.create_topic(name)
    library.send(name, [Sent(b"before")])
    transaction = library.transaction(name)
    transaction.begin()
    transaction.send(name, [b"inside"] * 3)
    for node_id in (1, 2):
        brokers.kill(node_id)
        brokers.start(node_id)
    library.send(name, [Sent(b"after")])
    (record,) = library.read(name, {0: 0}, 1, committed_only=True)
    assert record.value == b"before"
    transaction.commit()
    records = library.read(name, {0: 0}, 5, committed_only=True)
    assert [record.value for record in records] == [b"before", *[b"inside"] * 3, b"after"]
    until(lambda: library.ends(name) == (0, 6), "five records and a marker")
    transaction.close()
    library.close()


def _coordinated_by(node_id: int, running: Running, name: str) -> str:
    """A name for a group that this broker coordinates."""
    with Group(running, name, Path()) as group:
        for number in range(100):
            found = f"{name}-{number}"
            (asked,) = group.admin.describe_consumer_groups([found]).values()
            if asked.result(60).coordinator.id == node_id:
                return found
    raise AssertionError(f"broker {node_id} coordinates none of a hundred groups")
