"""Which events of a group start a rebalance: see `ledger.cost`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from steelyard.ledger.events import (
    Backlog,
    BrokerStarted,
    BrokerStopped,
    Committed,
    Delivered,
    HandedOver,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    RebalanceEnded,
    Record,
    Requested,
)

MERGE_MS = 1_000
"""Events this close to the start of a rebalance belong to it, e.g. members that start together."""

ROUTES = "routes"
BROKER_DIED = "broker_died"

MEMBERS_TELL = frozenset(("joined", "left", "expired", "subscription", "static", "revoked"))
"""Triggers of Kafka rebalances that need no event of their own.

Records of members report them, or they are the second round of a cooperative rebalance.
"""

LEFT_WORDS = {
    "unregistered": "{client} left",
    "closed": "{client} died: its connection closed",
    "expired": "{client} died: no sign of life for {silent_s:.1f} s",
    "replaced": "{client} was replaced by a client with the same instance id",
}
JOINED_WORDS = {
    "subscription": "{client} changed its topics",
    "static": "{client} came back",
}


class Event(NamedTuple):
    """`client` joined or left and `others` stayed; both are empty for a broker's event.

    `at`: when it was recorded; `began`: when it happened.
    """

    at: int
    trigger: str
    words: str
    began: int
    client: str = ""
    others: frozenset[str] = frozenset()


class Start(msgspec.Struct):
    """The start of a rebalance.

    `began`: with the last sign of life of who died, else with its first event; `known`: when that
    was recorded, None if it was not; `since`: deliveries from then on belong to it, until the next
    rebalance. That is `began`, but for a rebalance that began while the one before it went on.
    """

    began: int
    known: int | None
    since: int
    trigger: str
    before: frozenset[str]
    after: frozenset[str]
    reasons: list[str] = msgspec.field(default_factory=list)


def members_ever(records: Iterable[Record]) -> set[str]:
    """Return every client that the records name as a member; any other client is a stranger."""
    members: set[str] = set()
    for record in records:
        if isinstance(record, MemberJoined | MemberLeft):
            members.update(record.members, (record.client,))
    return members


class Death(NamedTuple):
    """A broker started at `back_at` without having recorded a stop; `at`: its last record."""

    broker: str
    at: int
    back_at: int


def find_deaths(records: Iterable[Record]) -> list[Death]:
    """Return the deaths of brokers; `records` are sorted by time."""
    deaths: list[Death] = []
    alive: dict[str, int] = {}
    stopped: set[str] = set()
    for record in records:
        broker, at = record.broker, record.at
        if isinstance(record, BrokerStopped):
            stopped.add(broker)
        elif isinstance(record, BrokerStarted):
            if broker in alive and broker not in stopped:
                deaths.append(Death(broker, alive[broker], at))
            stopped.discard(broker)
        if not isinstance(record, Committed) or not record.writer:  # else another broker wrote it
            alive[broker] = record.until if isinstance(record, Delivered) else at
    return deaths


def find_events(
    records: Sequence[Record], deaths: Iterable[Death], read_from: set[str]
) -> list[Event]:
    """Return the group's events in order. `read_from`: the brokers that delivered to it."""
    events = [
        Event(death.at, BROKER_DIED, f"{death.broker} died", death.at)
        for death in deaths
        if death.broker in read_from
    ]
    stopped: set[str] = set()
    alive: dict[str, int] = defaultdict(int)
    for record in records:
        broker, at = record.broker, record.at
        match record:
            case BrokerStarted():
                if broker in read_from:
                    events.append(Event(at, "broker_started", f"{broker} started", at))
                stopped.discard(broker)
            case BrokerStopped():
                if broker in read_from:
                    events.append(Event(at, "broker_stopped", f"{broker} stopped", at))
                stopped.add(broker)
            case MemberJoined():
                trigger = "subscription" if record.cause == "subscription" else "joined"
                words = JOINED_WORDS.get(record.cause, "{client} joined")
                events.append(_of_member(record, trigger, words, at))
            case MemberLeft():
                # A broker that stops loses all members, but they are still members elsewhere.
                if broker not in stopped:
                    words = LEFT_WORDS.get(record.cause, "{client} left")
                    began = at
                    if record.cause == "expired":
                        heard = max(record.heard or 0, alive[record.client])
                        began = min(heard or at, at)
                    events.append(_of_member(record, f"left ({record.cause})", words, began))
            case RebalanceBegan():
                if record.trigger not in MEMBERS_TELL:
                    others = frozenset(record.members)
                    events.append(Event(at, record.trigger, record.cause, at, "", others))
            case Delivered():
                alive[record.client] = max(alive[record.client], record.until)
            case Committed():
                alive[record.client] = max(alive[record.client], at)
            case Requested() | HandedOver() | Backlog() | RebalanceEnded():
                pass
    events.sort(key=lambda event: event.at)
    return events


def _of_member(record: MemberJoined | MemberLeft, trigger: str, words: str, began: int) -> Event:
    said = words.format(client=record.client, silent_s=(record.at - began) / 1000)
    others = frozenset(record.members) - {record.client}
    return Event(record.at, trigger, said, began, record.client, others)


def find_starts(events: Sequence[Event]) -> list[Start]:
    """Return where rebalances start. A group without members has none."""
    present: frozenset[str] = frozenset()
    starts: list[Start] = []
    newest: int | None = None
    """When the newest rebalance was known."""
    taken_to: int | None = None
    """Until then deliveries belong to the rebalances before that one."""
    for event in events:
        before, after = _members(present, event)
        present = after
        if not before and not after:
            continue
        if before == after and event.client and event.trigger != "subscription":
            continue
        if newest is None or event.at - newest > MERGE_MS:
            taken_to = None if newest is None else newest + MERGE_MS
            newest = event.at
            starts.append(
                Start(
                    began=event.began,
                    known=None if event.trigger == BROKER_DIED else event.at,
                    since=event.at,
                    trigger=event.trigger,
                    before=before,
                    after=after,
                )
            )
        _add(starts[-1], event, after, taken_to)
    return starts


def _add(start: Start, event: Event, after: frozenset[str], taken_to: int | None) -> None:
    """Make an event part of the rebalance."""
    start.after = after
    start.began = min(start.began, event.began)
    if taken_to is None or event.began > taken_to:
        start.since = min(start.since, event.began)
    if event.words not in start.reasons:
        start.reasons.append(event.words)
    if start.trigger == BROKER_DIED and event.client:
        start.trigger = event.trigger
        start.known = event.at


def _members(present: frozenset[str], event: Event) -> tuple[frozenset[str], frozenset[str]]:
    """Return the members before and after an event. `present`: those known so far."""
    before = present | event.others
    if not event.trigger.startswith("left"):
        return before, before | ({event.client} if event.client else set())
    if not present:  # the ledger begins here: whoever leaves was a member
        before |= {event.client}
    return before, before - {event.client}
