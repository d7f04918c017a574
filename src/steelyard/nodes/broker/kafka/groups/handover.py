"""Brings groups and transactions to the brokers that coordinate them after a merge (9006).

Two layouts of `__consumer_offsets` or `__transaction_state` that meet are merged into one
(`merging`); the superseded ones are noted in `KafkaTopic.merged`. A coordinator asks each broker of
those for what it kept. Until the coordinator has all of it, it answers COORDINATOR_LOAD_IN_PROGRESS
for the groups or transactional ids concerned, and clients wait: a group must not begin anew because
its offsets are elsewhere. A broker that is down is asked when it is back; an operator who knows
that it never returns leaves it out of the list of brokers (`KafkaConfig.brokers`).

The broker that is asked must know the valid layout, so that it accepts nothing more for these
groups. It forgets what the other one says it has. It ends decided transactions before it hands
their ids over.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from steelyard.errors import StorageError
from steelyard.groups.kafka.moving import MovedOffset, Moving
from steelyard.groups.kafka.transactional_ids import Transaction
from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, coordinator_partition
from steelyard.nodes.broker.kafka.cluster.topic import FIXED, OFFSETS_TOPIC
from steelyard.nodes.broker.peers.registration import PendingCall, Purpose
from steelyard.nodes.broker.peers.requests import HANDOVER, PeerRequests, read_body
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import Effect
from steelyard.routes.layout import write
from steelyard.types import LogLine
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

RETRY_MS = 500
"""Pause before a broker that is down, or does not know the layout yet, is asked again."""

OFFSETS_MAX = 10_000
"""Number of offsets at which an answer is full."""
TRANSACTIONS_MAX = 1_000
"""Most transactional ids in one answer."""


class HandoverRequest(msgspec.Struct, frozen=True):
    """Body of 9006. `layout`: the valid one; `has`: groups or ids that `broker` has taken over."""

    broker: str
    topic: str
    layout: str
    has: tuple[str, ...] = ()


class HandoverAnswer(msgspec.Struct, frozen=True):
    """The answer to 9006. `complete`: there is no more."""

    groups: dict[str, tuple[MovedOffset, ...]] = {}
    transactions: tuple[Transaction, ...] = ()
    complete: bool = False


class _Asked(PendingCall, frozen=True):
    """A request to a broker for what it keeps under superseded layouts of a topic."""

    topic: str
    broker: str


class CoordinatorHandover:
    """What is handed over to this broker, and by it; see the module docstring."""

    def __init__(
        self,
        cluster: Cluster,
        moving: Moving,
        transactions: TransactionCoordinator,
        peer_requests: PeerRequests,
        faults: Faults,
    ) -> None:
        self._cluster = cluster
        self._moving = moving
        self._transactions = transactions
        self._peer_requests = peer_requests
        self._faults = faults
        self._asked: set[tuple[str, str]] = set()
        """(topic, broker) with a request in progress."""
        self._version = -1
        self._counts: dict[tuple[str, str], int] = {}
        """How many groups or ids have been taken over."""
        self.next_at: int | None = None

    # -- asking ----------------------------------------------------------------------------------

    def follow(self, now: int) -> None:
        """Check after each event that changed topics whether to ask other brokers."""
        if self._cluster.version != self._version:
            self._version = self._cluster.version
            if self._pending():
                self.next_at = now

    def due(self, now: int, effects: list[Effect]) -> None:
        """Ask every live broker that keeps something for this one."""
        self.next_at = None
        for topic, broker in self._pending():
            self.next_at = now + RETRY_MS
            found = self._cluster.brokers.get(broker)
            if (topic, broker) not in self._asked and found is not None and found.live:
                self._ask(topic, broker, (), now, effects)

    def _pending(self) -> list[tuple[str, str]]:
        """Return (topic, broker) of all that keep something for this one, or may."""
        found: dict[tuple[str, str], None] = {}
        for name in FIXED:
            topic = self._cluster.topic(name)
            if topic is None or self._cluster.me.name not in topic.layout.queues():
                continue
            for layout in topic.merged:
                for broker in layout.queues():
                    if self._cluster.awaits_from(name, layout, broker):
                        found[name, broker] = None
        return list(found)

    def _ask(
        self, topic: str, broker: str, has: Iterable[str], now: int, effects: list[Effect]
    ) -> None:
        known = self._cluster.topic(topic)
        assert known is not None
        request = HandoverRequest(self._cluster.me.name, topic, write(known.layout), tuple(has))
        body = msgspec.json.encode(request)
        address = self._cluster.brokers[broker].remoting
        if self._peer_requests.ask(
            address, HANDOVER, _Asked(topic, broker), now, effects, body=body
        ):
            self._asked.add((topic, broker))

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> bool:
        """Handle the outcome of a call; return False if it is not one of these."""
        pending = outcome.purpose
        if not isinstance(pending, _Asked):
            return False
        self._asked.discard((pending.topic, pending.broker))
        answer = outcome.reply
        if not isinstance(answer, Command) or answer.code != ResponseCode.SUCCESS:
            return True  # asked again in a moment
        try:
            self._take(pending, read_body(answer.body, HandoverAnswer), now, effects)
        except StorageError as error:
            text = (
                f"the part of {pending.topic} on {pending.broker} could not be taken over yet:"
                f" {error}"
            )
            self._faults.tell(text, now, effects)
        return True

    def _take(
        self, pending: _Asked, answer: HandoverAnswer, now: int, effects: list[Effect]
    ) -> None:
        """Store what came, then have the other broker forget it. Raises StorageError."""
        topic, broker = pending.topic, pending.broker
        taken = [
            group for group, moved in answer.groups.items() if self._moving.take(group, moved, now)
        ]
        if len(taken) < len(answer.groups):
            text = f"there is no room for the groups of {broker}; they stay there"
            self._faults.tell(text, now, effects)
            return
        for transaction in answer.transactions:
            self._transactions.take(transaction)
            taken.append(transaction.transactional_id)
        count = self._counts[topic, broker] = self._counts.get((topic, broker), 0) + len(taken)
        if taken:
            self._ask(topic, broker, taken, now, effects)
            return
        if not answer.complete:
            return
        known = self._cluster.topic(topic)
        assert known is not None
        for layout in known.merged:
            if broker in layout.queues() and self._cluster.awaits_from(topic, layout, broker):
                self._cluster.catalogue.keep_handed_over(topic, write(layout), broker)
        what = "groups" if topic == OFFSETS_TOPIC else "transactional ids"
        text = f"{broker} has handed over its part of {topic}: {count} {what}"
        effects.append(LogLine("WARNING", text))

    # -- being asked -----------------------------------------------------------------------------

    @serves(HANDOVER)
    def requested(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Answer 9006. Raises ProtocolError and StorageError."""
        asked = read_body(request.body, HandoverRequest)
        topic = self._cluster.topic(asked.topic) if asked.topic in FIXED else None
        if topic is None or write(topic.layout) != asked.layout:
            remark = f"{self._cluster.me.name} does not know this layout of {asked.topic[:100]} yet"
            return request.reply(ResponseCode.SYSTEM_ERROR, remark)
        if asked.broker == self._cluster.me.name:
            return request.reply(ResponseCode.SYSTEM_ERROR, "that is this broker's own name")

        def concerns(key: str) -> bool:
            partition = coordinator_partition(key, topic.layout.partitions)
            return topic.layout.leaders()[partition][0] == asked.broker

        if asked.topic == OFFSETS_TOPIC:
            for group in filter(concerns, asked.has):
                self._moving.gave(group)
            groups = self._moving.offered(concerns, OFFSETS_MAX)
            answer = HandoverAnswer(groups=groups, complete=not groups)
        else:
            for transactional_id in filter(concerns, asked.has):
                self._transactions.gave(transactional_id)
            ids, undecided = self._transactions.offered(concerns, TRANSACTIONS_MAX)
            answer = HandoverAnswer(transactions=ids, complete=not ids and not undecided)
        return request.reply(body=msgspec.json.encode(answer))
