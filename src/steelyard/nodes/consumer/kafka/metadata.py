"""The metadata of the cluster: its brokers, and the leader of each partition; refreshed regularly.

It is requested when an unknown topic is wanted, when a broker responds that it does not lead a
partition, and every `metadata_max_age_ms`. The known brokers are asked in turn, and once none of
them has responded, those of `bootstrap_servers`. Source: clients/Metadata.java,
MetadataRequest.java.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

import msgspec

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import SteelyardError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane
from steelyard.nodes.consumer.kafka.backoff import Backoff
from steelyard.nodes.seam import Address, Effect
from steelyard.types import LogLine, Random, TopicPartition
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from steelyard.wire.kafka.schema import NO_ID

DATA = "data"
"""The lane for everything except the group's requests."""

TELL_MS = 30_000
"""Interval between log lines while no broker responds."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""A pattern does not match these (exclude.internal.topics)."""


class MetadataAsked(msgspec.Struct, frozen=True):
    """Purpose of a Metadata request. `topics` None: all."""

    topics: frozenset[str] | None


class PartitionView(msgspec.Struct, frozen=True):
    """One partition. `leader`: node id, -1 for none at the moment."""

    leader: int
    leader_epoch: int


class Metadata:
    """The current view of the cluster, and when to refresh it."""

    def __init__(
        self, config: KafkaConsumerConfig, calls: KafkaCalls[object], random: Random
    ) -> None:
        self.topics: dict[str, dict[int, PartitionView]] = {}
        self.errors: dict[str, int] = {}
        """Topics that cannot be read, with the error code.

        Topics that do not exist yet are not included.
        """
        self.names: dict[bytes, str] = {}
        """The topics by their ids; none from brokers that do not tell ids."""
        self.version = 0
        """Incremented by every response."""
        self.trouble = ""
        """Why the last request failed; empty after a response."""
        self.pattern: re.Pattern[str] | None = None
        """Pattern of further topics to know; set it with `match`."""
        self._config = config
        self._calls = calls
        self._wanted: frozenset[str] = frozenset()
        self._brokers: dict[int, Address] = {}
        self._order = list(config.bootstrap_servers)
        self._first = random.randrange(len(self._order))
        self._failed: set[Address] = set()
        self._asking: Address | None = None
        self._stale = True
        self._asked_at = 0
        self._next_at = 0
        self._tell_at = 0
        self._answered: frozenset[str] | None = frozenset()
        """The topics in the last response; None: all."""
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)

    # -- the view ----------------------------------------------------------------------------------

    def leader(self, partition: TopicPartition) -> Address | None:
        """Return the address of a partition's leader; None while there is none."""
        view = self.topics.get(partition.topic, {}).get(partition.partition)
        return None if view is None else self._brokers.get(view.leader)

    def leader_epoch(self, partition: TopicPartition) -> int:
        view = self.topics.get(partition.topic, {}).get(partition.partition)
        return -1 if view is None else view.leader_epoch

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic, omitting unknown topics."""
        return {topic: len(self.topics[topic]) for topic in topics if topic in self.topics}

    def matching(self) -> tuple[str, ...]:
        """Return the topics whose name matches the pattern, sorted."""
        assert self.pattern is not None
        fullmatch = self.pattern.fullmatch
        return tuple(
            sorted(name for name in self.topics if name not in INTERNAL_TOPICS and fullmatch(name))
        )

    @property
    def all_known(self) -> bool:
        """Return whether the last response had all topics."""
        return self._answered is None

    def knows(self, topics: Collection[str]) -> bool:
        """Return whether all of them were in the last response, whether they exist or not."""
        return self._answered is None or self._answered.issuperset(topics)

    def any_broker(self) -> Lane:
        """Return a broker for requests that any broker answers: another one after each failure."""
        known = [self._brokers[node] for node in sorted(self._brokers)]
        usable = [address for address in known if address not in self._failed]
        if usable:
            return Lane(usable[self._first % len(usable)], DATA)
        return Lane(self._order[self._first % len(self._order)], DATA)

    # -- asking ------------------------------------------------------------------------------------

    def want(self, topics: frozenset[str]) -> None:
        """Set the topics to know about from now on."""
        if not topics <= self._wanted and not self.knows(topics):
            self._stale = True
        self._wanted = topics

    def match(self, pattern: re.Pattern[str] | None) -> None:
        """Know all topics, so that those that match can be found; None: no longer."""
        self.pattern = pattern
        if pattern is not None:
            self._stale = True

    def refresh(self) -> None:
        """Refresh soon, because the view is wrong somewhere."""
        self._stale = True

    def failed(self, address: Address) -> None:
        """Note that a broker cannot be reached."""
        self._first += 1
        self._failed.add(address)
        if self._failed.issuperset(self._brokers.values()):
            self._brokers_gone()

    def _brokers_gone(self) -> None:
        """Start again with the bootstrap servers, because none of the known brokers responds."""
        self._failed.clear()
        self._brokers = {}
        self._stale = True

    @property
    def due(self) -> int | None:
        """Return when to call `act` again."""
        if self._asking is not None:
            return None
        if self._stale:
            return self._next_at
        return max(self._next_at, self._asked_at + self._config.metadata_max_age_ms)

    def act(self, now: int, effects: list[Effect]) -> None:
        """Send a request, if it is time."""
        due = self.due
        if due is None or now < due:
            return
        lane = self.any_broker()
        self._asking = lane.address
        self._stale = False
        self._asked_at = now
        topics = None if self.pattern is not None else tuple(sorted(self._wanted))
        request = MetadataRequest(
            None if topics is None else tuple(MetadataRequestTopic(name=topic) for topic in topics),
            self._config.allow_auto_create_topics,
        )
        purpose = MetadataAsked(None if topics is None else frozenset(topics))
        timeout_ms = self._config.request_timeout_ms
        self._calls.call(lane, METADATA, request, purpose, now, timeout_ms, effects)

    def unanswered(self, error: SteelyardError, now: int, effects: list[Effect]) -> None:
        """Handle a failed request."""
        self.trouble = str(error)
        if now >= self._tell_at:
            self._tell_at = now + TELL_MS
            text = f"cannot get the cluster's metadata from any broker: {error}; trying again"
            effects.append(LogLine("WARNING", text))
        self._asking = None
        self._stale = True
        self._next_at = now + self._backoff.next_ms()

    def answered(self, purpose: MetadataAsked, response: MetadataResponse, now: int) -> None:
        """Take a new view."""
        if self._asking is not None:
            self._failed.discard(self._asking)
        self._asking = None
        self.trouble = ""
        self._tell_at = 0
        self.version += 1
        if response.brokers:
            self._brokers = {
                broker.node_id: f"{broker.host}:{broker.port}" for broker in response.brokers
            }
            self._failed &= set(self._brokers.values())
        before = self.topics
        self.topics, self.errors, self.names = {}, {}, {}
        unsettled = False
        for topic in response.topics:
            unsettled |= self._take_topic(topic, before)
        self._answered = purpose.topics
        if not self.knows(self._wanted) or (self.pattern is not None and not self.all_known):
            self._stale = True
        if unsettled or not response.brokers:
            self._stale = True
            self._next_at = now + self._backoff.next_ms()
        else:
            self._backoff.reset()
            self._next_at = now + self._config.retry_backoff_ms

    def _take_topic(
        self, topic: MetadataResponseTopic, before: Mapping[str, dict[int, PartitionView]]
    ) -> bool:
        """Return True if it must be refreshed soon."""
        name = topic.name or ""
        if topic.error_code in (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ):
            self.errors[name] = topic.error_code
            return False
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return name in self._wanted
        if topic.error_code and not topic.partitions:
            if name in before:  # temporarily unknown; it has not lost its partitions
                self.topics[name] = before[name]
            return True
        self.topics[name] = {
            part.partition_index: PartitionView(part.leader_id, part.leader_epoch)
            for part in topic.partitions
        }
        if topic.topic_id != NO_ID:
            self.names[topic.topic_id] = name
        return any(part.leader_id < 0 for part in topic.partitions)
