"""The parts of the Kafka listener, composed for the broker's node.

Each part is a module of this package, whose docstring names the API keys that it serves. A part
that has something to do later has `next_at` and `due(now, effects)`; one timer of the node serves
them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka import KAFKA_TIMER
from steelyard.nodes.broker.kafka.cluster.changes import Delete
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.config_spreading import ConfigSpreading
from steelyard.nodes.broker.kafka.cluster.group_settings import GroupSettings
from steelyard.nodes.broker.kafka.coordinator_logs import CoordinatorLogs
from steelyard.nodes.broker.kafka.data.delayed import DelayedRecords
from steelyard.nodes.broker.kafka.data.delete_records import DeleteRecords
from steelyard.nodes.broker.kafka.data.describe_producers import DescribeProducers
from steelyard.nodes.broker.kafka.data.fetch import Fetches
from steelyard.nodes.broker.kafka.data.fetch_sessions import Sessions
from steelyard.nodes.broker.kafka.data.leader_epochs import LeaderEpochs
from steelyard.nodes.broker.kafka.data.list_offsets import ListOffsets
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.figures import KafkaFigureHandlers
from steelyard.nodes.broker.kafka.groups.handover import CoordinatorHandover
from steelyard.nodes.broker.kafka.groups.internal_topics import InternalTopics
from steelyard.nodes.broker.kafka.groups.service import GroupService
from steelyard.nodes.broker.kafka.groups.share_groups import ShareGroupCalls
from steelyard.nodes.broker.kafka.operations.telemetry import Telemetry
from steelyard.nodes.broker.kafka.quotas.changes import QuotaChanges
from steelyard.nodes.broker.kafka.quotas.spreading import QuotaSpreading
from steelyard.nodes.broker.kafka.quotas.throttles import Throttles
from steelyard.nodes.broker.kafka.requests.channel import RequestChannel, size_of
from steelyard.nodes.broker.kafka.requests.feature_levels import FeatureLevels
from steelyard.nodes.broker.kafka.security import Security
from steelyard.nodes.broker.kafka.shares.group_deletion import GroupDeletion
from steelyard.nodes.broker.kafka.shares.service import ShareService
from steelyard.nodes.broker.kafka.topology import Topology
from steelyard.nodes.broker.kafka.transactions.service import TransactionService
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.registration import Purpose
from steelyard.nodes.broker.peers.requests import PeerRequests
from steelyard.nodes.broker.requests import Peer, served
from steelyard.nodes.broker.timers.timers import DelayedMessages
from steelyard.nodes.calls.remoting import Outcome
from steelyard.nodes.seam import (
    Answer,
    Closed,
    Effect,
    Hang,
    Link,
    Opened,
    Refused,
    SetTimer,
    earliest,
)
from steelyard.wire.kafka.frame import RawReply, Request, SaslToken
from steelyard.wire.remoting.bodies import DataVersion

FOLLOW_UP_MS = 5
"""Longest delay of the follow-up of RocketMQ clients' sends and pulls."""
EARLY_MAX = 10_000
"""Most requests that wait until the broker has first looked at the cluster."""
EARLY_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of these requests."""


class Timed(Protocol):
    """A part with something to do at `next_at`; None if there is nothing."""

    @property
    def next_at(self) -> int | None: ...

    def due(self, now: int, effects: list[Effect]) -> None:
        """Do what is due; afterwards `next_at` is later than `now`."""


class KafkaService:
    """The Kafka listener of a broker; see the module docstring."""

    def __init__(self, parts: Parts, timers: DelayedMessages, delete: Delete, now: int) -> None:
        """Create all parts. `delete` deletes a topic of this broker."""
        assert parts.config.kafka is not None
        config, store, durability = parts.config.kafka, parts.store, parts.durability
        self._timer_at: int | None = None
        self._topics = parts.topics
        self._followed_at = now
        self._followed_topics: DataVersion | None = None
        """When `follow_up` last ran, and which version of the topics it saw."""
        self._early: list[tuple[Link, Request | SaslToken]] = []
        self._early_bytes = 0
        self._waiting: list[int] = []
        self.faults = Faults()
        peer_requests = PeerRequests(parts.calls)
        cluster = self.cluster = Cluster(parts, self._broker_started, self._topic_deleted)
        config_spreading = ConfigSpreading(parts.configs, cluster, peer_requests, self.faults)
        group_settings = GroupSettings(config, parts.configs)
        features = self.features = FeatureLevels(parts.configs)
        self.topology = Topology(
            *(parts, cluster, peer_requests, delete, config_spreading, group_settings),
            features,
            now,
        )
        security = Security(parts, cluster, peer_requests, self.faults)
        self.logins, self._gate = security.logins, security.gate
        quota_spreading = QuotaSpreading(parts.quotas, cluster, peer_requests, self.faults)
        self._spreading = (*security.spreading, quota_spreading, config_spreading)

        groups = CoordinatedGroups()
        internal_topics = InternalTopics(
            cluster,
            self.topology.creating,
            self.topology.forwarding,
            security.may_create,
        )
        self.groups = GroupService(
            parts,
            cluster,
            groups,
            group_settings,
            internal_topics,
            peer_requests,
            self.faults,
            now,
        )
        self.throttles = Throttles(parts.quotas, self.logins.principal_of)

        self.producers = Producers(store, durability, config.producer_id_expiration_ms, now)
        self._delayed = DelayedRecords(
            parts, timers, self.producers, enabled=config.delayed_records
        )
        places = Partitions(cluster, parts.topics, store)
        sessions = Sessions(config.max_incremental_fetch_session_cache_slots, parts.rng)
        self.fetches = Fetches(
            parts,
            places,
            self.producers,
            sessions,
            self.faults,
            self.groups.notes,
            security.may_read,
        )
        self.shares = ShareService(
            parts,
            cluster,
            groups,
            group_settings,
            self.topology.forwarding,
            places,
            self.producers,
            self.faults,
            security.may_read,
            now,
        )
        self.share_group_calls = ShareGroupCalls(
            self.shares.groups, cluster, durability, self.groups.requests.settle, self.faults
        )

        self.transactions = TransactionService(
            parts,
            cluster,
            self.topology.forwarding,
            places,
            self.producers,
            self._delayed,
            self.groups.offsets,
            features,
            self.faults,
            now,
            is_private=config.is_protected or security.is_guarded,
        )
        self.markings = self.transactions.markings
        self.coordinator_logs = CoordinatorLogs(store, cluster, parts.writer, self.faults, features)
        moving = self.groups.coordinator.moving
        self.handover = CoordinatorHandover(
            *(cluster, moving, self.transactions.coordinator, peer_requests, self.faults)
        )
        serving = (
            *self.topology.serving,
            *security.serving,
            Telemetry(parts.rng),
            QuotaChanges(parts.quotas, quota_spreading, durability, self.faults),
            *self.groups.serving,
            self.share_group_calls,
            GroupDeletion(
                groups,
                self.groups.coordinator.listing,
                self.shares.offsets,
                cluster,
                durability,
            ),
            self.fetches,
            *self.shares.serving,
            *self.transactions.serving,
            ListOffsets(places, self.producers, durability, self.faults),
            DeleteRecords(places, durability, self.faults),
            LeaderEpochs(places, durability),
            DescribeProducers(places, self.producers, self.faults),
        )
        handlers = {**self.topology.controlled, **served(serving)}
        self.channel = RequestChannel(
            self.throttles.throttled(security.guarded(handlers)),
            parts.turns,
            self.groups.release,
            parts.statistics.kafka_requests,
            features,
        )
        figures = KafkaFigureHandlers(
            parts, cluster, groups, self.groups.coordinator.offsets, self.fetches
        )
        self.asked = (
            *self.topology.asked,
            *self.groups.asked,
            self.handover,
            self.transactions.together,
            figures,
            *self._spreading,
        )
        """Parts that serve requests at the RocketMQ listener."""
        self._timed: Sequence[Timed] = (
            self.topology,
            *self.groups.timed,
            self.share_group_calls,
            self.producers,
            self.fetches,
            self.shares.fetches,
            self.markings,
            self.transactions.additions,
            self.handover,
            self.coordinator_logs,
            self.logins,
            *self._spreading,
        )

    # -- events ----------------------------------------------------------------------------------

    def dialed(self, event: Opened, now: int, effects: list[Effect]) -> None:
        """Handle the opening of a link to another broker."""
        self.markings.opened(event, now, effects)

    def refused(self, event: Refused, now: int, effects: list[Effect]) -> None:
        """Handle a failed attempt to connect, possibly one of this listener's."""
        self.markings.refused(event, now, effects)

    def opened(self, peer: Peer, now: int) -> None:
        self.channel.opened(peer)
        if self._gate is not None:
            self._gate.opened(peer, now)

    def received(self, link: Link, message: object, now: int, effects: list[Effect]) -> None:
        """Handle a client's request, or another broker's response."""
        self.throttles.begin(now)
        if isinstance(message, RawReply):
            self.markings.answered(link, message, now, effects)
            return
        assert isinstance(message, Request | SaslToken)
        if self.cluster.is_ready:
            if self._gate is None or self._gate.admits(link, message, now, effects):
                assert isinstance(message, Request)
                self.channel.received(link, message, now, effects)
            return
        size = self._early_bytes
        size += size_of(message) if isinstance(message, Request) else len(message.data)
        if len(self._early) >= EARLY_MAX or size > EARLY_BYTES_MAX:
            effects.append(Hang(link, "too many requests wait for the broker to start"))
            return
        self._early_bytes = size
        self._early.append((link, message))

    def failed(self, link: Link, message: object, effects: list[Effect]) -> None:
        """Answer a request whose handling ended with a bug, if that is possible."""
        if isinstance(message, Request):
            self.channel.failed(link, message, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        """Handle the outcome of a call to a nameserver or to another broker."""
        self.throttles.begin(now)
        for part in (self.groups.announcing, self.handover, *self._spreading):
            if part.ended(outcome, now, effects):
                return
        self.topology.ended(outcome, now, effects)

    def _broker_started(self, name: str) -> None:
        self.groups.announcing.started(name)

    def _topic_deleted(self, topic: str, now: int, effects: list[Effect]) -> None:
        delete = partial(self.groups.offsets.topic_deleted, topic)
        self.cluster.postponed.do(f"offsets {topic}", delete)
        delete = partial(self.shares.topic_deleted, topic)
        self.cluster.postponed.do(f"shares {topic}", delete)

    def await_ready(self, call_id: int, effects: list[Effect]) -> None:
        """Answer an `Asked` once Kafka clients are served."""
        if self.cluster.is_ready:
            effects.append(Answer(call_id, None))
        else:
            self._waiting.append(call_id)

    def _serve_early(self, now: int, effects: list[Effect]) -> None:
        """Serve the requests that came before the broker had looked at the cluster."""
        effects.extend(Answer(call_id, None) for call_id in self._waiting)
        early, self._early, self._waiting = self._early, [], []
        self._early_bytes = 0
        for link, request in early:
            self.topology.follow(now, effects)
            self.received(link, request, now, effects)

    def closed(self, event: Closed, now: int, effects: list[Effect]) -> bool:
        """Forget a closed link; return whether it was a Kafka client's."""
        link = event.link
        self.markings.closed(event, now, effects)
        self.fetches.closed(link)
        self.shares.fetches.closed(link, now, effects)
        self.logins.closed(link)
        is_known = self.channel.closed(link)
        self.groups.closed(link, now, effects)
        return is_known

    def due(self, now: int, effects: list[Effect]) -> None:
        """Run the parts that are due, because the timer fired."""
        self._timer_at = None
        self.throttles.begin(now)
        for part in self._timed:
            if part.next_at is not None and part.next_at <= now:
                part.due(now, effects)

    def appended(self, topic: str, queue_id: int, now: int, effects: list[Effect]) -> None:
        """Wake the fetches that wait for something new in a queue."""
        for fetches in (self.fetches, self.shares.fetches):
            if fetches.wait_at(topic, queue_id):
                self.throttles.begin(now)
                fetches.wake(topic, queue_id, now, effects)
                self._set_timer(fetches.next_at, effects)

    def flushed(self, now: int, effects: list[Effect]) -> None:
        """Continue what was waiting for a flush."""
        self.throttles.begin(now)
        self.transactions.flushed(now, effects)
        self._delayed.flushed()

    def follow_up(self, now: int, effects: list[Effect]) -> None:
        """Take in changes of topics after each event, and set the timer if it must fire earlier."""
        self._followed_at = now
        self._followed_topics = self._topics.version
        if self.cluster.is_ready and (self._early or self._waiting):
            self._serve_early(now, effects)
        self.topology.follow(now, effects)
        self.faults.report(now, effects)
        self.markings.follow_up(now, effects)
        self.groups.follow(now, effects)
        self.handover.follow(now)
        self.coordinator_logs.follow_up(now)
        for spreading in self._spreading:
            spreading.follow(now)
        self.throttles.follow_up(effects)
        self._set_timer(earliest(*[part.next_at for part in self._timed]), effects)

    def follow_up_soon(self, now: int, effects: list[Effect]) -> None:
        """Do what `follow_up` does, within `FOLLOW_UP_MS`.

        Called after sends and pulls of RocketMQ clients, of which there are several in a
        millisecond. All that they change here are the topics, if they create one, and the fetches
        that they wake (`appended`), whose clients may be over their quotas then.
        """
        self.throttles.follow_up(effects)
        is_recent = 0 <= now - self._followed_at < FOLLOW_UP_MS
        if is_recent and self._followed_topics is self._topics.version:
            self._set_timer(self._followed_at + FOLLOW_UP_MS, effects)
        else:
            self.follow_up(now, effects)

    def _set_timer(self, at: int | None, effects: list[Effect]) -> None:
        """Set the timer, unless it fires before."""
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            effects.append(SetTimer(KAFKA_TIMER, at))

    def stop(self, now: int, effects: list[Effect]) -> None:
        """Write what is not written yet, before the broker stops. Raises StorageError."""
        self.coordinator_logs.stop(now, effects)

    def check(self) -> None:
        """Assert the invariants of all parts."""
        self.channel.check()
        self.groups.check()
        self.share_group_calls.check()
        self.fetches.check()
        self.shares.fetches.check()
        self.producers.check()
        self.transactions.check()
        self.topology.check()
        self.logins.check()
        for spreading in self._spreading:
            spreading.check()
        self.throttles.check()
