"""Lookups of offsets: where to begin in a partition, and for the application.

A partition that was just assigned begins at the committed offset of the group (OffsetFetch). If
there is none, or without a group, it begins at the end that `auto_offset_reset` names
(ListOffsets); `none` fails. Both requests are repeated until they are answered, for an application
for at most `default_api_timeout_ms`.
Source: clients/consumer/internals/OffsetFetcher.java, ConsumerCoordinator.java
(fetchCommittedOffsets).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import CallTimeoutError, KafkaError, NoOffsetError, SteelyardError
from steelyard.nodes.calls.kafka import KafkaCalls, Lane
from steelyard.nodes.consumer.kafka.commits import ConsumerGroupMetadata
from steelyard.nodes.consumer.kafka.contract import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from steelyard.nodes.consumer.kafka.coordinator import CoordinatorSearch
from steelyard.nodes.consumer.kafka.held import Held, Holdings
from steelyard.nodes.consumer.kafka.metadata import DATA, Metadata
from steelyard.nodes.seam import Address, Answer, Effect
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode, code_name
from steelyard.wire.kafka.messages.logs import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from steelyard.wire.kafka.messages.offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_RESETS = {"earliest": EARLIEST, "latest": LATEST}

_FATAL = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Errors that a retry does not change."""


class LookupAsked(msgspec.Struct, frozen=True):
    """Purpose of a ListOffsets or OffsetFetch: its lookup, and the requested partitions.

    `committed`: an OffsetFetch.
    """

    number: int
    partitions: tuple[TopicPartition, ...]
    committed: bool


class Lookup:
    """One lookup, for the application under `call_id`, or for held partitions.

    `turns`: those of the held partitions; empty for the application.
    """

    def __init__(self, number: int, wanted: Mapping[TopicPartition, int | None]) -> None:
        self.number = number
        self.wanted = dict(wanted)
        """Not answered yet: timestamps for ListOffsets, None for the committed offset."""
        self.found: dict[TopicPartition, OffsetAndMetadata | OffsetAndTimestamp] = {}
        self.asked: set[TopicPartition] = set()
        self.retry_at = 0
        self.call_id: int | None = None
        self.deadline: int | None = None
        self.turns: dict[TopicPartition, int] = {}


