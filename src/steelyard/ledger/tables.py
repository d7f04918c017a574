"""The tables that `ledger.cost` computes, declared with their columns."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from steelyard.ledger.columns import Column, ColumnKind

MOVED, STALLED = "moved", "stalled"

REPROCESSED_MIN = Column(
    ColumnKind.COUNT, "Minimum number of these that had already been passed to an application."
)
REPROCESSED_MAX = Column(
    ColumnKind.COUNT,
    "Maximum number of these; equal to the minimum if members report what they passed on.",
    "reprocessed ≤",
)


class Handoff(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in a rebalance: it moved from one member to another, or stood still.

    If two members both believe that they own a queue, so that it goes back and forth in steps of at
    most `MERGE_MS`, that is one hand-off, from the first owner to the last, or none if these are
    the same.
    """

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    topic: Annotated[str, Column(ColumnKind.TEXT, "The topic of the queue.", "topic")]
    broker: Annotated[
        str, Column(ColumnKind.TEXT, "The name of the broker with the queue.", "broker")
    ]
    queue: Annotated[int, Column(ColumnKind.NUMBER, "The queue on that broker.", "queue")]
    kind: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "`moved`: another member has the queue now; `stalled`: the same member, but its"
            " messages waited longer than before the rebalance.",
            "what",
        ),
    ]
    from_client: Annotated[str, Column(ColumnKind.CLIENT, "The old owner.", "from")]
    to_client: Annotated[str, Column(ColumnKind.CLIENT, "The new owner.", "to")]
    last_delivery_ms: Annotated[
        int,
        Column(ColumnKind.MOMENT_MS, "Last delivery before the first delivery to the new owner."),
    ]
    first_delivery_ms: Annotated[
        int, Column(ColumnKind.MOMENT_MS, "First delivery to the new owner.", "first delivery")
    ]
    pause_ms: Annotated[
        int,
        Column(
            ColumnKind.DURATION_MS,
            "Time from the last delivery to the old owner of something that it finished to the"
            " first delivery to the new one, while messages waited. It is exact for deliveries, if"
            " the new owner begins where the old one had committed; if not, all deliveries to the"
            " old owner count, so that the pause may have been longer.",
            "pause",
        ),
    ]
    first_fetch_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "The part of the pause after the new owner had the queue: in RocketMQ groups from its"
            " first request for the queue's messages, in Kafka groups from the end of the"
            " coordinator's rebalance; null if neither was recorded.",
        ),
    ]
    listener_pause_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "The same for the applications, which get messages later than their members: from the"
            " last message passed to the old owner's listener to the first passed to the new"
            " owner's, while messages waited; null unless both members report it.",
            "listeners' pause",
        ),
    ]
    redelivered: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Deliveries of offsets of the queue that had been delivered to the group before, from"
            " the first delivery to the new owner until the rebalance ends.",
        ),
    ]
    reprocessed_min: Annotated[int, REPROCESSED_MIN]
    reprocessed_max: Annotated[int, REPROCESSED_MAX]
    rebalance: Annotated[
        str,
        Column(
            ColumnKind.TEXT, "The rebalance to which it belongs, as in `rebalances`.", "rebalance"
        ),
    ]


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """One rebalance of one group.

    Percentiles of the pauses are nearest-rank, and 0 if no queue moved or stood still.
    """

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    rebalance: Annotated[str, Column(ColumnKind.TEXT, "`group/ms since the epoch`, unique.")]
    started_at: Annotated[
        int,
        Column(
            ColumnKind.MOMENT,
            "When the rebalance began: with the last sign of life of a member or broker that died,"
            " else with its first event.",
            "began",
        ),
    ]
    reason: Annotated[
        str, Column(ColumnKind.TEXT, "What happened, in words; several events by `;`.", "reason")
    ]
    trigger: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "The first event as a code, though a member's event takes precedence over"
            " `broker_died`: `joined`, `left (unregistered)`, `left (closed)`, `left (expired)`,"
            " `subscription`, `broker_started`, `broker_stopped`, `broker_died`, or `routes` if"
            " queues moved and no event was recorded; in Kafka groups also `left (replaced)`,"
            " `leader`, `topics`, `assignor`, `size` and `storage`.",
            "trigger",
        ),
    ]
    members_before: Annotated[
        tuple[str, ...], Column(ColumnKind.CLIENTS, "The members before, sorted.", "members")
    ]
    members_after: Annotated[
        tuple[str, ...], Column(ColumnKind.CLIENTS, "The members afterwards, sorted.", "then")
    ]
    detect_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time from its beginning until a broker or the coordinator recorded the event; null if"
            " none did.",
            "detect",
        ),
    ]
    rebalance_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time from that record until every member had its share: in Kafka groups until the"
            " coordinator had a new assignment, in RocketMQ groups until the new owners had asked"
            " for all queues that moved; null if nobody recorded it.",
            "rebalance",
        ),
    ]
    first_fetch_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Longest `first_fetch_ms` of its queues; null if none is known.",
            "first fetch",
        ),
    ]
    queues_moved: Annotated[
        int,
        Column(
            ColumnKind.NUMBER,
            "Number of hand-offs: a queue that changes hands twice counts twice.",
            "moved",
        ),
    ]
    queues_stalled: Annotated[
        int,
        Column(
            ColumnKind.NUMBER, "Number of queues that kept their owner but stood still.", "stalled"
        ),
    ]
    pause_p50_ms: Annotated[
        int,
        Column(
            ColumnKind.DURATION_MS,
            "Median of the pauses of the queues that moved or stood still.",
            "pause p50",
        ),
    ]
    pause_p99_ms: Annotated[
        int, Column(ColumnKind.DURATION_MS, "99th percentile of these pauses.", "pause p99")
    ]
    pause_max_ms: Annotated[int, Column(ColumnKind.DURATION_MS, "Longest pause.", "longest")]
    redelivered: Annotated[
        int,
        Column(
            ColumnKind.COUNT,
            "Deliveries of offsets that had been delivered to the group before, until the next"
            " rebalance.",
        ),
    ]
    reprocessed_min: Annotated[int, REPROCESSED_MIN]
    reprocessed_max: Annotated[int, REPROCESSED_MAX]
    spike: Annotated[
        float | None,
        Column(
            ColumnKind.FACTOR,
            "Peak backlog of the group afterwards divided by its median backlog before; null if"
            " either is unknown.",
            "spike",
        ),
    ]
    drain_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time from the start until the backlog, after its peak, was back within its variation"
            " before: 0 if it never left it, null if it was not back before the next rebalance.",
            "drain",
        ),
    ]


class GroupEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded about a group's members and about brokers, one row for each record."""

    group: Annotated[
        str, Column(ColumnKind.TEXT, "The consumer group; empty for events of brokers.")
    ]
    at: Annotated[int, Column(ColumnKind.MOMENT, "When it happened, by the broker's clock.")]
    broker: Annotated[str, Column(ColumnKind.TEXT, "The broker that recorded it.")]
    kind: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "`broker_started`, `broker_stopped`, `joined`, `left`, `rebalance_began` or"
            " `rebalance_ended`; see the records below.",
        ),
    ]
    client: Annotated[str, Column(ColumnKind.CLIENT, "Who joined or left.")]
    cause: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "The record's `cause`, of `rebalance_began` its `trigger`, of `rebalance_ended` its"
            " `protocol`.",
        ),
    ]
    members: Annotated[tuple[str, ...], Column(ColumnKind.CLIENTS, "All members after it, sorted.")]


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """What waited for a group in a topic's queues on a broker: once a second while it changes."""

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    at: Annotated[int, Column(ColumnKind.MOMENT, "When, by the broker's clock.")]
    broker: Annotated[str, Column(ColumnKind.TEXT, "The broker with the queues.")]
    topic: Annotated[str, Column(ColumnKind.TEXT, "The topic of the queues.")]
    waiting: Annotated[
        int, Column(ColumnKind.COUNT, "Messages that were not delivered to the group.")
    ]
    queues: Annotated[
        tuple[int, ...],
        Column(ColumnKind.COUNTS, "The same for each queue, starting with queue 0."),
    ]
    peak: Annotated[
        int,
        Column(ColumnKind.COUNT, "Most messages that waited together since the row before."),
    ]
    peak_at: Annotated[int, Column(ColumnKind.MOMENT, "When they did.")]


class MemberLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a member was delivered within a minute; nothing: no row."""

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    minute: Annotated[int, Column(ColumnKind.MOMENT, "When the minute began.")]
    client: Annotated[str, Column(ColumnKind.CLIENT, "The member.")]
    queues: Annotated[
        int, Column(ColumnKind.NUMBER, "Number of queues that it was delivered messages of.")
    ]
    delivered: Annotated[
        int, Column(ColumnKind.COUNT, "Messages delivered to it, including repeated ones.")
    ]


class Costs(NamedTuple):
    """Both tables of rebalances."""

    handoffs: list[Handoff]
    rebalances: list[Rebalance]


TableRow = GroupEvent | Handoff | Rebalance | MemberLoad | Lag


class TableSpec(NamedTuple):
    """A table of the ledger: its rows, and the column by whose time it is divided into days."""

    rows: type[TableRow]
    time: str


TABLES = {
    "events": TableSpec(GroupEvent, "at"),
    "handoffs": TableSpec(Handoff, "first_delivery_ms"),
    "rebalances": TableSpec(Rebalance, "started_at"),
    "balance": TableSpec(MemberLoad, "minute"),
    "lag": TableSpec(Lag, "at"),
}
"""All tables, by name."""
