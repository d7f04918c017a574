"""The fetches: one in flight per broker, of all its partitions with no records left to return.

The prefetched data is therefore bounded by `fetch_max_bytes` per broker, and a partition that is
not polled, or is paused, is not fetched. Fetch sessions (KIP-227) are not used: every request names
all its partitions. A broker whose quota was exceeded reads nothing from the connection for a while,
which it tells; the next fetch waits for that, so that it does not time out (KIP-219).
Source: clients/consumer/internals/AbstractFetch.java, FetchCollector.java.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import KafkaError, SteelyardError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane
from steelyard.nodes.consumer.kafka.decoding import Fetched
from steelyard.nodes.consumer.kafka.held import Held, Holdings
from steelyard.nodes.consumer.kafka.lookups import Lookups
from steelyard.nodes.consumer.kafka.metadata import Metadata
from steelyard.nodes.seam import Address, Effect
from steelyard.types import TopicPartition, joined
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.data import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

FETCH_LANE = "fetch"
"""A lane of its own: fetches wait at the broker, and other requests would wait behind them."""

READ_COMMITTED = 1

SHORT_WAIT_MS = 20
"""Waiting time of a fetch at the broker while other partitions of it have records left.

When those are used up, they must be fetched, and only one fetch may be in flight. (Apache's clients
wait for `fetch_max_wait_ms` here.)
"""

_LOOK_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors after which the metadata must be refreshed."""


class FetchAsked(msgspec.Struct, frozen=True):
    """Purpose of a Fetch: the turn of each requested partition.

    `until`: how long a broker without data waits.
    """

    turns: Mapping[TopicPartition, int]
    until: int


class Fetching:
    """The fetches of a consumer."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        calls: KafkaCalls[object],
        metadata: Metadata,
        holdings: Holdings,
        lookups: Lookups,
    ) -> None:
        self._config = config
        self._calls = calls
        self._metadata = metadata
        self._holdings = holdings
        self._lookups = lookups
        self._read_committed = config.isolation_level == "read_committed"
        self._throttled: dict[Address, int] = {}
        """Until when leaders whose quota this client has exceeded take no fetch (KIP-219)."""

    @property
    def due(self) -> int | None:
        """Return when a partition that failed, or whose leader throttles, may be fetched again."""
        times = [
            held.retry_at
            for held in self._holdings.by_partition.values()
            if held.retry_at and held.wants_fetch
        ]
        times += self._throttled.values()
        return min(times, default=None)

    def act(self, now: int, effects: list[Effect]) -> None:
        """Send the fetches that are possible."""
        for address in [each for each, until in self._throttled.items() if until <= now]:
            del self._throttled[address]
        by_leader: dict[Address, list[Held]] = {}
        for partition, held in self._holdings.by_partition.items():
            if not held.wants_fetch or now < held.retry_at:
                continue
            held.retry_at = 0
            if partition in self._holdings.waiting or held.misled_by == self._metadata.version:
                continue
            leader = self._metadata.leader(partition)
            if leader is None:
                self._metadata.refresh()
                held.retry_at = now + self._config.retry_backoff_ms
                continue
            by_leader.setdefault(leader, []).append(held)
        for leader, found in by_leader.items():
            lane = Lane(leader, FETCH_LANE)
            if leader not in self._throttled and self._calls.is_idle(lane):
                self._fetch(lane, found, now, effects)

    def _fetch(self, lane: Lane, found: list[Held], now: int, effects: list[Effect]) -> None:
        config = self._config
        topics: dict[str, list[FetchPartition]] = {}
        for held in found:
            assert held.position is not None
            held.fetching_from = held.position
            part = FetchPartition(
                held.partition.partition,
                self._metadata.leader_epoch(held.partition),
                held.position,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
            topics.setdefault(held.partition.topic, []).append(part)
        wait_ms = self._wait_ms(lane.address)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=READ_COMMITTED if self._read_committed else 0,
            topics=tuple(FetchTopic(topic, partitions=parts) for topic, parts in topics.items()),
            rack_id=config.client_rack,
        )
        purpose = FetchAsked({held.partition: held.turn for held in found}, now + wait_ms)
        timeout_ms = config.request_timeout_ms + wait_ms
        self._calls.call(lane, FETCH, request, purpose, now, timeout_ms, effects)

    def _wait_ms(self, leader: Address) -> int:
        wait_ms = self._config.fetch_max_wait_ms
        for partition, held in self._holdings.by_partition.items():
            if held.records and not held.paused and self._metadata.leader(partition) == leader:
                return min(wait_ms, SHORT_WAIT_MS)
        return wait_ms

    # -- answers -----------------------------------------------------------------------------------

    def answered(
        self, purpose: FetchAsked, lane: Lane, reply: FetchResponse | SteelyardError, now: int
    ) -> None:
        """Take the outcome of a fetch."""
        asked = {
            partition: held
            for partition, turn in purpose.turns.items()
            if (held := self._holdings.by_partition.get(partition)) is not None
            and held.turn == turn
            and held.fetching_from is not None
        }
        positions = {partition: held.fetching_from for partition, held in asked.items()}
        for held in asked.values():
            held.fetching_from = None
        if isinstance(reply, SteelyardError):
            self._failed(asked, lane, reply, now)
            return
        if reply.throttle_time_ms > 0:
            self._throttled[lane.address] = now + reply.throttle_time_ms
        came = any(
            part.records or part.error_code for t in reply.responses for part in t.partitions
        )
        if reply.error_code or (now < purpose.until and not came):
            # without a pause it would be requested as fast as it responds
            for held in asked.values():
                held.retry_at = now + self._config.retry_backoff_ms
        for topic in reply.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                found = asked.get(partition)
                if found is not None and found.position == positions[partition]:
                    self._take(found, data, now)

    def _failed(
        self, asked: Mapping[TopicPartition, Held], lane: Lane, error: SteelyardError, now: int
    ) -> None:
        self._metadata.refresh()
        for held in asked.values():
            held.retry_at = now + self._config.retry_backoff_ms
            if isinstance(error, KafkaError):
                held.fault = error

    def _take(self, held: Held, data: PartitionData, now: int) -> None:
        assert held.position is not None
        if data.error_code:
            self._partition_failed(held, data.error_code, now)
            return
        if not data.records:
            return
        aborted = (data.aborted_transactions or ()) if self._read_committed else None
        fetched = Fetched(
            held.partition,
            joined([data.records]),
            held.position,
            aborted,
            check_crcs=self._config.check_crcs,
        )
        asked_from = held.position
        held.feed(fetched)
        if not held.records and (held.fault is not None or held.position == asked_from):
            held.retry_at = now + self._config.retry_backoff_ms

    def _partition_failed(self, held: Held, code: int, now: int) -> None:
        held.retry_at = now + self._config.retry_backoff_ms
        if code in _LOOK_AGAIN:
            held.misled_by = self._metadata.version
            self._metadata.refresh()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lookups.out_of_range(held)
        elif code != ErrorCode.UNKNOWN_SERVER_ERROR:
            held.fault = KafkaError(code, f"{_name(held)}: {code_name(code)}")


def _name(held: Held) -> str:
    return f"{held.partition.topic}-{held.partition.partition}"
