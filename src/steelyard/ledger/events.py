"""The records of the rebalance ledger: what a broker notes about its groups.

A broker appends `Record`s to the topic `RMQ_SYS_REBALANCE_LEDGER`, one JSON array of records per
message (`encode`/`decode`). Joins and leaves are written as they happen; deliveries and commits are
collected per queue and client and written once a second, so that the ledger costs a small fraction
of the traffic that it records. Kafka groups use the same records, with member ids as clients and a
partition's queue on its broker as the queue, and two more that only a coordinator can write.
`ledger.cost` evaluates the records of all brokers together, for any client.

Why these fields: pause needs the last delivery to the old owner, the first delivery to the new one,
and how long a message waited; what was delivered again needs the offset ranges, and whether it was
processed again the commits and the members' reports; spike needs the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import replace

from steelyard.decoding import prepared
from steelyard.ledger.columns import Column, ColumnKind
from steelyard.ledger.measures import pause_ms

LEDGER_TOPIC = "RMQ_SYS_REBALANCE_LEDGER"

STALLED_MS = 200
"""Least waiting time of a queue's messages that counts as a stall."""

GROUP = Column(ColumnKind.TEXT, "The consumer group.")
MEMBERS = Column(ColumnKind.CLIENTS, "All members after it, sorted.")
TOPIC = Column(ColumnKind.TEXT, "The topic of the queue.")
QUEUE = Column(ColumnKind.NUMBER, "The queue on its broker.")


class _Record(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, gc=False):
    at: Annotated[int, Column(ColumnKind.MOMENT_MS, "When it happened, by the broker's clock.")]
    broker: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "The broker that wrote the record; for a commit, the one with the queue.",
        ),
    ]


class BrokerStarted(_Record, frozen=True, tag="broker_started"):
    """The broker is up (again): its queues are back in the routes."""


class BrokerStopped(_Record, frozen=True, tag="broker_stopped"):
    """The broker stops cleanly. After a crash this record is missing."""


class MemberJoined(_Record, frozen=True, tag="joined"):
    """A client joined the group on this broker, or came back on a new connection."""

    group: Annotated[str, GROUP]
    client: Annotated[str, Column(ColumnKind.CLIENT, "Who joined.")]
    cause: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "`heartbeat` or `subscription` (its topics changed); in Kafka groups `joined`,"
            " `subscription` or `static`.",
        ),
    ]
    members: Annotated[tuple[str, ...], MEMBERS]
    topics: Annotated[tuple[str, ...], Column(ColumnKind.TEXTS, "What it subscribes to.")] = ()
    flaps: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "How often a client of its name left within a minute of joining in the half an hour"
            " before. Kafka's clients are named by instance id, or client id and host; RocketMQ's"
            " by client id without the process.",
        ),
    ] = 0


class MemberLeft(_Record, frozen=True, tag="left"):
    """A client left the group on this broker."""

    group: Annotated[str, GROUP]
    client: Annotated[str, Column(ColumnKind.CLIENT, "Who left.")]
    cause: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "`unregistered`, `closed` (its connection) or `expired` (no heartbeat arrived; time in"
            " which the broker stood still does not count); for Kafka's static members also"
            " `replaced`.",
        ),
    ]
    members: Annotated[tuple[str, ...], MEMBERS]
    heard: Annotated[
        int | None,
        Column(ColumnKind.MOMENT_MS, "The last heartbeat or request of a member that expired."),
    ] = None


class Requested(_Record, frozen=True, tag="requested"):
    """A member of a RocketMQ group asked for a queue's messages, and was not the last to do so.

    The broker learns in this way that the member believes the queue to be its own, also if there
    are no messages.
    """

    group: Annotated[str, GROUP]
    client: Annotated[str, Column(ColumnKind.CLIENT, "Who asked.")]
    topic: Annotated[str, TOPIC]
    queue: Annotated[int, QUEUE]


class HandedOver(_Record, frozen=True, tag="handed"):
    """A member passed the first message to its application since it got the queue.

    Only Steelyard's RocketMQ consumers report it.
    """

    group: Annotated[str, GROUP]
    client: Annotated[str, Column(ColumnKind.CLIENT, "The member.")]
    topic: Annotated[str, TOPIC]
    queue: Annotated[int, QUEUE]


class Delivered(_Record, frozen=True, tag="delivered"):
    """Messages of one queue went to one client, from `at` to `until`, without a gap in the offsets.

    A new record begins when the client or the next offset changes, when messages waited for
    `STALLED_MS` or more, and at the latest once a second.
    """

    group: Annotated[str, GROUP]
    client: Annotated[
        str, Column(ColumnKind.CLIENT, "The recipient; its address if no member is known.")
    ]
    topic: Annotated[str, TOPIC]
    queue: Annotated[int, QUEUE]
    until: Annotated[
        int, Column(ColumnKind.MOMENT_MS, "The last delivery in this record; `at` is the first.")
    ]
    first: Annotated[int, Column(ColumnKind.OFFSET, "First offset delivered.")]
    next: Annotated[int, Column(ColumnKind.OFFSET, "One past the last offset delivered.")]
    count: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Messages delivered; fewer than `next - first` if a tag filter skipped some.",
        ),
    ]
    stored: Annotated[
        int,
        Column(ColumnKind.MOMENT_MS, "When the message at `first` was stored and began to wait."),
    ]


