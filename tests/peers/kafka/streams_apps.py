"""Kafka Streams applications: the program `java/streams/WordCount.java`, one process an instance.

It counts the words of one topic into another, with a repartition topic and a store in between. What came out is compared with
what was put in.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer
from tests.peers.kafka import builds
from tests.peers.kafka.members import Client, Group, Member
from tests.peers.kafka.servers import QUICK_START, Running
from tests.waiting import until

STREAMS = Client(
    f"kafka-streams-{builds.SERVER}",
    lambda: [
        *("java", *QUICK_START, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        *("-cp", builds.streams_classes(builds.SERVER), "WordCount"),
    ],
    "sticky",
)


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
        self.instances[name] = Member(STREAMS, name, words, log)
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
        instance = self.instances[name]
        before = len(instance.events)
        instance.send(what)

        def answers() -> list[dict[str, Any]]:
            return [each for each in instance.events[before:] if each["event"] == what]

        until(lambda: bool(answers()), instance)
        return answers()[0]

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


def all_tasks(partitions: int) -> set[str]:
    """The tasks of both subtopologies."""
    return {f"{subtopology}_{number}" for subtopology in (0, 1) for number in range(partitions)}
