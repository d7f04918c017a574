"""The parts that serve classic, consumer and streams groups, composed for the Kafka listener."""

from __future__ import annotations

from steelyard.groups.kafka.consumer.groups import ConsumerGroups
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.groups import CoordinatedGroups
from steelyard.groups.kafka.streams.groups import StreamsGroups
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.group_settings import GroupSettings
from steelyard.nodes.broker.kafka.groups.announcing import Announcing
from steelyard.nodes.broker.kafka.groups.consumer_groups import ConsumerGroupCalls
from steelyard.nodes.broker.kafka.groups.groups import GroupRequests
from steelyard.nodes.broker.kafka.groups.internal_topics import InternalTopics
from steelyard.nodes.broker.kafka.groups.notes import Notes
from steelyard.nodes.broker.kafka.groups.offsets import GroupOffsets
from steelyard.nodes.broker.kafka.groups.readers import Readers
from steelyard.nodes.broker.kafka.groups.reports import Reports
from steelyard.nodes.broker.kafka.groups.streams_groups import StreamsGroupCalls
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.peers.requests import PeerRequests
from steelyard.nodes.seam import Effect, Link


class GroupService:
    """The groups that a broker coordinates, and what the ledger records of them."""

    def __init__(
        self,
        parts: Parts,
        cluster: Cluster,
        groups: CoordinatedGroups,
        settings: GroupSettings,
        internal_topics: InternalTopics,
        peer_requests: PeerRequests,
        faults: Faults,
        now: int,
    ) -> None:
        config, store, durability = parts.config.kafka, parts.store, parts.durability
        assert config is not None
        delayed_answers, clock = parts.config.delayed_answers, parts.pulse.clock
        self.readers = Readers(cluster)
        self.announcing = Announcing(cluster, groups, peer_requests)
        self.coordinator = Coordinator(
            config,
            groups,
            cluster,
            store.table("kafka_groups"),
            store.table("kafka_offsets"),
            parts.rng,
            now,
            delayed_answers=delayed_answers,
            clock=clock,
        )
        self.notes = Notes(parts.ledger, cluster, groups, self.coordinator.offsets, self.readers)
        consumer_groups = ConsumerGroups(
            config,
            cluster,
            groups,
            store.table("kafka_consumer_groups"),
            parts.rng,
            self.coordinator,
            delayed_answers=delayed_answers,
            clock=clock,
            times=settings.consumer,
        )
        consumer_groups.load(now)
        streams_groups = StreamsGroups(
            config,
            cluster,
            groups,
            store.table("kafka_streams_groups"),
            delayed_answers=delayed_answers,
            clock=clock,
            settings=settings.streams,
        )
        streams_groups.load(now)
        self.requests = GroupRequests(
            self.coordinator, consumer_groups, cluster, durability, self.notes, faults
        )
        self.offsets = GroupOffsets(self.coordinator, cluster, durability, self.requests)
        self.notes.resume(now)
        self._consumer = ConsumerGroupCalls(
            consumer_groups, cluster, durability, self.requests.settle, faults
        )
        self._streams = StreamsGroupCalls(
            streams_groups,
            internal_topics,
            settings.streams,
            cluster,
            durability,
            self.requests.settle,
            faults,
        )
        self.serving = (self.requests, self.offsets, self._consumer, self._streams)
        """Parts that serve requests of Kafka clients."""
        self.timed = (self.announcing, self.requests, self._consumer, self._streams)
        """Parts with something to do later."""
        self.asked = (self.readers, Reports(cluster, groups, self.coordinator))
        """Parts that serve requests at the RocketMQ listener."""

    def release(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Answer what waits on a link, on which another request came."""
        self.requests.release(link, now, effects)
        self._consumer.release(link, now, effects)
        self._streams.release(link, now, effects)

    def closed(self, link: Link, now: int, effects: list[Effect]) -> None:
        """Forget a closed link."""
        self.notes.closed(link)
        self.requests.closed(link, now, effects)
        self._consumer.closed(link, now, effects)
        self._streams.closed(link, now, effects)

    def follow(self, now: int, effects: list[Effect]) -> None:
        """Take in what changed in the cluster and in groups; called after each event."""
        self.readers.follow()
        self.requests.follow(now, effects)
        self._consumer.follow(now)
        self._streams.follow(now)
        self.announcing.follow(now, effects)

    def check(self) -> None:
        """Assert the invariants."""
        self.coordinator.check()
        self._consumer.check()
        self._streams.check()
        self.readers.check()
        self.announcing.check()
