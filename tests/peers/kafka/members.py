"""Members of consumer groups, of eight foreign clients: a small program per language, driven alike.

A member program takes its options as KEY=VALUE: bootstrap, group, client (its client id), topics (joined
by commas) or pattern, assignor (`uniform`: the server's, with group.protocol=consumer), and in
milliseconds session_ms, heartbeat_ms, poll_ms (max.poll.interval, or the rebalance timeout of clients that
have none), refresh_ms (metadata.max.age); instance makes it a static member. It reads from the first
offset on and commits what it has told. It tells one JSON object a line:

    assigned | revoked | lost   partitions: what came to, or went from, what it holds
    record                      partition, offset, value
    committed
    error                       error: its words; the member goes on, unless `fatal`
    left                        it has left the group in order, the last line

with the time `at` which it did, in seconds since the epoch (without it, that at which the line was read counts),
and obeys the lines of standard input: `stall` (the application does nothing until `go`) and `leave`, where
also the end of its input leads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.peers.apache import java_environment
from tests.peers.kafka import builds
from tests.peers.kafka.servers import HEARTBEAT_MS, QUICK_START, SESSION_MS, Running
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[3]
REFRESH_MS = 1000
POLL_MS = SESSION_MS  # librdkafka wants no less
LONG_MS = 30_000
"""For session_ms and poll_ms, of groups from which nobody may be expelled, however long the machine is busy elsewhere."""
MOVING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
)
"""What brokers say while a coordinator begins, if they say anything."""


def java(version: str) -> Callable[[], list[str]]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return lambda: ["java", *QUICK_START, quiet, "-cp", builds.java_classes(version), "Member"]


def python(module: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.peers.kafka.python.{module}"]


class Client(NamedTuple):
    """A client library: how its member program starts, with an assignor that its users would take."""

    name: str
    command: Callable[[], list[str]]
    assignor: str
    knows_patterns: bool = True
    """It subscribes to a pattern, and finds topics that come later."""
    leaves_when_stalled: bool = True
    """It has a max.poll.interval, or stalls a rebalance until the coordinator goes on without it."""
    has_one_thread: bool = False
    """Its application runs where its heartbeats come from: one that stalls is frozen."""

    def __str__(self) -> str:
        return f"{self.name}:{self.assignor}"

    def using(self, assignor: str) -> Client:
        return self._replace(assignor=assignor)


JAVA_OLD = Client(f"java-{builds.OLD}", java(builds.OLD), "range")
JAVA = Client(f"java-{builds.NEW}", java(builds.NEW), "cooperative-sticky")
FRANZ = Client("franz-go", lambda: [str(builds.go_program("franz"))], "cooperative-sticky")
SARAMA = Client("sarama", lambda: [str(builds.go_program("sarama"))], "sticky", False)
KAFKAJS = Client(
    "kafkajs",
    lambda: ["node", str(builds.node_program())],
    "roundrobin",
    False,
    has_one_thread=True,
)
LIBRDKAFKA = Client("librdkafka", python("librdkafka"), "cooperative-sticky")
KAFKA_PYTHON = Client("kafka-python", python("kafka_python"), "range")
AIOKAFKA = Client("aiokafka", python("aio"), "roundrobin", has_one_thread=True)

CLASSIC = (JAVA_OLD, JAVA, FRANZ, SARAMA, KAFKAJS, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA)
CONSUMER = (
    JAVA.using("uniform"),
    FRANZ.using("uniform")._replace(leaves_when_stalled=False),
    LIBRDKAFKA.using("uniform"),
)
"""Those that know group.protocol=consumer (KIP-848)."""
ALL = CLASSIC + CONSUMER


class Member:
    """A process with one member; `held`, `records` and `events` are as it told them, each with the time `at` which it did, `committed` says how many of the records."""

    def __init__(self, client: Client, name: str, options: dict[str, object], log: Path) -> None:
        self.client, self.name = client, name
        self.held: set[str] = set()
        self.records: list[dict[str, Any]] = []
        self.committed = 0
        self.events: list[dict[str, Any]] = []
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [*client.command(), *(f"{key}={value}" for key, value in options.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=java_environment(),
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), daemon=True
        )
        self._reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            event = {"at": time.time(), **json.loads(line)}
            match event["event"]:
                case "assigned":
                    self.held = self.held | set(event["partitions"])
                case "revoked":
                    self.held = self.held - set(event["partitions"])
                case "lost":
                    self.held = (
                        set()
                    )  # all; Java's KIP-848 client does not name what came just before
                case "record":
                    self.records.append(event)
                case "committed":
                    self.committed = len(self.records)
            if event["event"] != "record":
                self.events.append(event)

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()

    def leave(self) -> None:
        """In order: close, as its library does it."""
        self.send("leave")
        assert self._process.wait(PATIENCE_S) == 0, f"{self}"
        self._reader.join(10)
        assert self.events[-1]["event"] == "left", f"{self}"

    def stall(self) -> None:
        """Its application does nothing until `go`, its library does what it does then."""
        if self.client.has_one_thread:
            self.freeze()
        else:
            self.send("stall")

    def go(self) -> None:
        if self.client.has_one_thread:
            self.thaw()
        else:
            self.send("go")

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        self._log.close()

    def changes(self) -> list[dict[str, Any]]:
        """What it was told of partitions; that none came or went does not count."""
        return [event for event in self.events if event.get("partitions")]

    def has_failed(self) -> bool:
        """It told an error, or ended."""
        return self.has_ended() or any(event["event"] == "error" for event in self.events)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def __str__(self) -> str:
        state = self._process.poll()
        end = "" if state is None else f" ended with {state}"
        said = Path(self._log.name).read_text(errors="replace")[-300:]
        return (
            f"{self.name} ({self.client}){end} held {sorted(self.held)}; {self.events[-6:]} {said}"
        )


class Group:
    """A consumer group under test in a `with`: its members by name, a producer, and what the coordinator says."""

    def __init__(self, cluster: Running, name: str, folder: Path, **options: object) -> None:
        self.cluster, self.name, self.folder = cluster, name, folder
        self.members: dict[str, Member] = {}
        self.gone: list[Member] = []
        self.sent: set[str] = set()
        self._options = options
        self._servers: dict[str, str | int | float | bool] = {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
        }
        self.admin = AdminClient(self._servers)

    def create_topic(self, topic: str, partitions: int) -> set[str]:
        """The names of its partitions."""
        (made,) = self.admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        made.result(30)
        return names(topic, partitions)

    def more_partitions(self, topic: str, partitions: int) -> set[str]:
        (made,) = self.admin.create_partitions([NewPartitions(topic, partitions)]).values()
        made.result(30)
        return names(topic, partitions)

    def join(self, client: Client, name: str, **options: object) -> Member:
        """Start a member; it is in when `wait_shared` returns. Raises Missing."""
        words = {
            "bootstrap": self.cluster.bootstrap,
            "group": self.name,
            "client": name,
            "assignor": client.assignor,
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            "poll_ms": POLL_MS,
            "refresh_ms": REFRESH_MS,
            **self._options,
            **options,
        }
        member = Member(client, name, words, self.folder / f"{name}.log")
        self.members[name] = member
        return member

    def leave(self, name: str) -> None:
        member = self.members.pop(name)
        member.leave()
        self.gone.append(member)

    def kill(self, name: str) -> None:
        member = self.members.pop(name)
        member.kill()
        self.gone.append(member)

    def wait_shared(self, partitions: set[str], *among: str) -> None:
        """Until these members, or all, hold these partitions, each by one, in equal shares; and the coordinator says so."""
        waiting = _Waiting(self, partitions, among or tuple(self.members))
        until(waiting.is_over, waiting)

    def assignments(self) -> dict[str, set[str]] | None:
        """Who holds what by the coordinator's word, by client id; None while the group is not stable."""
        (asked,) = self.admin.describe_consumer_groups([self.name], request_timeout=10).values()
        try:
            told = asked.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError._TIMED_OUT:
                # One of librdkafka 2.16 that has seen its only broker restart may never connect again.
                self.admin = AdminClient(self._servers)
            if error.args[0].code() in MOVING:
                return None
            raise
        if told.state.name != "STABLE":
            return None
        return {
            member.client_id: {
                f"{place.topic}-{place.partition}" for place in member.assignment.topic_partitions
            }
            for member in told.members
        }

    def send(self, partitions: set[str], count: int = 3) -> None:
        """So many records to each partition."""
        producer = Producer(self._servers | {"linger.ms": 0})  # a new one knows new partitions
        for partition in sorted(partitions):
            topic, _, number = partition.rpartition("-")
            for _ in range(count):
                value = f"{self.name}-{len(self.sent)}"
                self.sent.add(value)
                producer.produce(topic, value.encode(), partition=int(number))
        assert producer.flush(30) == 0, "records were not taken"

    def wait_read(self) -> None:
        """Until every record that was sent was read by some member."""
        until(lambda: self.sent <= self.values(), self)

    def wait_heard(self, partitions: set[str]) -> None:
        """Until the coordinator has heard of each member after the call: each has committed something sent since."""
        earlier = set(self.sent)

        def is_heard(member: Member) -> bool:
            committed = member.records[: member.committed]
            return any(record["value"] not in earlier for record in committed)

        def are_heard() -> bool:
            self.send(partitions, 1)  # once more: a commit may fail
            return all(is_heard(member) for member in self.members.values())

        until(are_heard, self)

    def values(self) -> set[str]:
        everyone = [*self.members.values(), *self.gone]
        return {record["value"] for member in everyone for record in list(member.records)}

    def __str__(self) -> str:
        missing = sorted(self.sent - self.values())
        members = "\n  ".join(map(str, self.members.values()))
        return f"group {self.name}: {len(missing)} not read {missing[:5]}\n  {members}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            member.kill()


class _Waiting(NamedTuple):
    """For a group to be shared as it must; its text shows what is the matter."""

    group: Group
    partitions: set[str]
    among: tuple[str, ...]

    def is_over(self) -> bool:
        for member in self.group.members.values():
            assert not member.has_ended(), f"{member}"
        held = {name: self.group.members[name].held for name in self.among}
        sizes = [len(of_one) for of_one in held.values()]
        return (
            sum(sizes) == len(self.partitions)
            and set().union(*held.values()) == self.partitions
            and max(sizes) - min(sizes) <= 1
            and self.group.assignments() == held
        )

    def __str__(self) -> str:
        members = "\n  ".join(map(str, self.group.members.values()))
        wanted, told = sorted(self.partitions), self.group.assignments()
        return f"{self.among} share {wanted};\n  {members}\n  the coordinator says {told}"


def names(topic: str, partitions: int) -> set[str]:
    return {f"{topic}-{number}" for number in range(partitions)}
