"""Kafka Streams applications: the programs of `java/streams`, one process an instance.

`WordCount` counts the words of one topic into another, with a repartition topic and a store in between, `Totals` keeps sums and
counts in stores. What came out, or is in the stores, is compared with what was put in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer
from tests.peers.kafka import builds
from tests.peers.kafka.members import Client, Group, Member
from tests.peers.kafka.servers import QUICK_START, QUIET, Running
from tests.waiting import until


def streams(program: str) -> Client:
    return Client(
        f"kafka-streams-{builds.SERVER}",
        lambda: [
            *("java", *QUICK_START, QUIET, "-cp", builds.streams_classes(builds.SERVER)),
            program,
        ],
        "sticky",
    )


def asked(instance: Member, what: str) -> dict[str, Any]:
    """What an instance says when it is told this word."""
    before = len(instance.events)
    instance.send(what)

    def answers() -> list[dict[str, Any]]:
        assert not instance.has_failed(), f"{instance}"
        return [each for each in instance.events[before:] if each["event"] == what]

    until(lambda: bool(answers()), instance)
    return answers()[0]


class WordCount:
    """An application in a `with`: its instances by name, what went in, and what came out."""

    def __init__(
        self, cluster: Running, name: str, folder: Path, *, partitions: int = 4, **options: object
    ) -> None:
        """`options`: settings of Kafka Streams, with _ for the dots."""
        self.name = name
        self.source, self.sink = f"{name}-in", f"{name}-out"
        self._folder = folder
        self._options = options
        self._group = Group(cluster, name, folder)
        self.admin = self._group.admin
        self._group.create_topic(self.source, partitions)
        self._group.create_topic(self.sink, 2)
        servers: dict[str, str | int | float | bool] = {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 0,
        }
        self._producer = Producer(servers | {"enable.idempotence": True})
        self._consumer = Consumer(
            servers
            | {
                "group.id": f"{name}-check",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([self.sink])
        self.instances: dict[str, Member] = {}
        self._sent = 0
        self.wanted: Counter[str] = Counter()
        self.counted: dict[str, int] = {}

    def start(self, name: str, **options: object) -> Member:
        words = {
            "bootstrap": self._group.cluster.bootstrap,
            "group": self.name,
            "input": self.source,
            "output": self.sink,
            "state": self._folder / name,
            **{key.replace("_", "."): value for key, value in (self._options | options).items()},
        }
        log = self._folder / f"{name}-{len(self.instances)}.log"
        self.instances[name] = Member(streams("WordCount"), name, words, log)
        return self.instances[name]

    def leave(self, name: str) -> None:
        self.instances.pop(name).leave()

    def kill(self, name: str) -> None:
        self.instances.pop(name).kill()

    def send(self, lines: int = 60) -> None:
        """So many lines of three words."""
        for _ in range(lines):
            text = f"a{self._sent % 7} b{self._sent % 11} c"
            self.wanted.update(text.split())
            self._producer.produce(self.source, text.encode(), key=b"%d" % self._sent)
            self._sent += 1
        assert self._producer.flush(60) == 0, "lines were not taken"

    def wait_counted(self) -> None:
        """Until the counts that came out are those of what went in."""
        until(self._is_counted, self)

    def _is_counted(self) -> bool:
        for instance in self.instances.values():
            assert not instance.has_failed(), f"{instance}"
        message = self._consumer.poll(0.2)
        while message is not None:
            error = message.error()
            if error is not None and not error.retriable():
                raise KafkaException(error)
            if error is None:
                word, count = message.key(), message.value()
                assert word is not None
                assert count is not None
                before = self.counted.get(word.decode(), 0)
                assert int(count) > before or "exactly_once_v2" not in self._options.values()
                self.counted[word.decode()] = int(count)
            message = self._consumer.poll(0)
        return self.counted == self.wanted

    def asked(self, name: str, what: str) -> dict[str, Any]:
        """What an instance says of its `tasks` or `endpoints`."""
        return asked(self.instances[name], what)

    def tasks(self, kind: str = "active") -> dict[str, set[str]]:
        """The tasks of each instance."""
        return {name: set(self.asked(name, "tasks")[kind]) for name in self.instances}

    def wait_shared(self, tasks: set[str], *names: str) -> None:
        """Until these instances run these tasks, each once, in about equal shares."""

        def is_shared() -> bool:
            found = self.tasks()
            sizes = [len(found[name]) for name in names]
            given = Counter(task for name in names for task in found[name])
            return given == Counter(tasks) and max(sizes) - min(sizes) <= 1

        until(is_shared, self)

    def __str__(self) -> str:
        wrong = {
            word: (self.counted.get(word), count)
            for word, count in self.wanted.items()
            if self.counted.get(word) != count
        }
        instances = "\n  ".join(map(str, self.instances.values()))
        return f"{self.name}: counted and wanted {wrong}\n  {instances}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        for instance in self.instances.values():
            instance.kill()


class Totals:
    """An application in a `with`, one instance at a time, and what its stores must have."""

    def __init__(
        self, cluster: Running, name: str, folder: Path, settings: Mapping[str, object]
    ) -> None:
        """`settings`: of Kafka Streams."""
        self.name, self.source = name, f"{name}-in"
        self._folder = folder
        self._settings = settings
        self._group = Group(cluster, name, folder)
        self.partitions = range(len(self._group.create_topic(self.source, 2)))
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True}
        )
        self._sent = 0
        self._instance: Member | None = None
        self.wanted: dict[str, dict[str, int]] = {"sums": {}, "counts": {}}
        self.changelogs = [f"{name}-{store}-changelog" for store in self.wanted]

    @property
    def instance(self) -> Member:
        assert self._instance is not None, "start one"
        return self._instance

    def start(self, state: str) -> None:
        """An instance that has its stores in a folder of this name."""
        words = {
            "bootstrap": self._group.cluster.bootstrap,
            "group": self.name,
            "input": self.source,
            "state": self._folder / state,
            **self._settings,
        }
        self._instance = Member(streams("Totals"), state, words, self._folder / f"{state}.log")

    def send(self, updates: int, keys: Sequence[str]) -> None:
        """So many updates, of these keys in turn; one in 37 removes its key."""
        for _ in range(updates):
            number, key = self._sent, keys[self._sent % len(keys)]
            self._sent += 1
            if number % 37 == 0:
                self._remove(key)
                continue
            self._producer.produce(self.source, str(number), key)
            for store, more in (("sums", number), ("counts", 1)):
                self.wanted[store][key] = self.wanted[store].get(key, 0) + more
        self._flush()

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._remove(key)
        self._flush()

    def _remove(self, key: str) -> None:
        self._producer.produce(self.source, "remove", key)
        for wanted in self.wanted.values():
            wanted.pop(key, None)

    def _flush(self) -> None:
        assert self._producer.flush(60) == 0, "updates were not taken"

    def stores(self) -> dict[str, dict[str, int]]:
        """What is in the stores; empty while they are restored."""
        told = asked(self.instance, "stores")
        return {store: told[store] for store in self.wanted if store in told}

    def wait_stores(self) -> None:
        """Until the stores have what was put in, and nothing else."""
        until(lambda: self.stores() == self.wanted, self)

    def restored(self) -> Counter[str]:
        """How many records of the changelogs the instance has read for each store."""
        restored: Counter[str] = Counter()
        for event in self.instance.events:
            if event["event"] == "restored":
                restored[event["store"]] += event["count"]
        return restored

    def __str__(self) -> str:
        found = self.stores()
        wrong = {
            store: sorted(found.get(store, {}).items() ^ wanted.items())
            for store, wanted in self.wanted.items()
        }
        return f"{self.name}: found or wanted, not both: {wrong}\n  {self.instance}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._instance is not None:
            self._instance.kill()


def all_tasks(partitions: int) -> set[str]:
    """The tasks of both subtopologies."""
    return {f"{subtopology}_{number}" for subtopology in (0, 1) for number in range(partitions)}
