"""The records that a broker collects for the rebalance ledger, until they are written.

Joins and leaves are urgent: they are written with the event that caused them. Deliveries and
commits are collected per group, queue and client and written once per interval, or earlier when
`PENDING_MAX` records wait. Reading the ledger's own topic is not recorded, because that would fill
it.

This module only collects: after each event the node asks whether records are `urgent` or due
(`due_at`), and if so writes what `take` returns. `ledger.events` explains the records.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.config import BrokerConfig
from steelyard.groups.remoting.registry import GroupChange, Registry
from steelyard.ledger import events as records
from steelyard.ledger.events import (
    LEDGER_TOPIC,
    STALLED_MS,
    Delivered,
    Record,
    joined,
    waited_ms,
)
from steelyard.nodes.broker.backlogs import Backlogs
from steelyard.nodes.broker.requests import Peer

PENDING_MAX = 10_000
"""Maximum of waiting records, open or closed; when it is reached, they are written early."""

RECORDS_PER_MESSAGE = 500

HANDED_MS_MAX = 3_600_000
"""Longest time ago that a member may claim to have passed a message to its application."""

READERS_MAX = 100_000
"""Queues, of all groups together, whose last reader is known; beyond that all are forgotten."""

Key = tuple[str, str, int]
"""Group, topic, queue id."""


class _Commit(msgspec.Struct):
    at: int
    offset: int
    client: str
    handed: int | None
    handed_at: int | None


class Ledger:
    """The records of a broker that are not written yet; see the module docstring."""

    def __init__(self, config: BrokerConfig, registry: Registry, backlogs: Backlogs) -> None:
        self._enabled = config.ledger
        self._interval_ms = config.ledger_interval_ms
        self.broker = config.name
        self._registry = registry
        self._backlogs = backlogs
        self._closed: list[Record] = []
        self._runs: dict[Key, Delivered] = {}
        """Per group and queue, the latest deliveries to one client, without a gap."""
        self._commits: dict[tuple[str, Key], _Commit] = {}
        """The latest commit, by the broker that has the queue, and the queue."""
        self._readers: dict[Key, str] = {}
        """Who last asked for a queue's messages."""
        self._is_stopping = False
        self.urgent = False
        self.due_at: int | None = None

    def client(self, group: str, peer: Peer) -> str:
        """Return the client id if a heartbeat has told it, otherwise the address."""
        member = self._registry.member(group, peer.link)
        return peer.address if member is None else member.client.client_id

    # -- noting ----------------------------------------------------------------------------------

    def started(self, now: int) -> None:
        self.note(records.BrokerStarted(at=now, broker=self.broker))

    def stopped(self, now: int) -> None:
        """Record that the broker stops: its members lose their connections, but give up nothing."""
        self._is_stopping = True
        self.note(records.BrokerStopped(at=now, broker=self.broker))

    def changed(self, change: GroupChange, now: int, flaps: int = 0) -> None:
        """Record that a member joined or left. `flaps`: see `events.MemberJoined`."""
        known = (now, self.broker, change.group, change.client_id, change.cause, change.members)
        if change.kind == "joined":
            self.note(records.MemberJoined(*known, change.topics, flaps))
        else:
            self.left(records.MemberLeft(*known, change.heard_at))

    def left(self, record: records.MemberLeft) -> None:
        """Record that a member left."""
        if not self._is_stopping:
            self._backlogs.left(record.group, record.client)
        self.note(record)

    def resumed(self, group: str, committed: Iterable[tuple[str, int, int]], now: int) -> None:
        """Note that a group reads queues: topic, queue and committed offset of each."""
        known = [each for each in committed if each[0] != LEDGER_TOPIC]
        if self._enabled and known:
            self._backlogs.resumed(group, known, now)
            self._gathered(now)

    def note(self, record: Record) -> None:
        """Have a record written with this event."""
        if self._enabled:
            self._closed.append(record)
            self.urgent = True

    def delivered(self, delivery: Delivered, asked: int, now: int) -> bool:
        """Record that a pull or fetch found messages; return whether this began a new record.

        `asked`: the offset that it named, which is less than `first` if its filter skipped some.
        """
        if not self._enabled or delivery.topic == LEDGER_TOPIC:
            return False
        key = (delivery.group, delivery.topic, delivery.queue)
        self._backlogs.delivered(delivery, asked, now)
        run = self._runs.get(key)
        if run is not None:
            if (
                run.client == delivery.client
                and run.next == asked
                and waited_ms(run, delivery) < STALLED_MS
            ):
                self._runs[key] = joined(run, delivery)
                return False
            self._closed.append(run)
        self._runs[key] = delivery
        self._gathered(now)
        return True

    def requested(self, group: str, topic: str, queue_id: int, peer: Peer, now: int) -> None:
        """Note that a member asks for messages of a queue, unless it was the last one to do so."""
        key, client = (group, topic, queue_id), self._reader(group, topic, peer)
        if client is None or self._readers.get(key) == client:
            return
        if len(self._readers) >= READERS_MAX:
            self._readers.clear()
        self._readers[key] = client
        self._closed.append(records.Requested(now, self.broker, group, client, topic, queue_id))
        self._gathered(now)

    def _reader(self, group: str, topic: str, peer: Peer) -> str | None:
        """Return the client id of a member whose reading is recorded, None for others."""
        member = self._registry.member(group, peer.link)
        if not self._enabled or topic == LEDGER_TOPIC or member is None:
            return None
        return member.client.client_id

    def handed_over(
        self, group: str, topic: str, queue_id: int, peer: Peer, ms: int, now: int
    ) -> None:
        """Record that a member passed the first message of a queue to its application `ms` ago."""
        client, at = self._reader(group, topic, peer), _ago(now, ms)
        if client is None or at is None:
            return
        self._closed.append(records.HandedOver(at, self.broker, group, client, topic, queue_id))
        self._gathered(now)

    def committed(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        peer: Peer,
        now: int,
        *,
        handed: int | None = None,
        handed_ms: int | None = None,
    ) -> None:
        """Record a commit by a peer.

        `handed`: see `events.Committed`; `handed_ms`: how long ago that was.
        """
        client, handed_at = self.client(group, peer), _ago(now, handed_ms)
        self.committed_by(
            group, topic, queue_id, offset, client, now, handed=handed, handed_at=handed_at
        )

    def committed_by(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        client: str,
        now: int,
        *,
        broker: str | None = None,
        handed: int | None = None,
        handed_at: int | None = None,
    ) -> None:
        """Record a commit by a client. `broker`: the one with the queue, if it may be another."""
        if not self._enabled or topic == LEDGER_TOPIC:
            return
        key = (group, topic, queue_id)
        broker = broker or self.broker
        if broker == self.broker:
            self._backlogs.committed(*key, offset, now, gives_up=handed is not None)
        before = self._commits.get((broker, key))
        if before is not None and before.client != client:
            self._closed.append(self._commit(broker, key, before))
        self._commits[broker, key] = _Commit(now, offset, client, handed, handed_at)
        self._gathered(now)

    def _gathered(self, now: int) -> None:
        if self.due_at is None:
            self.due_at = now + self._interval_ms
        if len(self._closed) + len(self._runs) + len(self._commits) >= PENDING_MAX:
            self.urgent = True

    # -- writing ---------------------------------------------------------------------------------

    def _commit(self, broker: str, key: Key, commit: _Commit) -> records.Committed:
        group, topic, queue_id = key
        return records.Committed(
            at=commit.at,
            broker=broker,
            group=group,
            topic=topic,
            queue=queue_id,
            offset=commit.offset,
            client=commit.client,
            handed=commit.handed,
            handed_at=commit.handed_at,
            writer="" if broker == self.broker else self.broker,
        )

    def take(self, now: int) -> list[bytes]:
        """Return all that was recorded, as message bodies; nothing is pending afterwards."""
        self._closed.extend(self._runs.values())
        for (broker, key), commit in self._commits.items():
            self._closed.append(self._commit(broker, key, commit))
        is_due = self.due_at is not None and self.due_at <= now
        if is_due:
            self._closed.extend(self._backlogs.take(now))
        noted = self._closed
        self._closed = []
        self._runs = {}
        self._commits = {}
        self.urgent = False
        if is_due:
            self.due_at = now + self._interval_ms if self._backlogs.is_watching else None
        return [
            records.encode(noted[start : start + RECORDS_PER_MESSAGE])
            for start in range(0, len(noted), RECORDS_PER_MESSAGE)
        ]

    def check(self) -> None:
        assert len(self._closed) + len(self._runs) + len(self._commits) <= PENDING_MAX + 1
        if self._runs or self._commits:
            assert self.due_at is not None
        if self._closed:
            assert self.urgent or self.due_at is not None


def _ago(now: int, ms: int | None) -> int | None:
    """Return when something was that a member says was `ms` ago, None if that cannot be."""
    return now - ms if ms is not None and 0 <= ms <= HANDED_MS_MAX else None
