"""Client libraries behind the same few operations, so that each scenario is written once.

`confluent`, `kafka_python` and `aio` have one each. An operation makes a producer or consumer of the library, uses it as its
users would, and closes it. `Refused` is whatever the library raises for an error of the broker, with its words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 120.0
LARGEST = 1 << 21
"""Larger than any record in these tests: the libraries' own limits would speak before the broker's."""


class Refused(Exception):  # noqa: N818 it reads as what happened
    """The library said no."""


class Sent(NamedTuple):
    """A record to send. `timestamp`: ms; None: the library takes its clock."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0


class Record(NamedTuple):
    """A record that was read."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    partition: int


class Transaction(ABC):
    """A transactional producer."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, values: Iterable[bytes]) -> None:
        """To partition 0. Returns when the broker has them."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def transform(self, group: str, source: str, sink: str, batch: int) -> int:
        """One transaction of consume, transform, produce, as a member of the group: how many records were in it.

        The next call goes on where the group is by its committed offsets.
        """

    @abstractmethod
    def close(self) -> None: ...


class Library(ABC):
    """One client library, connected to one cluster."""

    name: str
    codecs: tuple[str, ...]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create_topic(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """`settings`: Kafka's, with underscores."""
        config = {key.replace("_", "."): value for key, value in settings.items()}
        (made,) = self._admin.create_topics(
            [NewTopic(topic, partitions, 1, config=config)]
        ).values()
        made.result(WAIT_S)

    @abstractmethod
    def send(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """The offsets they got; of acks 0 what the library says then. `records` may wait for what becomes of earlier ones.

        Raises Refused.
        """

    @abstractmethod
    def read(
        self, topic: str, starts: Mapping[int, int], count: int, *, committed_only: bool = False
    ) -> list[Record]:
        """So many records from these offsets per partition on, without a group."""

    @abstractmethod
    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The first offset, and the next to be written."""

    @abstractmethod
    def at_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        """The first offset with this timestamp or a later one."""

    @abstractmethod
    def consume(
        self, group: str, topic: str, count: int, *, reset: str = "earliest", auto: bool = False
    ) -> list[Record]:
        """Join the group, read so many records, commit what was read, leave. `auto`: the library commits by itself."""

    @abstractmethod
    def committed(self, group: str, topic: str, partition: int = 0) -> int | None: ...

    @abstractmethod
    def transaction(self, transactional_id: str) -> Transaction:
        """A producer that has fenced older ones of this id. Raises Refused."""

    @abstractmethod
    def close(self) -> None: ...


def consumer_settings(
    bootstrap: str,
    group: str | None,
    reset: str = "earliest",
    *,
    auto: bool = False,
    committed_only: bool = False,
) -> dict[str, object]:
    """Of kafka-python and aiokafka, which call them the same."""
    return {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": reset,
        "enable_auto_commit": auto,
        "isolation_level": "read_committed" if committed_only else "read_uncommitted",
    }


def producer_settings(
    bootstrap: str, codec: str, acks: int | str, idempotent: bool
) -> dict[str, object]:
    """Of the same two."""
    return {
        "bootstrap_servers": bootstrap,
        "compression_type": None if codec == "none" else codec,
        "acks": acks,
        "enable_idempotence": idempotent,
        "max_request_size": LARGEST,
        "linger_ms": 20,
    }


def record_of(one: Any) -> Record:
    """Of kafka-python and aiokafka, which have the same."""
    return Record(one.offset, one.value, one.key, tuple(one.headers), one.timestamp, one.partition)
