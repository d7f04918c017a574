"""A broker whose disk has damaged one stored message, and what Kafka's clients of any kind make of it.

`tests/clients` has it with the libraries of the environment, `tests/peers` with all others and with RocketMQ's clients.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from tests.peers.apache import free_port
from tests.peers.kafka import servers
from tests.peers.kafka.members import LONG_MS, Client, Group, Member
from tests.peers.kafka.servers import STEELYARD, Running
from tests.waiting import until

from steelyard import Admin

RECORDS = 20
DAMAGED = 10
"""The offset of the damaged record, or message, in partition, or queue, 0."""
SOUND = [number for number in range(RECORDS) if number != DAMAGED]
MARK = b"this will be damaged"

REFUSALS = 5
"""So many refusals for each client are waited for."""
REFUSALS_PER_S = 15
"""No client may get more: who lets a fetch wait for 200 ms gets 5, and each is two reads."""


def flip(folder: Path) -> None:
    """Flip a bit of MARK, which one log below the folder has once."""
    found = [path for path in folder.rglob("*.log") if MARK in path.read_bytes()]
    (path,) = found
    data = path.read_bytes()
    assert data.count(MARK) == 1
    with path.open("r+b") as file:
        file.seek(data.index(MARK))
        file.write(bytes([MARK[0] ^ 1]))


class Cluster:
    """`steelyard up` with one broker and `options`, at ports that it keeps when it stops and starts; in a `with`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        ports = {name: free_port() for name in ("nameserver", "broker", "kafka")}
        self._options = [*options]
        for name, port in ports.items():
            self._options += [f"--{name}-port", str(port)]
        self._broker = f"127.0.0.1:{ports['broker']}"
        self._stack = ExitStack()
        self.running = self._start()

    def _start(self) -> Running:
        return self._stack.enter_context(servers.run_steelyard(self._folder, *self._options))

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def stop(self) -> None:
        self._stack.close()

    def start(self) -> None:
        self._start()

    def damage(self) -> None:
        """Stop it, flip a bit of MARK, start it."""
        self.stop()
        flip(self.data)
        self.start()

    def repair(self) -> None:
        """What docs/OPERATIONS.md tells operators to do."""
        self.stop()
        command = [str(STEELYARD), "check", "--repair", str(self.data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert f"offset {DAMAGED}" in done.stdout, done
        self.start()

    def refusals(self) -> int:
        """How many reads of damaged messages were refused since the start."""
        with Admin(self.running.nameserver) as admin:
            return int(admin.runtime(self._broker)["damagedReadsRefused"])

    def wait_refused(self, clients: int) -> None:
        """Until so many clients were refused often enough; they must not be too fast."""
        began, before = time.monotonic(), self.refusals()
        until(lambda: self.refusals() >= before + REFUSALS * clients, "refused reads")
        refused = self.refusals() - before
        assert refused <= REFUSALS_PER_S * clients * (time.monotonic() - began + 0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def produce(group: Group, topic: str) -> None:
    """Two partitions, partition 0 with MARK in a batch of its own."""
    group.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": group.cluster.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        for partition in (0, 1):
            producer.produce(topic, value(partition, number), partition=partition)
        if number in (DAMAGED - 1, DAMAGED):
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def value(partition: int, number: int) -> bytes:
    return MARK if (partition, number) == (0, DAMAGED) else b"%d of %d" % (number, partition)


def read(member: Member, partition: int) -> list[int]:
    """The offsets of the records that it read of a partition, each of which must be what was written."""
    records = [each for each in list(member.records) if each["partition"].endswith(f"-{partition}")]
    for each in records:
        assert each["value"].encode() == value(partition, each["offset"]), each
    return sorted({each["offset"] for each in records})


def name_of(client: Client) -> str:
    return str(client).replace(":", "-")


class Readers:
    """A member of each client, in a group of its own, so that each has both partitions."""

    def __init__(self, stack: ExitStack, running: Running, folder: Path, topic: str) -> None:
        self._stack, self._running, self._folder, self._topic = stack, running, folder, topic
        self._groups: dict[str, Group] = {}
        self.members: dict[str, list[Member]] = {}

    def join(self, client: Client) -> None:
        name = name_of(client)
        if name not in self._groups:
            options = {"topics": self._topic, "session_ms": LONG_MS, "poll_ms": LONG_MS}
            group = Group(self._running, f"{self._topic}-{name}", self._folder, **options)
            self._groups[name] = self._stack.enter_context(group)
        members = self.members.setdefault(name, [])
        members.append(self._groups[name].join(client, f"{name}-{len(members)}"))

    def read(self, partition: int) -> dict[str, list[int]]:
        return {
            name: sorted({offset for member in members for offset in read(member, partition)})
            for name, members in self.members.items()
        }

    def wait_read(self, first: Sequence[int]) -> None:
        """Until each has read this of partition 0, and all of the other one."""
        wanted = {0: list(first), 1: [*range(RECORDS)]}

        def are_read() -> bool:
            return all(
                found == wanted[partition]
                for partition in wanted
                for found in self.read(partition).values()
            )

        until(are_read, self)

    def waiting(self) -> list[str]:
        """The clients whose member still runs."""
        return [name for name, members in self.members.items() if not members[-1].has_ended()]

    def __str__(self) -> str:
        members = "\n  ".join(str(each[-1]) for each in self.members.values())
        return f"{self.read(0)} of the damaged partition, {self.read(1)} of the other\n  {members}"


def meet_damage(
    cluster: Cluster, clients: Sequence[Client], ending: Sequence[Client], folder: Path, topic: str
) -> None:
    """1. A batch is damaged. 2. Each client gets what is before it, and the other partition. 3. Those in `ending` end with an
    error that says so, the others wait without haste. 4. After a repair each gets what is behind it; those that ended start again."""
    with ExitStack() as stack:
        produce(stack.enter_context(Group(cluster.running, f"{topic}-p", folder)), topic)
        cluster.damage()
        readers = Readers(stack, cluster.running, folder, topic)
        for client in clients:
            readers.join(client)
        readers.wait_read(range(DAMAGED))
        patient = len(clients) - len(ending)
        until(lambda: len(readers.waiting()) == patient, readers)
        if patient:
            cluster.wait_refused(patient)
        assert set(readers.members) - set(readers.waiting()) == set(map(name_of, ending))
        cluster.repair()
        for client in ending:
            readers.join(client)
        readers.wait_read(SOUND)
