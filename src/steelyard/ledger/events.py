"""The rebalance ledger: what a broker writes down about its groups, as data.

A broker appends `Record`s to the topic `RMQ_SYS_REBALANCE_LEDGER`, one JSON array of records per
message (`encode`/`decode`). Joins and leaves are written as they happen, deliveries and commits are
gathered per queue and client and written once a second, so that the ledger costs a small fraction of
what it watches. A group of Kafka's dialect goes by the same records, with member ids as clients and a partition's queue on
its broker as the queue, and by two more that only a coordinator can write. What the records mean for a group is worked out by `ledger.cost`, from any broker's
records together, for any client: the ledger needs nothing from the members.

Why these fields: pause needs the last delivery to the old owner, the first delivery to the new one,
and since when a message waited; duplicates need the offset ranges; spike needs the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

LEDGER_TOPIC = "RMQ_SYS_REBALANCE_LEDGER"


class _Record(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, kw_only=True):
    at: int
    """When it happened, ms since the epoch, by the broker's clock."""
    broker: str
    """The name of the broker that writes; of a commit, of the one with the queue."""


class BrokerStarted(_Record, frozen=True, kw_only=True, tag="broker_started"):
    """The broker is up (again): its queues are back in the routes."""


class BrokerStopped(_Record, frozen=True, kw_only=True, tag="broker_stopped"):
    """The broker stops cleanly. After a crash this record is missing."""


class MemberJoined(_Record, frozen=True, kw_only=True, tag="joined"):
    """A client joined the group on this broker, or came back on a new connection. `members`: all, sorted, afterwards."""

    group: str
    client: str
    cause: str
    """heartbeat | subscription (topics changed); of Kafka's groups: joined | subscription | static"""
    members: tuple[str, ...]
    topics: tuple[str, ...] = ()


class MemberLeft(_Record, frozen=True, kw_only=True, tag="left"):
    """A client left the group on this broker. `members`: all, sorted, afterwards."""

    group: str
    client: str
    cause: str
    """unregistered | closed (connection) | expired (no heartbeat); of Kafka's static members: replaced"""
    members: tuple[str, ...]


class Delivered(_Record, frozen=True, kw_only=True, tag="delivered"):
    """Messages of one queue went to one client, `at`..`until`, without a gap in the offsets.

    A new record begins when the client or the next offset changes, at the latest once a second.
    """

    group: str
    client: str
    topic: str
    queue: int
    until: int
    """Time of the last delivery in this record; `at` is that of the first."""
    first: int
    """First offset delivered."""
    next: int
    """One past the last offset delivered."""
    count: int
    """Messages delivered; less than next - first where a tag filter skipped some."""
    stored: int
    """When the message at `first` was stored: since then it waited."""
    backlog_max: int
    """Most messages that waited in the queue just before a delivery of this record."""
    backlog: int
    """Messages left waiting after the last delivery."""


class Committed(_Record, frozen=True, kw_only=True, tag="committed"):
    """The group's committed offset of a queue moved to `offset` (the last value within a second)."""

    group: str
    topic: str
    queue: int
    offset: int
    client: str = ""
    """Who committed, where the broker knows."""
    writer: str = ""
    """The broker that writes, where the queue is another's: a Kafka group's coordinator notes all of its commits."""


class RebalanceBegan(_Record, frozen=True, kw_only=True, tag="rebalance_began"):
    """A Kafka group's generation came to its end. (In RocketMQ's groups no broker knows of a rebalance.)"""

    group: str
    generation: int
    """The one that ends, 0 for none."""
    trigger: str
    """joined | left | expired | subscription | revoked | leader | static | size | storage: see `coordinator.effects`;
    of KIP-848 also topics | assignor."""
    cause: str
    """In words, with the client's own where it gave any."""
    members: tuple[str, ...]


class RebalanceEnded(_Record, frozen=True, kw_only=True, tag="rebalance_ended"):
    """A Kafka group has a new generation, and its members can know what to read; or it has no members."""

    group: str
    generation: int
    protocol: str
    """The assignor's name, empty where nobody is left."""
    duration_ms: int
    """Since the rebalance began."""
    members: tuple[str, ...]


Record = (
    BrokerStarted
    | BrokerStopped
    | MemberJoined
    | MemberLeft
    | Delivered
    | Committed
    | RebalanceBegan
    | RebalanceEnded
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[Record, ...])


def encode(records: Sequence[Record]) -> bytes:
    """One message body."""
    return _encoder.encode(records)


def decode(body: bytes) -> tuple[Record, ...]:
    """The records of one message body. Raises msgspec.DecodeError on anything else."""
    return _decoder.decode(body)