def waited_ms(first: Delivered, later: Delivered) -> int:
    """Return how long messages of the queue waited between two deliveries."""
    return pause_ms(first.until, later.stored, later.at)


def joined(first: Delivered, later: Delivered) -> Delivered:
    """Join two deliveries to one client; `later` begins where `first` ends."""
    return replace(
        first,
        until=later.until,
        next=later.next,
        count=first.count + later.count,
    )


class Committed(_Record, frozen=True, tag="committed"):
    """The group's committed offset of a queue moved; the last value within a second."""

    group: Annotated[str, GROUP]
    topic: Annotated[str, TOPIC]
    queue: Annotated[int, QUEUE]
    offset: Annotated[int, Column(ColumnKind.OFFSET, "The committed offset.")]
    client: Annotated[str, Column(ColumnKind.CLIENT, "Who committed, if the broker knows.")] = ""
    handed: Annotated[
        int | None,
        Column(
            ColumnKind.OFFSET,
            "One past the last message passed to the member's application, if the member gives up"
            " the queue and reports it.",
        ),
    ] = None
    handed_at: Annotated[
        int | None,
        Column(ColumnKind.MOMENT_MS, "When that message was passed to the application."),
    ] = None
    writer: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "The broker that wrote the record, if the queue is on another one: a Kafka group's"
            " coordinator records all of the group's commits.",
        ),
    ] = ""


class Backlog(_Record, frozen=True, tag="backlog"):
    """What waits for the group in a topic's queues on this broker; once a second while it moves.

    Queues that nobody reads at the time are included.
    """

    group: Annotated[str, GROUP]
    topic: Annotated[str, TOPIC]
    waiting: Annotated[
        tuple[int, ...],
        Column(
            ColumnKind.COUNTS,
            "Messages of each queue, starting with queue 0, that were not delivered to the group; 0"
            " for a queue that it never had.",
        ),
    ]
    peak: Annotated[
        int,
        Column(
            ColumnKind.COUNT, "Most messages that waited in them together since the record before."
        ),
    ]
    peak_at: Annotated[int, Column(ColumnKind.MOMENT_MS, "When they did.")]


class RebalanceBegan(_Record, frozen=True, tag="rebalance_began"):
    """A Kafka group's generation ended. No broker knows of a RocketMQ group's rebalance."""

    group: Annotated[str, GROUP]
    generation: Annotated[
        int, Column(ColumnKind.NUMBER, "The generation that ended; 0 if there was none.")
    ]
    trigger: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "`joined`, `left`, `expired`, `subscription`, `revoked`, `leader`, `static`, `size` or"
            " `storage`; in KIP-848 groups also `topics` and `assignor`, in streams groups also"
            " `topics`.",
        ),
    ]
    cause: Annotated[
        str, Column(ColumnKind.TEXT, "A description, with the client's own reason if it gave one.")
    ]
    members: Annotated[tuple[str, ...], MEMBERS]


class RebalanceEnded(_Record, frozen=True, tag="rebalance_ended"):
    """A Kafka group has a new generation with an assignment, or no members any more."""

    group: Annotated[str, GROUP]
    generation: Annotated[int, Column(ColumnKind.NUMBER, "The new generation.")]
    protocol: Annotated[
        str, Column(ColumnKind.TEXT, "The assignor's name; empty if no member is left.")
    ]
    duration_ms: Annotated[int, Column(ColumnKind.DURATION_MS, "Time since the rebalance began.")]
    members: Annotated[tuple[str, ...], MEMBERS]


Record = (
    BrokerStarted
    | BrokerStopped
    | MemberJoined
    | MemberLeft
    | Requested
    | HandedOver
    | Delivered
    | Committed
    | Backlog
    | RebalanceBegan
    | RebalanceEnded
)


class Queue(NamedTuple):
    """A queue in the records."""

    broker: str
    topic: str
    queue_id: int


def queue_of(one: Delivered | Requested | HandedOver | Committed) -> Queue:
    """Return the queue that a record is about."""
    return Queue(one.broker, one.topic, one.queue)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(prepared(tuple[Record, ...]))


def encode(records: Sequence[Record]) -> bytes:
    """Encode records as one message body."""
    return _encoder.encode(records)


def decode(body: bytes) -> tuple[Record, ...]:
    """Decode the records of one message body. Raises msgspec.DecodeError for anything else."""
    return _decoder.decode(body)
