"""Which events of a group start a rebalance: see `ledger.cost`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from steelyard.ledger.events import (
    BrokerStarted,
    BrokerStopped,
    MemberJoined,
    MemberLeft,
    RebalanceBegan,
    Record,
)

MERGE_MS = 1_000
"""Events this close to the start of a rebalance belong to it, e.g. members that start together."""

ROUTES = "routes"
BROKER_DIED = "broker_died"

MEMBERS_TELL = frozenset(("joined", "left", "expired", "subscription", "static", "revoked"))
"""Triggers of Kafka rebalances that need no event of their own.

Records of members report them, or they are the second round of a cooperative rebalance.
"""

QUERY_CLIENT = "spark@"
"""What client ids of Spark queries begin with, before the number of the process.

A query joins its group for a moment, so that brokers know it.
"""
_QUERY = re.compile(rf"{QUERY_CLIENT}\d+")

DEATHS = frozenset(("closed", "expired"))
"""Causes of leaving of members that had no time to commit."""

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


class Event(msgspec.Struct, frozen=True, array_like=True):
    """`client` joined or left and `others` stayed; both are empty for an event of `broker`.

    `at`: when it was recorded; `began`: when it happened.
    """

    at: int
    trigger: str
    words: str
    began: int
    client: str = ""
    others: frozenset[str] = frozenset()
    broker: str = ""


class Start(msgspec.Struct, array_like=True):
    """The start of a rebalance.

    `began`: with the last sign of life of who died, else with its first event; `known`: when that
    was recorded, None if it was not; `since`: deliveries from then on belong to it, until the next
    rebalance. That is `began`, but for a rebalance that began while the one before it went on.
    `merged_to`: events up to then belong to it; None if no event is known.
    """

    began: int
    known: int | None
    since: int
    trigger: str
    before: frozenset[str]
    after: frozenset[str]
    reasons: list[str] = msgspec.field(default_factory=list)
    merged_to: int | None = None


class Life(msgspec.Struct, array_like=True):
    """Who lives, as far as a group's records tell: its brokers, and the clients that read."""

    stopped: set[str] = set()
    """Brokers that stopped cleanly and did not start again."""
    brokers: dict[str, int] = {}
    """When each broker last recorded something."""
    clients: dict[str, int] = {}
    """When each client was last delivered something, or committed."""

    def heard(self, broker: str, at: int) -> None:
        """Note that a broker recorded something."""
        self.brokers[broker] = at

    def heard_of(self, client: str, at: int) -> None:
        """Note that a client was delivered something, or committed."""
        if at > self.clients.get(client, 0):
            self.clients[client] = at

    def started(self, record: BrokerStarted) -> int | None:
        """Note a start; if the broker had died before, return when it last recorded something."""
        broker = record.broker
        last = self.brokers.get(broker) if broker not in self.stopped else None
        died = None if last is None else min(last, record.at)
        self.stopped.discard(broker)
        self.heard(broker, record.at)
        return died

    def has_stopped(self, record: BrokerStopped) -> None:
        """Note a clean stop."""
        self.stopped.add(record.broker)
        self.heard(record.broker, record.at)

    def left(self, record: MemberLeft) -> Event | None:
        """Return the event; None if the broker, which stops, loses its members."""
        if record.broker in self.stopped:  # they are still members elsewhere
            return None
        began = record.at
        if record.cause == "expired":
            heard = max(record.heard or 0, self.clients.get(record.client, 0))
            began = min(heard or began, began)
        words = LEFT_WORDS.get(record.cause, "{client} left")
        return _of_member(record, f"left ({record.cause})", words, began)


def of_broker(broker: str, at: int, trigger: str) -> Event:
    """Return the event of a broker that started, stopped or died."""
    return Event(at, trigger, f"{broker} {trigger.removeprefix('broker_')}", at, broker=broker)


def of_join(record: MemberJoined) -> Event:
    """Return the event of a member that joined or changed its topics."""
    trigger = "subscription" if record.cause == "subscription" else "joined"
    words = JOINED_WORDS.get(record.cause, "{client} joined")
    return _of_member(record, trigger, words, record.at)


def of_generation(record: RebalanceBegan) -> Event | None:
    """Return the event of a coordinator, None if records of members tell it."""
    if record.trigger in MEMBERS_TELL:
        return None
    others = frozenset(record.members)
    return Event(record.at, record.trigger, record.cause, record.at, "", others)


def _of_member(record: MemberJoined | MemberLeft, trigger: str, words: str, began: int) -> Event:
    said = words.format(client=record.client, silent_s=(record.at - began) / 1000)
    others = frozenset(record.members) - {record.client}
    return Event(record.at, trigger, said, began, record.client, others)


def members_ever(records: Iterable[Record]) -> set[str]:
    """Return every client that the records name as a member; any other client is a stranger."""
    members: set[str] = set()
    for record in records:
        if isinstance(record, MemberJoined | MemberLeft):
            members.update(record.members, (record.client,))
    return members


class MembersSoFar(msgspec.Struct, array_like=True):
    """Where the search for starts is among the events.

    `present`: the members known so far. `newest`: when the newest rebalance was known.
    """

    present: frozenset[str] = frozenset()
    newest: int | None = None

    def find_starts(self, events: Sequence[Event]) -> list[Start]:
        """Return where rebalances start; go on behind the events.

        No members: no rebalance. Queries hold no queues, so they count only where others do.
        """
        starts: list[Start] = []
        taken_to: int | None = None
        """Until then deliveries belong to the rebalances before the newest one."""
        for event in events:
            before, after = _members(self.present, event)
            self.present = after
            if all(_QUERY.fullmatch(member) for member in before | after):
                continue
            if before == after and event.client and event.trigger != "subscription":
                continue
            if self.newest is None or event.at - self.newest > MERGE_MS:
                taken_to = None if self.newest is None else self.newest + MERGE_MS
                self.newest = event.at
                starts.append(
                    Start(
                        began=event.began,
                        known=None if event.trigger == BROKER_DIED else event.at,
                        since=event.at,
                        trigger=event.trigger,
                        before=before,
                        after=after,
                        merged_to=event.at + MERGE_MS,
                    )
                )
            if starts:  # else it belongs to one of the events before these
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
