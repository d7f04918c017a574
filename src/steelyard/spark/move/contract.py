"""What a move needs of a cluster, the same for both dialects.

A queue is named by topic, broker and number; partitions of Kafka have no broker (`""`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from steelyard.errors import ConfigError
from steelyard.spark.offsets import QueueName

CHUNK_BYTES = 900_000
"""Bytes of records that are sent together, unless a single one is larger: Kafka's default limit of
a batch, message.max.bytes, is 1,048,588."""

Token = tuple[int, int, int]
"""Producer id, epoch and sequence number of a batch, by which Kafka's brokers recognize it."""


class HasOffset(Protocol):
    """A record, of either dialect."""

    @property
    def offset(self) -> int: ...


R = TypeVar("R", bound=HasOffset)
R_contra = TypeVar("R_contra", bound=HasOffset, contravariant=True)


class OffsetRange(NamedTuple):
    """Offsets of a queue: the first one, and the one after the last."""

    first: int
    end: int


class QueueAppender(Protocol[R_contra]):
    """Appends to one queue, for one thread."""

    def token(self, count: int) -> Token | None:
        """Return the token of the next `count` records; None if brokers know no tokens."""

    def append(
        self, records: Sequence[R_contra], at: int, token: Token | None, *, unsure: bool = False
    ) -> None:
        """Store records, the first at offset `at`, in one piece, however often that is tried.

        `unsure`: an earlier attempt, with the same token, may have stored them or some of them.
        Raises SteelyardError, after which it is unknown how many are stored.
        """

    def close(self) -> None: ...


class MoveCluster(Protocol[R]):
    """A cluster, as source or as target. Methods raise SteelyardError."""

    address: str

    def topics(self) -> list[str]:
        """Return all topics of users."""

    def queues(self, topic: str) -> list[QueueName]:
        """Return the queues of a topic, sorted. Raises RouteError if there is no such topic."""

    def layout(
        self, source: MoveCluster[R], topic: str, queues: Sequence[QueueName]
    ) -> dict[QueueName, QueueName] | None:
        """Return the queue here for each of the source's; None if the topic does not exist here.

        Raises ConfigError if the topic here has other queues than are needed.
        """

    def create(
        self, source: MoveCluster[R], topic: str, queues: Sequence[QueueName]
    ) -> dict[QueueName, QueueName]:
        """Create the topic with as many queues as the source has; as `layout`."""

    def extents(self, queues: Collection[QueueName]) -> dict[QueueName, OffsetRange]:
        """Return what can be read of each queue now."""

    def read(self, queue: QueueName, extent: OffsetRange, *, strict: bool) -> Iterator[list[R]]:
        """Yield the records of an extent in order, in lists.

        `strict`: raise ConfigError if some expired before they were read.
        """

    def writer(self, queue: QueueName) -> QueueAppender[R]:
        """Return what appends to a queue."""

    def content(self, record: R) -> bytes:
        """Return everything of a record that a move keeps, as bytes that no other record has."""

    def size(self, record: R) -> int:
        """Return roughly how many bytes a record is on the wire."""

    def groups(self, topic: str) -> list[str]:
        """Return the consumer groups that have consumed a topic, sorted."""

    def progress(self, group: str, queues: Collection[QueueName]) -> dict[QueueName, int]:
        """Return the committed offsets of a group, of queues where it has one."""

    def commit(self, group: str, offsets: Mapping[QueueName, int]) -> str:
        """Commit offsets of a group without members; return why it was not done, or `""`."""


def label(queue: QueueName) -> str:
    """Return a queue's name within its topic: `broker-a:3`, or `3` in Kafka."""
    _, broker, number = queue
    return f"{broker}:{number}" if broker else str(number)


def in_full(queue: QueueName) -> str:
    """Return a queue's name in words."""
    topic, broker, number = queue
    if broker:
        return f"queue {number} of topic {topic!r} on broker {broker!r}"
    return f"partition {number} of topic {topic!r}"


def digest(ordinal: int, content: bytes) -> int:
    """Return the checksum of one record at its place; those of a queue add up modulo 2**128.

    `ordinal`: how many records of the queue come before it, so that order counts.
    """
    head = ordinal.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(head + content, digest_size=16).digest(), "big")


DIGEST_MODULUS = 1 << 128


def packed(*fields: bytes | None) -> bytes:
    """Join fields so that other fields give other bytes."""
    return b"".join(b"-" if field is None else b"%d:" % len(field) + field for field in fields)


def written_by_others(queue: QueueName, found: int, expected: int) -> ConfigError:
    """Return the error for a target queue that somebody else writes to."""
    return ConfigError(
        f"{in_full(queue)} at the target ends at offset {found}, and the record of the move at"
        f" {expected}: somebody else writes to it, which a move does not allow; delete the topic"
        " there and move it again with a new --state, or stop here if it is complete"
    )


def expired_meanwhile(queue: QueueName) -> ConfigError:
    """Return the error for messages that a source deleted while they were read."""
    return ConfigError(
        f"messages of {in_full(queue)} expired at the source while they were being moved; start"
        " the move again to continue with what is left"
    )
