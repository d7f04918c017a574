"""Records of group g and topic T, built with few words."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from steelyard.ledger.cost import rebalances
from steelyard.ledger.events import (
    Backlog,
    Committed,
    Delivered,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
    Requested,
)


def joined(
    at: int,
    client: str,
    members: Sequence[str],
    broker: str = "a",
    cause: str = "heartbeat",
    group: str = "g",
) -> MemberJoined:
    return MemberJoined(
        at=at, broker=broker, group=group, client=client, cause=cause, members=tuple(members)
    )


def left(
    at: int,
    client: str,
    members: Sequence[str],
    broker: str = "a",
    cause: str = "unregistered",
    heard: int | None = None,
) -> MemberLeft:
    return MemberLeft(
        at=at,
        broker=broker,
        group="g",
        client=client,
        cause=cause,
        members=tuple(members),
        heard=heard,
    )


def requested(at: int, client: str, queue: int = 0, broker: str = "a") -> Requested:
    return Requested(at=at, broker=broker, group="g", client=client, topic="T", queue=queue)


def got(
    at: int,
    client: str,
    first: int,
    following: int,
    *,
    until: int | None = None,
    stored: int | None = None,
    queue: int = 0,
    broker: str = "a",
    count: int | None = None,
    group: str = "g",
) -> Delivered:
    return Delivered(
        at=at,
        broker=broker,
        group=group,
        client=client,
        topic="T",
        queue=queue,
        until=at if until is None else until,
        first=first,
        next=following,
        count=following - first if count is None else count,
        stored=at if stored is None else stored,
    )


def said(
    at: int,
    client: str,
    offset: int,
    *,
    handed: int | None = None,
    handed_at: int | None = None,
    broker: str = "a",
) -> Committed:
    return Committed(
        at=at,
        broker=broker,
        group="g",
        topic="T",
        queue=0,
        offset=offset,
        client=client,
        handed=handed,
        handed_at=handed_at,
    )


def waits(
    at: int, *waiting: int, peak: int = 0, peak_at: int | None = None, broker: str = "a"
) -> Backlog:
    return Backlog(
        at=at,
        broker=broker,
        group="g",
        topic="T",
        waiting=waiting,
        peak=max(peak, sum(waiting)),
        peak_at=at if peak_at is None else peak_at,
    )


def began(at: int, trigger: str, members: str, generation: int = 1) -> RebalanceBegan:
    return RebalanceBegan(
        at=at,
        broker="a",
        group="g",
        generation=generation,
        trigger=trigger,
        cause="",
        members=tuple(members),
    )


def ended(at: int, members: str, generation: int = 2) -> RebalanceEnded:
    return RebalanceEnded(
        at=at,
        broker="a",
        group="g",
        generation=generation,
        protocol="range",
        duration_ms=0,
        members=tuple(members),
    )


def triggers(records: list[Record]) -> list[tuple[int, str, str, str]]:
    return [
        (row.started_at, row.trigger, "".join(row.members_before), "".join(row.members_after))
        for row in rebalances(records)
    ]


BOTH: list[Record] = [joined(0, "A", "A"), joined(100, "B", "AB"), joined(50, "A", "A", "b")]


READ: list[Record] = [got(200, "A", 0, 1), got(200, "B", 0, 1, broker="b")]


clients = st.sampled_from("ABC")
