"""The tables of an incident report, declared with their columns.

Columns with the names of those of the ledger (`ledger.tables`) mean the same. What no record of an
Apache cluster tells is missing: deliveries, and so what was delivered again.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from steelyard.ledger.columns import Column, ColumnKind

HIGH, MEDIUM, LOW = "high", "medium", "low"
ASSIGNED, RELEASED = "assigned", "released"
"""Kinds of hand-offs besides those of the ledger: of a queue without an owner before, or after."""


class IncidentRebalance(msgspec.Struct, frozen=True, kw_only=True):
    """One rebalance of one group."""

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.", "group")]
    rebalance: Annotated[str, Column(ColumnKind.TEXT, "`group/ms since the epoch`, unique.")]
    generation: Annotated[
        int,
        Column(
            ColumnKind.NUMBER, "Generation, or epoch of the group, that it led to.", "generation"
        ),
    ]
    started_at: Annotated[
        int,
        Column(
            ColumnKind.MOMENT,
            "When it began: with the last sign of life of a member that died, else with the event"
            " that the coordinator noted.",
            "began",
        ),
    ]
    started_error_ms: Annotated[
        int, Column(ColumnKind.DURATION_MS, "It began at most so much earlier or later.")
    ]
    reason: Annotated[
        str, Column(ColumnKind.TEXT, "What happened, in words; several events by `;`.", "reason")
    ]
    trigger: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "The first event as a code: `joined`, `left (unregistered)`, `left (expired)`,"
            " `left (poll timeout)`, `static`, `coordinator`, `subscription`, `topics`, or"
            " `unknown`.",
            "trigger",
        ),
    ]
    confidence: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "Of the trigger: `high` if a record or a log line says it, `medium` if it follows from"
            " how long members were silent, `low` if it is the likeliest only.",
            "confidence",
        ),
    ]
    members_before: Annotated[
        tuple[str, ...], Column(ColumnKind.CLIENTS, "The members before, sorted.", "before")
    ]
    members_after: Annotated[
        tuple[str, ...], Column(ColumnKind.CLIENTS, "The members afterwards, sorted.", "after")
    ]
    detect_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time from its beginning until the coordinator knew; null if that is not recorded.",
        ),
    ]
    rebalance_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time from then until every member had its share; null if that is not recorded.",
            "rebalance",
        ),
    ]
    queues_moved: Annotated[
        int,
        Column(
            ColumnKind.NUMBER,
            "Number of partitions that changed hands: those that had an owner, and have another.",
            "moved",
        ),
    ]
    queues_stalled: Annotated[
        int | None,
        Column(
            ColumnKind.NUMBER,
            "Number of partitions that kept their owner but stood still; null for RocketMQ.",
            "stalled",
        ),
    ]
    pause_max_ms: Annotated[
        int | None,
        Column(ColumnKind.DURATION_MS, "Longest pause of both; null if unknown.", "pause max"),
    ]
    pause_error_ms: Annotated[
        int | None, Column(ColumnKind.DURATION_MS, "The longest pause is so much off at most.", "±")
    ]


class IncidentHandoff(msgspec.Struct, frozen=True, kw_only=True):
    """A partition in a rebalance: it moved, stood still, or had no owner before or afterwards."""

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.")]
    topic: Annotated[str, Column(ColumnKind.TEXT, "The topic.", "topic")]
    broker: Annotated[
        str, Column(ColumnKind.TEXT, "The broker of a RocketMQ queue; empty for Kafka.")
    ]
    queue: Annotated[
        int, Column(ColumnKind.NUMBER, "The partition, or the queue on its broker.", "queue")
    ]
    kind: Annotated[
        str,
        Column(
            ColumnKind.TEXT,
            "`moved`: from one member to another; `stalled`: the same member had it before and"
            " after, but between two of its commits it was at least three times as long as usually;"
            " `assigned`: it never had an owner before; `released`: nobody has it afterwards.",
            "what",
        ),
    ]
    from_client: Annotated[
        str,
        Column(
            ColumnKind.CLIENT,
            "The old owner, or the last one if nobody had it since; empty if there was none.",
            "from",
        ),
    ]
    to_client: Annotated[
        str, Column(ColumnKind.CLIENT, "The new owner; empty if there is none.", "to")
    ]
    moved_at: Annotated[
        int,
        Column(
            ColumnKind.MOMENT_MS,
            "When the new owner could begin to read; of a partition that did not move: when the"
            " rebalance ended.",
            "moved",
        ),
    ]
    last_commit_ms: Annotated[
        int | None, Column(ColumnKind.MOMENT_MS, "Last commit before the pause with a new offset.")
    ]
    first_commit_ms: Annotated[
        int | None, Column(ColumnKind.MOMENT_MS, "First commit afterwards with a new offset.")
    ]
    pause_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "Time between the last message that the old owner processed and the first that the new"
            " one did, as commits show it; null if nothing was committed before or afterwards.",
            "pause",
        ),
    ]
    pause_error_ms: Annotated[
        int | None,
        Column(
            ColumnKind.DURATION_MS,
            "The pause is so much shorter or longer at most; it follows from the usual time"
            " between two commits.",
            "±",
        ),
    ]
    rebalance: Annotated[
        str, Column(ColumnKind.TEXT, "The rebalance to which it belongs, as in `rebalances`.")
    ]


class IncidentLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group was behind when its log ends were read."""

    group: Annotated[str, Column(ColumnKind.TEXT, "The consumer group.", "group")]
    topic: Annotated[str, Column(ColumnKind.TEXT, "The topic.", "topic")]
    queue: Annotated[int, Column(ColumnKind.NUMBER, "The partition.", "queue")]
    committed: Annotated[int, Column(ColumnKind.OFFSET, "The committed offset.", "committed")]
    committed_at: Annotated[int, Column(ColumnKind.MOMENT_MS, "When it was committed.", "at")]
    log_end: Annotated[int, Column(ColumnKind.OFFSET, "The offset after the last message.", "end")]
    lag: Annotated[int, Column(ColumnKind.COUNT, "Messages in between.", "lag")]


class QueueHolding(NamedTuple):
    """A member had a queue from `start` to `end`, in ms since the epoch."""

    topic: str
    broker: str
    queue: int
    client: str
    start: int
    end: int


class IncidentCosts(NamedTuple):
    """The rows of a group, sorted by time; `holdings`: who had which queue, sorted by queue."""

    rebalances: list[IncidentRebalance]
    handoffs: list[IncidentHandoff]
    holdings: list[QueueHolding]
