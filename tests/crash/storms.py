"""Kill storms: a nameserver and two brokers are killed together and started in any order, again and again, under Kafka clients
that wait; nothing that was acknowledged or decided may change.

    python tests/crash/storms.py --rounds 200 --seed N

The brokers start for the first time while clients already ask for coordinators. In each round a transaction with one record is
committed and each of some groups commits an offset; then all three processes get SIGKILL, in a random order, and are
started again in another, with random pauses; the nameserver remembers nothing. After each round these must be as before:

- the committed offset of every group, and the broker that coordinates it;
- ids, partitions and leaders of all topics, `__consumer_offsets` and `__transaction_state` among them;
- every committed transaction, once; none that was not committed;
- a classic and a KIP-848 group whose members stay alive all the while and go on where they were: they have
  `auto.offset.reset=error`, so that an offset that vanished ends them.

Exit code 1 when something was wrong; the same seed kills in the same order.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.peers.apache import free_port  # noqa: E402

from steelyard.ledger.events import LEDGER_TOPIC  # noqa: E402
from steelyard.wire.kafka import schema as kafka  # noqa: E402
from steelyard.wire.kafka.apis import APIS  # noqa: E402
from steelyard.wire.kafka.frame import ReplyDecoder, Request, encode, read_reply  # noqa: E402
from steelyard.wire.kafka.messages.cluster import (  # noqa: E402  # noqa: E402
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

STEELYARD = str(Path(sys.executable).with_name("steelyard"))
NAMESERVER, A, B = "nameserver", "broker-a", "broker-b"
TOPIC, GROUPS = "storm", ["red", "green", "blue", "amber", "cyan", "pink"]
TRANSACTION = "storm"
"""The transactional id."""
PARTITIONS = 4
PAUSE_SECONDS_MAX = 0.4
"""Longest pause between two kills, and between two starts."""
PATIENCE_SECONDS = 120.0
"""How long anything may take after a round, on a busy machine."""

Facts = dict[str, str]

Settings = dict[str, str | int | float | bool]
R = TypeVar("R")


class StormError(AssertionError):
    """Something that was acknowledged or decided is not as it was."""


class Processes:
    """The nameserver and the brokers, at ports that stay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nameserver = f"127.0.0.1:{free_port()}"
        self._ports = {name: (free_port(), free_port()) for name in (A, B)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.bootstrap = ",".join(f"127.0.0.1:{kafka}" for _, kafka in self._ports.values())

    def _command(self, name: str) -> list[str]:
        if name == NAMESERVER:
            return [STEELYARD, "nameserver", "--port", self._nameserver.rpartition(":")[2]]
        port, kafka = self._ports[name]
        return [
            *(STEELYARD, "broker", "--name", name, "--data", str(self._folder / name)),
            *("--nameserver", self._nameserver, "--port", str(port), "--kafka-port", str(kafka)),
            *("--node-id", "1" if name == A else "2", "--kafka-brokers", f"{A},{B}"),
            *("--kafka-set", "group.consumer.session.timeout.ms=6000"),
            *("--kafka-set", "group.consumer.heartbeat.interval.ms=1000"),
        ]

    def start(self, name: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._command(name), "--json"], stdout=subprocess.PIPE, stderr=log
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def check(self) -> None:
        """Raises StormError where one has ended by itself, or has logged an error."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise StormError(f"{name} ended with {process.returncode}: {self.log(name)}")
        for name in (A, B):
            if "ERROR" in self.log(name):
                raise StormError(f"{name}: {self.log(name)}")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)


class Member(threading.Thread):
    """A member of a group that reads the topic all the while, and notes what it got."""

    def __init__(self, bootstrap: str, group: str, protocol: str) -> None:
        super().__init__(name=group)
        settings = _client(bootstrap) | {
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "error",
            "auto.commit.interval.ms": 200,
            "isolation.level": "read_committed",
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = 6_000
        self._settings = settings
        self._ending = threading.Event()
        self.values: list[bytes] = []
        self.fault = ""

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC])
        try:
            while not self._ending.is_set():
                message = consumer.poll(0.2)
                if message is not None:
                    self._take(message)
        except KafkaException as error:
            self.fault = f"{self.name} died: {error}"
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            value = message.value()
            assert value is not None
            self.values.append(value)
        elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.fault = f"{self.name}: {error}"

    def end(self) -> None:
        self._ending.set()
        self.join()


class Clients:
    """What the clients did, as it was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._keepers = {
            group: Consumer(_client(bootstrap) | {"group.id": group, "enable.auto.commit": False})
            for group in (*GROUPS, "classic", "consumer")
        }
        self._bootstrap = bootstrap
        self._producers = 0
        self.offsets: dict[str, int] = {}
        self.sent: list[bytes] = []
        """Of the transactions whose commit was acknowledged."""

    def ask_early(self) -> None:
        """Ask for coordinators while the brokers start for the first time; what comes of it does not matter."""
        for keeper in self._keepers.values():
            try:
                keeper.committed([TopicPartition(TOPIC, 0)], timeout=0.2)
            except KafkaException:
                continue

    def prepare(self) -> None:
        """Make the topic, and let the groups begin at its beginning."""
        new = NewTopic(TOPIC, PARTITIONS, 1)
        admin = AdminClient(_client(self._bootstrap))

        def create() -> None:
            if len(admin.list_topics(timeout=5).brokers) < 2:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            try:
                admin.create_topics([new], request_timeout=5)[TOPIC].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        _patiently(create)
        for group in self._keepers:
            self._commit(group, 0, range(PARTITIONS))

    def _commit(self, group: str, offset: int, partitions: range) -> None:
        offsets = [TopicPartition(TOPIC, partition, offset) for partition in partitions]
        keeper = self._keepers[group]
        _patiently(lambda: keeper.commit(offsets=offsets, asynchronous=False))
        self.offsets[group] = offset

    def work(self, number: int) -> None:
        """Each group commits an offset; a transaction is committed."""
        for group in GROUPS:
            self._commit(group, number, range(1))
        value = b"%d" % number
        _patiently(lambda: self._transact(value))
        self.sent.append(value)

    def _transact(self, value: bytes) -> None:
        """One transaction with a producer of its own, which ends whatever the one before it left open."""
        producer = Producer(_client(self._bootstrap) | {"transactional.id": TRANSACTION})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=int(value) % PARTITIONS)
        producer.commit_transaction(10)

    def committed(self, group: str) -> int:
        """What the group's coordinator says."""
        keeper = self._keepers[group]
        (found,) = _patiently(lambda: keeper.committed([TopicPartition(TOPIC, 0)], timeout=5))
        return found.offset

    def facts(self) -> Facts:
        """Coordinators of groups and of the transactional id; ids and leaders of all topics: what every broker says alike."""

        def look() -> Facts:
            told = [_facts(address) for address in self._bootstrap.split(",")]
            is_whole = f"{LEDGER_TOPIC} 1" in told[0]  # a queue of each broker has its number
            if told[0] != told[1] or "-1" in told[0].values() or not is_whole:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return told[0]

        return _patiently(look)

    def read(self) -> list[bytes]:
        """What a new consumer finds of the topic."""
        reader = Consumer(
            _client(self._bootstrap)
            | {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
        )
        reader.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        values: list[bytes] = []
        ended: set[int | None] = set()
        until = time.monotonic() + PATIENCE_SECONDS
        while len(ended) < PARTITIONS:
            if time.monotonic() > until:
                raise StormError(f"only {len(ended)} partitions could be read to their end")
            message = reader.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                value = message.value()
                assert value is not None
                values.append(value)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        reader.close()
        return values

    def close(self) -> None:
        for keeper in self._keepers.values():
            keeper.close()


class Storm:
    """A number of rounds; raises StormError where something changed."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._rng = Random(seed)
        self._say = say
        self._processes = Processes(folder)
        self._clients = Clients(self._processes.bootstrap)
        self._members: list[Member] = []

    def run(self, rounds: int) -> None:
        try:
            self._begin()
            self._clients.work(0)
            facts = self._clients.facts()
            for number in range(1, rounds + 1):
                begun = time.monotonic()
                self._clients.work(number)
                self._kill_all()
                self._check(facts, number)
                self._say(f"round {number} of {rounds}: {time.monotonic() - begun:.1f} s")
            self._check_records()
        finally:
            for member in self._members:
                member.end()
            self._clients.close()
            self._processes.stop()

    def _begin(self) -> None:
        """The first start of all, in a random order, under clients that ask already."""
        for name in self._shuffled():
            self._processes.start(name)
            time.sleep(self._rng.random())
            self._clients.ask_early()
        self._clients.prepare()
        for group in ("classic", "consumer"):
            self._members.append(Member(self._processes.bootstrap, group, group))
            self._members[-1].start()

    def _shuffled(self) -> list[str]:
        names = [NAMESERVER, A, B]
        self._rng.shuffle(names)
        return names

    def _kill_all(self) -> None:
        for act in (self._processes.kill, self._processes.start):
            for name in self._shuffled():
                act(name)
                time.sleep(self._rng.random() * PAUSE_SECONDS_MAX)

    def _check(self, facts: Facts, number: int) -> None:
        for group in GROUPS:
            found = self._clients.committed(group)
            if found != self._clients.offsets[group]:
                text = f"{group} committed {self._clients.offsets[group]}, and {found} is told"
                raise StormError(text)
        now = self._clients.facts()
        if now != facts:
            changed = sorted(key for key in facts | now if facts.get(key) != now.get(key))
            text = ", ".join(f"{key}: {facts.get(key)}, now {now.get(key)}" for key in changed)
            raise StormError(f"changed: {text}")
        value = b"%d" % number
        for member in self._members:
            until = time.monotonic() + PATIENCE_SECONDS
            while value not in member.values:
                if member.fault or time.monotonic() > until:
                    raise StormError(member.fault or f"{member.name} does not get {value!r}")
                time.sleep(0.02)
        self._processes.check()

    def _check_records(self) -> None:
        found = self._clients.read()
        if sorted(found) != sorted(self._clients.sent):
            missing = set(self._clients.sent) - set(found)
            raise StormError(f"missing {sorted(missing)}; found {sorted(found)}")


def _client(bootstrap: str) -> Settings:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 1_000,
    }


def _facts(address: str) -> Facts:
    """What a broker says, asked over a link of its own; -1 stands for nobody. Raises KafkaException where it does not answer."""
    everything = MetadataRequest(None, False)
    try:
        with socket.create_connection(_address(address), 5) as link:
            metadata = _ask(link, everything, 12)
            assert isinstance(metadata, MetadataResponse)
            found = {
                f"{topic.name} {what}": text
                for topic in metadata.topics
                for what, text in (
                    ("id", topic.topic_id.hex()),
                    *((str(p.partition_index), str(p.leader_id)) for p in topic.partitions),
                )
            }
            for key_type, keys in ((0, GROUPS), (1, [TRANSACTION])):
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
                answer = _ask(link, request, 4)
                assert isinstance(answer, FindCoordinatorResponse)
                found |= {f"coordinator {c.key}": str(c.node_id) for c in answer.coordinators}
    except OSError:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT)) from None
    return found


def _ask(link: socket.socket, message: kafka.ApiMessage, version: int) -> kafka.ApiMessage:
    api = next(api for api in APIS.values() if api.request is type(message))
    link.sendall(encode(Request(api, version, 1, "storm", message)))
    decoder = ReplyDecoder()
    while not (replies := decoder.feed(data := link.recv(1 << 20))):
        if not data:
            raise OSError("the broker hung up")
    return read_reply(api, version, replies[0])


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _patiently(attempt: Callable[[], R]) -> R:
    """Try until it succeeds, as an application does that waits; raises what went wrong at last."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return attempt()
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        storm = Storm(Path(folder), options.seed, lambda line: print(line, flush=True))
        try:
            storm.run(options.rounds)
        except (StormError, KafkaException) as error:
            print(f"wrong (seed {options.seed}): {error}", flush=True)
            for name in (A, B):
                print(f"-- {name}\n{storm._processes.log(name)}")
            return 1
        print(f"{options.rounds} rounds in {time.monotonic() - begun:.0f} s: nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
