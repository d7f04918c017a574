"""The parts of the Kafka listener, put together for the broker's node.

Each part is a module of this package that serves the API keys named in its first line. A part with something to do later
has `next_at` and `due(now, effects)`; one timer of the node serves them all.
"""

from __future__ import annotations

from typing import Protocol

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.errors import StorageError
from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.groups import Groups
from steelyard.groups.kafka.transactions import Transactions
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka import KAFKA_TIMER
from steelyard.nodes.broker.kafka.cluster.catalogue import Catalogue
from steelyard.nodes.broker.kafka.cluster.changes import Delete
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.data.delete_records import DeleteRecords
from steelyard.nodes.broker.kafka.data.describe_producers import DescribeProducers
from steelyard.nodes.broker.kafka.data.fetch import Fetches
from steelyard.nodes.broker.kafka.data.fetch_parked import ParkedFetches
from steelyard.nodes.broker.kafka.data.fetch_sessions import Sessions
from steelyard.nodes.broker.kafka.data.leader_epochs import LeaderEpochs
from steelyard.nodes.broker.kafka.data.list_offsets import ListOffsets
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.data.produce import Produce
from steelyard.nodes.broker.kafka.data.producers import Producers
from steelyard.nodes.broker.kafka.groups.announcing import Announcing
from steelyard.nodes.broker.kafka.groups.consumer_groups import ConsumerGroupCalls
from steelyard.nodes.broker.kafka.groups.groups import GroupRequests
from steelyard.nodes.broker.kafka.groups.handover import Handover
from steelyard.nodes.broker.kafka.groups.notes import Notes
from steelyard.nodes.broker.kafka.groups.offsets import GroupOffsets
from steelyard.nodes.broker.kafka.groups.readers import Readers
from steelyard.nodes.broker.kafka.groups.reports import Reports
from steelyard.nodes.broker.kafka.requests.channel import Handler, RequestChannel, size_of
from steelyard.nodes.broker.kafka.topology import Topology
from steelyard.nodes.broker.kafka.transactions.markers import Markers
from steelyard.nodes.broker.kafka.transactions.marking import Markings
from steelyard.nodes.broker.kafka.transactions.offsets import TxnOffsets
from steelyard.nodes.broker.kafka.transactions.producer_ids import ProducerIds
from steelyard.nodes.broker.kafka.transactions.transactions import TransactionRequests
from steelyard.nodes.broker.ledger import Ledger
from steelyard.nodes.broker.peers.registration import Purpose, Registration
from steelyard.nodes.broker.peers.requests import HANDOVER, READERS, PeerRequests
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.broker.topics import Topics
from steelyard.nodes.broker.turns import Turns
from steelyard.nodes.broker.writer import Writer
from steelyard.nodes.calls.remoting import Calls, Outcome
from steelyard.nodes.seam import Answer, Closed, Effect, Hang, Link, Opened, Refused, SetTimer
from steelyard.store.store import Store
from steelyard.types import Random
from steelyard.wire.kafka.frame import RawReply, Request
from steelyard.wire.remoting.codes import SteelyardCode