class Lookups:
    """The lookups in progress."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        calls: KafkaCalls[object],
        metadata: Metadata,
        coordinator: CoordinatorSearch,
        holdings: Holdings,
    ) -> None:
        self._config = config
        self._calls = calls
        self._metadata = metadata
        self._coordinator = coordinator
        self._holdings = holdings
        self._numbers = 0
        self._lookups: dict[int, Lookup] = {}

    # -- what is asked -----------------------------------------------------------------------------

    def ask(self, call_id: int, wanted: Mapping[TopicPartition, int | None], now: int) -> None:
        """Start an application's lookup: by timestamps, or None for the committed offset."""
        lookup = self._add(wanted)
        lookup.call_id = call_id
        lookup.deadline = now + self._config.default_api_timeout_ms

    def topics(self) -> Iterable[str]:
        """Return the topics that must be known."""
        return {partition.topic for found in self._lookups.values() for partition in found.wanted}

    def out_of_range(self, held: Held) -> None:
        """Reset a position that the broker does not have, or fail the partition."""
        reset = _RESETS.get(self._config.auto_offset_reset)
        if reset is None:
            topic, number = held.partition
            text = f"offset {held.position} of {topic}-{number} is out of range"
            held.fault = NoOffsetError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        else:
            held.move(None, reset)

    def _add(self, wanted: Mapping[TopicPartition, int | None]) -> Lookup:
        self._numbers += 1
        lookup = Lookup(self._numbers, wanted)
        self._lookups[lookup.number] = lookup
        return lookup

    def _drop_obsolete(self) -> None:
        """Forget where to begin in partitions that are not held any more, or resume elsewhere."""
        for lookup in list(self._lookups.values()):
            for partition, turn in list(lookup.turns.items()):
                held = self._holdings.by_partition.get(partition)
                if held is None or held.turn != turn:
                    del lookup.turns[partition], lookup.wanted[partition]
            if not lookup.wanted:
                del self._lookups[lookup.number]

    def _begin(self) -> None:
        """Look up where to begin, for partitions that do not know and are not being looked up."""
        under_way = {
            (partition, turn)
            for lookup in self._lookups.values()
            for partition, turn in lookup.turns.items()
        }
        wanted: dict[TopicPartition, int | None] = {}
        turns: dict[TopicPartition, int] = {}
        for partition, held in self._holdings.by_partition.items():
            lost = held.position is None and held.fault is None
            if not lost or (partition, held.turn) in under_way:
                continue
            if held.reset_to is None and not self._config.group_id:
                self._reset(held)
            if held.fault is None:
                turns[partition] = held.turn
                wanted[partition] = held.reset_to
        if wanted:
            self._add(wanted).turns = turns

    # -- asking ------------------------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        times = []
        for lookup in self._lookups.values():
            if lookup.deadline is not None:
                times.append(lookup.deadline)
            if lookup.retry_at:
                times.append(lookup.retry_at)
        return min(times, default=None)

    def act(self, reader: ConsumerGroupMetadata, now: int, effects: list[Effect]) -> None:
        """Send what can be asked now, as `reader`."""
        self._drop_obsolete()
        self._begin()
        for lookup in list(self._lookups.values()):
            if lookup.deadline is not None and now >= lookup.deadline:
                names = ", ".join(f"{topic}-{number}" for topic, number in sorted(lookup.wanted))
                error = CallTimeoutError(f"no broker returned the offsets of {names} in time")
                self._end(lookup, error, effects)
            elif now >= lookup.retry_at:
                lookup.retry_at = 0
                self._ask_brokers(lookup, reader, now, effects)

    def _ask_brokers(
        self, lookup: Lookup, reader: ConsumerGroupMetadata, now: int, effects: list[Effect]
    ) -> None:
        committed = []
        by_leader: dict[Address, list[TopicPartition]] = {}
        for partition, timestamp in lookup.wanted.items():
            if partition in lookup.asked:
                continue
            if timestamp is None:
                committed.append(partition)
                continue
            leader = self._metadata.leader(partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
            elif self._metadata.knows((partition.topic,)):
                self._metadata.refresh()
                lookup.retry_at = now + self._config.retry_backoff_ms
        for leader, partitions in by_leader.items():
            self._list_offsets(lookup, Lane(leader, DATA), partitions, now, effects)
        coordinator = self._coordinator.address
        if committed and coordinator is not None:
            # Not on the group's own lane, where a JoinGroup may wait.
            lane = Lane(coordinator, DATA)
            self._fetch_offsets(lookup, lane, committed, reader, now, effects)

    def _list_offsets(
        self,
        lookup: Lookup,
        lane: Lane,
        partitions: list[TopicPartition],
        now: int,
        effects: list[Effect],
    ) -> None:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition in partitions:
            timestamp = lookup.wanted[partition]
            assert timestamp is not None
            epoch = self._metadata.leader_epoch(partition)
            part = ListOffsetsPartition(partition.partition, epoch, timestamp)
            topics.setdefault(partition.topic, []).append(part)
        lookup.asked.update(partitions)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if self._config.isolation_level == "read_committed" else 0,
            topics=tuple(ListOffsetsTopic(topic, parts) for topic, parts in topics.items()),
            timeout_ms=self._config.request_timeout_ms,
        )
        purpose = LookupAsked(lookup.number, tuple(partitions), committed=False)
        timeout_ms = self._config.request_timeout_ms
        self._calls.call(lane, LIST_OFFSETS, request, purpose, now, timeout_ms, effects)

    def _fetch_offsets(
        self,
        lookup: Lookup,
        lane: Lane,
        partitions: list[TopicPartition],
        reader: ConsumerGroupMetadata,
        now: int,
        effects: list[Effect],
    ) -> None:
        lookup.asked.update(partitions)
        group = self._config.group_id
        topics = tuple(
            OffsetFetchRequestTopic(topic, partition_indexes=parts)
            for topic, parts in numbers_by_topic(partitions).items()
        )
        request = OffsetFetchRequest(
            group,
            topics,
            (OffsetFetchRequestGroup(group, reader.member_id or None, reader.generation, topics),),
            # KIP-447: offsets that a transaction may still change must not be used.
            require_stable=self._config.isolation_level == "read_committed",
        )
        purpose = LookupAsked(lookup.number, tuple(partitions), committed=True)
        timeout_ms = self._config.request_timeout_ms
        self._calls.call(lane, OFFSET_FETCH, request, purpose, now, timeout_ms, effects)

    # -- answers -----------------------------------------------------------------------------------

    def unanswered(
        self, purpose: LookupAsked, error: SteelyardError, now: int, effects: list[Effect]
    ) -> None:
        """Handle a failed request."""
        lookup = self._answered(purpose)
        if lookup is None:
            return
        if isinstance(error, KafkaError):
            self._end(lookup, error, effects)
            return
        lookup.retry_at = now + self._config.retry_backoff_ms
        if purpose.committed:
            self._coordinator.lost(now)
        else:
            self._metadata.refresh()

    def offsets_listed(
        self, purpose: LookupAsked, reply: ListOffsetsResponse, now: int, effects: list[Effect]
    ) -> None:
        lookup = self._answered(purpose)
        if lookup is None:
            return
        for topic in reply.topics:
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    self._metadata.refresh()
                found = (
                    None
                    if part.offset < 0
                    else OffsetAndTimestamp(part.offset, part.timestamp, part.leader_epoch)
                )
                self._took(lookup, partition, part.error_code, found, now, effects)
        self._settle(lookup, purpose, now, effects)

    def offsets_fetched(
        self, purpose: LookupAsked, reply: OffsetFetchResponse, now: int, effects: list[Effect]
    ) -> None:
        lookup = self._answered(purpose)
        if lookup is None:
            return
        group = reply.groups[0] if reply.groups else None
        code = reply.error_code if group is None else group.error_code
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator.lost(now)
        if code:
            for partition in purpose.partitions:
                self._took(lookup, partition, code, None, now, effects)
        for topic in reply.topics if group is None else group.topics:
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition_index)
                found = (
                    None
                    if part.committed_offset < 0
                    else OffsetAndMetadata(
                        part.committed_offset, part.metadata or "", part.committed_leader_epoch
                    )
                )
                self._took(lookup, partition, part.error_code, found, now, effects)
        self._settle(lookup, purpose, now, effects)

    def _answered(self, purpose: LookupAsked) -> Lookup | None:
        lookup = self._lookups.get(purpose.number)
        if lookup is not None:
            lookup.asked.difference_update(purpose.partitions)
        return lookup

    def _took(
        self,
        lookup: Lookup,
        partition: TopicPartition,
        code: int,
        found: OffsetAndMetadata | OffsetAndTimestamp | None,
        now: int,
        effects: list[Effect],
    ) -> None:
        if partition not in lookup.wanted or lookup.number not in self._lookups:
            return
        if code in _FATAL:
            topic, number = partition
            self._end(lookup, KafkaError(code, f"{topic}-{number}: {code_name(code)}"), effects)
        elif code:
            lookup.retry_at = now + self._config.retry_backoff_ms
        else:
            was_committed = lookup.wanted.pop(partition) is None
            if found is not None:
                lookup.found[partition] = found
            if partition in lookup.turns:
                self._begin_at(partition, lookup.turns.pop(partition), found, was_committed)

    def _begin_at(
        self,
        partition: TopicPartition,
        turn: int,
        found: OffsetAndMetadata | OffsetAndTimestamp | None,
        was_committed: bool,
    ) -> None:
        """Set the position of a held partition, or look it up as `auto_offset_reset` says."""
        held = self._holdings.by_partition.get(partition)
        if held is None or held.turn != turn:
            return
        if found is not None:
            held.move(found.offset)
            held.consumed = found.offset
            held.committed = found.offset if was_committed else None
            return
        self._reset(held)

    def _reset(self, held: Held) -> None:
        """Begin where `auto_offset_reset` says, or fail the partition."""
        reset = _RESETS.get(self._config.auto_offset_reset)
        if reset is not None:
            held.move(None, reset)
            return
        topic, number = held.partition
        group = self._config.group_id
        text = (
            f"group {group} has no committed offset of {topic}-{number}"
            if group
            else f"{topic}-{number} has no position, and auto_offset_reset is none: seek to one"
        )
        held.fault = NoOffsetError(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _settle(
        self, lookup: Lookup, purpose: LookupAsked, now: int, effects: list[Effect]
    ) -> None:
        """End the lookup if it is complete; otherwise schedule the next request."""
        if not lookup.wanted and lookup.number in self._lookups:
            self._end(lookup, lookup.found, effects)
        elif any(partition in lookup.wanted for partition in purpose.partitions):
            lookup.retry_at = now + self._config.retry_backoff_ms

    def _end(self, lookup: Lookup, result: object, effects: list[Effect]) -> None:
        del self._lookups[lookup.number]
        if lookup.call_id is not None:
            effects.append(Answer(lookup.call_id, result))
        elif isinstance(result, SteelyardError):
            for partition, turn in lookup.turns.items():
                held = self._holdings.by_partition.get(partition)
                if held is not None and held.turn == turn:
                    held.fault = result