EARLY_MAX = 10_000
"""Most requests that wait until the broker has had its first look at the cluster."""
EARLY_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of them."""


class Timed(Protocol):
    """A part with something to do at `next_at`, None for nothing."""

    @property
    def next_at(self) -> int | None: ...

    def due(self, now: int, effects: list[Effect]) -> None:
        """Do what is due; `next_at` is later than `now` afterwards."""


class KafkaService:
    """See the module's text."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        topics: Topics,
        writer: Writer,
        durability: Durability,
        ledger: Ledger,
        calls: Calls[Purpose],
        registration: Registration,
        delete: Delete,
        turns: Turns,
        rng: Random,
        now: int,
    ) -> None:
        assert config.kafka is not None
        self.cluster = Cluster(config, topics, Catalogue(store), rng)
        self._timed: list[Timed] = []
        self._timer_at: int | None = None
        self._handlers: dict[int, Handler] = {}
        self.channel = RequestChannel(self._handlers, turns)
        self.topology = Topology(
            config, self.cluster, store, calls, registration, delete, durability, now
        )
        self._handlers.update(self.topology.handlers)
        self.remoting_handlers = dict(self.topology.remoting_handlers)
        """Of requests at the RocketMQ listener, by code."""
        self._timed.append(self.topology)
        self._early: list[tuple[Link, Request]] = []
        self._early_bytes = 0
        self._waiting: list[int] = []
        self.faults = Faults()
        self.groups = Groups()
        self.readers = Readers(self.cluster)
        self.remoting_handlers[READERS] = self.readers.take
        self.announcing = Announcing(self.cluster, self.groups, PeerRequests(calls))
        self._timed.append(self.announcing)
        self._add_groups(config.kafka, store, durability, ledger, rng, now)
        self._add_data(config, config.kafka, store, topics, writer, durability, turns, rng, now)
        self._add_transactions(config.kafka, store, durability, PeerRequests(calls), now)
        self.cluster.deleted.append(self._topic_deleted)

    def _add_data(
        self,
        config: BrokerConfig,
        kafka: KafkaConfig,
        store: Store,
        topics: Topics,
        writer: Writer,
        durability: Durability,
        turns: Turns,
        rng: Random,
        now: int,
    ) -> None:
        """What writes and reads records."""
        self.producers = Producers(store, durability, kafka.producer_id_expiration_ms, now)
        table = store.table("kafka_producer_ids")
        self.producer_ids = ProducerIds(kafka.node_id, table, durability, self.faults)
        self.markers = Markers(self.producers, store, writer, self.faults)
        places = Partitions(self.cluster, topics, store)
        produce = Produce(places, self.producers, store, writer, durability, self.faults)
        self.fetches = Fetches(
            places,
            self.producers,
            store,
            durability,
            Sessions(kafka.max_incremental_fetch_session_cache_slots, rng),
            ParkedFetches(config.hold_waiting_max),
            writer.statistics,
            self.faults,
            self.notes,
            turns,
        )
        writer.watchers.append(self.fetches.wake)
        self._timed += [self.producers, self.fetches]
        self._handlers[0] = produce.produce
        self._handlers[1] = self.fetches.fetch
        self._handlers[2] = ListOffsets(
            places, self.producers, durability, self.faults
        ).list_offsets
        self._handlers[21] = DeleteRecords(places, durability, self.faults).delete
        self._handlers[23] = LeaderEpochs(places, durability).end_offsets
        self._handlers[61] = DescribeProducers(places, self.producers, self.faults).describe

    def _add_groups(
        self,
        config: KafkaConfig,
        store: Store,
        durability: Durability,
        ledger: Ledger,
        rng: Random,
        now: int,
    ) -> None:
        cluster = self.cluster
        tables = (store.table("kafka_groups"), store.table("kafka_offsets"))
        self.coordinator = Coordinator(config, self.groups, cluster, *tables, rng, now)
        offsets = self.coordinator.offsets
        self.notes = Notes(ledger, cluster, self.groups, offsets, self.readers)
        requests = GroupRequests(self.coordinator, cluster, durability, self.notes)
        self.group_offsets = GroupOffsets(self.coordinator, cluster, durability, requests)
        self._timed.append(requests)
        self._handlers[8] = self.group_offsets.commit
        self._handlers[9] = self.group_offsets.fetch
        self._handlers[11] = requests.join
        self._handlers[12] = requests.heartbeat
        self._handlers[13] = requests.leave
        self._handlers[14] = requests.sync
        self._handlers[15] = requests.describe
        self._handlers[16] = requests.list_groups
        self._handlers[42] = requests.delete
        self._handlers[47] = self.group_offsets.delete
        self.group_requests = requests
        table = store.table("kafka_consumer_groups")
        self.consumer_groups = ConsumerGroups(config, cluster, self.groups, table, rng)
        self.consumer_groups.load(now)
        calls = ConsumerGroupCalls(
            self.consumer_groups, cluster, durability, requests.settle, self.faults
        )
        self._timed.append(calls)
        reports = Reports(cluster, self.groups, self.coordinator, self.consumer_groups)
        self.remoting_handlers[SteelyardCode.KAFKA_GROUPS] = reports.requested
        self._handlers[68] = calls.heartbeat
        self._handlers[69] = calls.describe

    def _add_transactions(
        self,
        config: KafkaConfig,
        store: Store,
        durability: Durability,
        peer_requests: PeerRequests,
        now: int,
    ) -> None:
        table = store.table("kafka_transactions")
        transactions = Transactions(config, table, self.producer_ids.next_producer_id, now)
        offsets = TxnOffsets(self.group_offsets, durability, self.faults)
        requests = TransactionRequests(
            transactions,
            self.producer_ids,
            self.cluster,
            config.offsets_topic_num_partitions,
            durability,
            self.faults,
        )
        self.markings = Markings(
            transactions, self.cluster, self.markers.write, offsets.end, durability, self.faults
        )
        self._timed.append(self.markings)
        moving = self.coordinator.moving
        self.handover = Handover(self.cluster, moving, transactions, peer_requests, self.faults)
        self.remoting_handlers[HANDOVER] = self.handover.requested
        self._timed.append(self.handover)
        self._handlers[22] = requests.init_producer_id
        self._handlers[24] = requests.add_partitions
        self._handlers[25] = requests.add_offsets
        self._handlers[26] = requests.end
        self._handlers[27] = self.markings.write
        self._handlers[28] = offsets.commit
        self._handlers[65] = requests.describe
        self._handlers[66] = requests.list_all

    # -- events ----------------------------------------------------------------------------------

    def dialed(self, event: Opened, now: int, effects: list[Effect]) -> None:
        """A link to another broker is there."""
        self.markings.opened(event, now, effects)

    def refused(self, event: Refused, now: int, effects: list[Effect]) -> None:
        """Nobody at an address; maybe one of those that this side dialed."""
        self.markings.refused(event, now, effects)

    def opened(self, peer: Peer) -> None:
        self.channel.opened(peer)

    def received(self, link: Link, message: object, now: int, effects: list[Effect]) -> None:
        """A client's request, or another broker's response."""
        if isinstance(message, RawReply):
            self.markings.answered(link, message, now, effects)
            return
        assert isinstance(message, Request)
        if self.cluster.is_ready:
            self.channel.received(link, message, now, effects)
            return
        size = self._early_bytes + size_of(message)
        if len(self._early) >= EARLY_MAX or size > EARLY_BYTES_MAX:
            effects.append(Hang(link, "too many requests wait for the broker to start"))
            return
        self._early_bytes = size
        self._early.append((link, message))

    def failed(self, link: Link, message: object, effects: list[Effect]) -> None:
        """A bug ended the handling of a message."""
        if isinstance(message, Request):
            self.channel.failed(link, message, effects)

    def ended(self, outcome: Outcome[Purpose], now: int, effects: list[Effect]) -> None:
        """A call to a nameserver or to another broker ended."""
        for part in (self.announcing, self.handover):
            if part.ended(outcome, now, effects):
                return
        self.topology.ended(outcome, now, effects)

    def _topic_deleted(self, topic: str, now: int, effects: list[Effect]) -> None:
        try:
            self.group_offsets.topic_deleted(topic)
        except StorageError as error:
            self.faults.tell(f"offsets of topic {topic} are left over: {error}", now, effects)

    def await_ready(self, call_id: int, effects: list[Effect]) -> None:
        """Answer an `Asked` when Kafka clients are served."""
        if self.cluster.is_ready:
            effects.append(Answer(call_id, None))
        else:
            self._waiting.append(call_id)

    def _serve_early(self, now: int, effects: list[Effect]) -> None:
        """The first look at the cluster is done: serve those who came before."""
        effects.extend(Answer(call_id, None) for call_id in self._waiting)
        early, self._early, self._waiting = self._early, [], []
        self._early_bytes = 0
        for link, request in early:
            self.topology.follow(now, effects)
            self.received(link, request, now, effects)

    def closed(self, event: Closed, now: int, effects: list[Effect]) -> bool:
        """A link is gone; False where it was none of a Kafka client."""
        link = event.link
        self.markings.closed(event, now, effects)
        self.fetches.closed(link)
        self.notes.closed(link)
        return self.channel.closed(link)

    def due(self, now: int, effects: list[Effect]) -> None:
        """The timer came."""
        self._timer_at = None
        for part in self._timed:
            if part.next_at is not None and part.next_at <= now:
                part.due(now, effects)

    def follow_up(self, now: int, effects: list[Effect]) -> None:
        """After each event: see what became of the topics; set the timer where something is due earlier than it."""
        if self.cluster.is_ready and (self._early or self._waiting):
            self._serve_early(now, effects)
        self.topology.follow(now, effects)
        self.faults.report(now, effects)
        self.markings.follow_up(now, effects)
        self.readers.follow()
        self.handover.follow(now)
        self.announcing.follow(now, effects)
        timer_at = self._timer_at
        for part in self._timed:
            next_at = part.next_at
            if next_at is not None and (timer_at is None or next_at < timer_at):
                timer_at = next_at
        if timer_at is not None and timer_at != self._timer_at:
            self._timer_at = timer_at
            effects.append(SetTimer(KAFKA_TIMER, timer_at))

    def check(self) -> None:
        """Assert the invariants of all parts."""
        self.channel.check()
        self.coordinator.check()
        self.consumer_groups.check()
        self.fetches.check()
        self.producers.check()
        self.markings.check()
        self.topology.check()
        self.readers.check()
        self.announcing.check()
