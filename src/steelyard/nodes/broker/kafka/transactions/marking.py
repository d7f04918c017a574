"""27 WriteTxnMarkers, versions 1-2: ends transactions in the partitions that they wrote to.

What a transaction coordinator has decided comes as `Marking`s. Each of their partitions gets its
marker: by a function call if it is on this broker, otherwise by a request to its leader, which is
repeated until it succeeds. With flush=sync, no marker is written before the disk has the decision,
and none counts as written before the disk has it: after a power failure a partition would be
committed that others abort, or stay open for ever. A partition that no longer exists counts as
done. Markers for __consumer_offsets commit or drop the offsets of the transaction. A partition may
get one marker twice (after a crash between the marker and the note of it): the second one ends
nothing.
Source: coordinator/transaction/TransactionMarkerChannelManager.scala,
core/kafka/server/KafkaApis.scala.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from steelyard.errors import StorageError
from steelyard.groups.kafka.transactional_ids import PREPARED, Marking
from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Broker, Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.topic import OFFSETS_TOPIC
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.calls.kafka import KafkaCalls, Lane, Outcome
from steelyard.nodes.seam import Closed, Effect, Link, Opened, Refused
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import RawReply
from steelyard.wire.kafka.messages.transactions import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

RETRY_MS = 200
TIMEOUT_MS = 5_000
COORDINATOR_EPOCH = 0
"""Always the same: a transactional id changes its coordinator only by `handover`."""

LANE = "markers"

UNKNOWN, GONE = -1, -2
"""Special values in place of a node id."""

_DONE = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""Results with which a partition is done: a newer epoch means that it has its marker."""

WriteMarker = Callable[[str, int, Marking, int, int, list[Effect]], ErrorCode]
"""(topic, queue id, marking, coordinator epoch, now, effects)."""

EndOffsets = Callable[[Marking, int, int, list[Effect]], ErrorCode]
"""(marking, partition of __consumer_offsets, now, effects)."""


class _Open(msgspec.Struct):
    """A marking in progress.

    `decided`: the mark of the disk from which on it has the decision. `asked`: what other brokers
    were asked for and have not answered. `written`: the markers that were written here, with the
    marks from which on the disk has them.
    """

    marking: Marking
    decided: int
    left: set[TopicPartition]
    asked: set[TopicPartition]
    written: dict[TopicPartition, int]


class _Purpose(msgspec.Struct, frozen=True):
    serial: int
    partitions: tuple[TopicPartition, ...]


class Markings:
    """The markings in progress, and the handler of WriteTxnMarkers."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        cluster: Cluster,
        write_marker: WriteMarker,
        end_offsets: EndOffsets,
        durability: Durability,
        faults: Faults,
        forwarding: Forwarding | None = None,
    ) -> None:
        """`forwarding`: by which other brokers are reached; None: by their Kafka listeners."""
        self._forwarding = forwarding
        self._transactions = transactions
        self._cluster = cluster
        self._write_marker = write_marker
        self._end_offsets = end_offsets
        self._durability = durability
        self._faults = faults
        self._calls: KafkaCalls[_Purpose] = KafkaCalls("steelyard-broker", "1", TIMEOUT_MS)
        self._open: dict[int, _Open] = {}
        self._unsynced: set[int] = set()
        """Those that wait for a flush."""
        self._serial = 0
        self._retry_at: int | None = None

    # -- what this broker's coordinator has decided ----------------------------------------------

    def follow_up(self, now: int, effects: list[Effect]) -> None:
        """Write the markers of what was decided in an event; called after each."""
        markings = self._transactions.markings
        if markings:
            self._transactions.markings = []
            for marking in markings:
                self._serial += 1
                decided = self._durability.mark()
                self._open[self._serial] = _Open(
                    marking, decided, set(marking.partitions), set(), {}
                )
                self._attempt(self._serial, now, effects)
        if self._open:
            self._ended(self._calls.pump(effects), now, effects)

    def _attempt(self, serial: int, now: int, effects: list[Effect]) -> None:
        """Mark the partitions of this broker, and ask the leaders of the others."""
        under_way = self._open[serial]
        if self._waits(serial, under_way.decided, effects):
            self._settle(serial, (), now, effects)
            return
        done: set[TopicPartition] = set()
        elsewhere: dict[int, list[TopicPartition]] = {}
        for partition in sorted(under_way.left - under_way.asked - under_way.written.keys()):
            leader = self._leader(partition)
            if leader == GONE:
                done.add(partition)
            elif leader != self._cluster.node_id:
                elsewhere.setdefault(leader, []).append(partition)
            elif self._mark(under_way.marking, partition, now, effects) in _DONE:
                under_way.written[partition] = self._durability.mark()
        for node_id, partitions in elsewhere.items():
            broker = self._cluster.live(node_id)
            if broker is not None:
                under_way.asked.update(partitions)
                purpose = _Purpose(serial, tuple(partitions))
                request = _request(under_way.marking, partitions)
                if self._forwarding is not None:
                    self._forward(self._forwarding, broker, request, purpose, now, effects)
                    continue
                lane = Lane(broker.address, LANE)
                api = WRITE_TXN_MARKERS
                self._calls.call(lane, api, request, purpose, now, TIMEOUT_MS, effects)
        for partition, mark in under_way.written.items():
            if not self._waits(serial, mark, effects):
                done.add(partition)
        self._settle(serial, done & under_way.left, now, effects)

    def _forward(
        self,
        forwarding: Forwarding,
        broker: Broker,
        request: WriteTxnMarkersRequest,
        purpose: _Purpose,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Ask a broker whose Kafka listener wants TLS or a login."""

        def then(reply: ApiMessage | None, now: int, effects: list[Effect]) -> None:
            self._answered(purpose, reply, now, effects)

        if not forwarding.send(broker, request, then, now, effects):
            self._open[purpose.serial].asked.difference_update(purpose.partitions)

    def _waits(self, serial: int, mark: int, effects: list[Effect]) -> bool:
        """Return whether a marking has to wait for a flush; `flushed` continues it then."""
        if self._durability.has(mark):
            return False
        self._durability.hasten(mark, effects)
        self._unsynced.add(serial)
        return True

    def flushed(self, now: int, effects: list[Effect]) -> None:
        """Continue what was waiting for a flush."""
        serials, self._unsynced = self._unsynced, set()
        for serial in sorted(serials & self._open.keys()):
            self._attempt(serial, now, effects)

    def _leader(self, partition: TopicPartition) -> int:
        """Return the node that has a partition; GONE if it no longer exists, UNKNOWN for now."""
        topic, number = partition
        if topic == OFFSETS_TOPIC and self._cluster.is_alone:
            return self._cluster.node_id
        if self._cluster.is_ready and number >= self._cluster.partitions(topic):
            return GONE
        place = self._cluster.place(topic, number)
        return UNKNOWN if isinstance(place, ErrorCode) else place.node_id

    def _mark(
        self, marking: Marking, partition: TopicPartition, now: int, effects: list[Effect]
    ) -> ErrorCode:
        """Write one marker on this broker."""
        if partition.topic == OFFSETS_TOPIC:
            return self._end_offsets(marking, partition.partition, now, effects)
        place = self._cluster.place(*partition)
        if isinstance(place, ErrorCode):
            return place
        if not place.here:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        topic, queue_id = partition.topic, place.queue_id
        return self._write_marker(topic, queue_id, marking, COORDINATOR_EPOCH, now, effects)

    def _settle(
        self, serial: int, done: Iterable[TopicPartition], now: int, effects: list[Effect]
    ) -> None:
        """Note the partitions that are done; the others are retried later."""
        under_way = self._open[serial]
        under_way.left.difference_update(done)
        try:
            self._transactions.marked(under_way.marking, done, now)
        except StorageError as error:
            # Marked again in the next attempt; until then the transaction stays prepared.
            self._faults.tell(f"a transaction was not written: {error}", now, effects)
            under_way.left.update(done)
        if not under_way.left and not self._is_prepared(under_way.marking):
            del self._open[serial]
        elif self._retry_at is None:
            self._retry_at = now + RETRY_MS

    def _is_prepared(self, marking: Marking) -> bool:
        found = self._transactions.get(marking.transactional_id)
        return found is not None and found.state in PREPARED

    @property
    def next_at(self) -> int | None:
        if not self._open and self._calls.due is None:  # as nearly always
            return self._transactions.next_at
        times = [at for at in (self._retry_at, self._calls.due, self._transactions.next_at) if at]
        return min(times, default=None)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Try again, and look for transactions that take too long."""
        self._ended(self._calls.expire(now, effects), now, effects)
        if self._retry_at is not None and self._retry_at <= now:
            self._retry_at = None
            for serial in list(self._open):
                self._attempt(serial, now, effects)
        if self._transactions.next_at is not None and self._transactions.next_at <= now:
            try:
                self._transactions.due(now)
            except StorageError as error:
                self._faults.tell(f"a transaction was not written: {error}", now, effects)

    # -- links to other brokers ------------------------------------------------------------------

    def opened(self, event: Opened, now: int, effects: list[Effect]) -> None:
        self._calls.opened(event, now, effects)

    def refused(self, event: Refused, now: int, effects: list[Effect]) -> None:
        """Handle a failed attempt to connect; those of other parts are ignored."""
        if self._calls.is_dialing(event.address):
            self._ended(self._calls.refused(event, effects), now, effects)

    def closed(self, event: Closed, now: int, effects: list[Effect]) -> None:
        self._ended(self._calls.closed(event), now, effects)

    def answered(self, link: Link, reply: RawReply, now: int, effects: list[Effect]) -> None:
        self._ended(self._calls.received(link, reply, now, effects), now, effects)

    def _ended(
        self, outcomes: Iterable[Outcome[_Purpose]], now: int, effects: list[Effect]
    ) -> None:
        for outcome in outcomes:
            self._answered(outcome.purpose, outcome.reply, now, effects)

    def _answered(self, purpose: _Purpose, reply: object, now: int, effects: list[Effect]) -> None:
        """Note what another broker has written; anything but its answer counts as nothing."""
        under_way = self._open.get(purpose.serial)
        if under_way is None:
            return
        under_way.asked.difference_update(purpose.partitions)
        done = set()
        if isinstance(reply, WriteTxnMarkersResponse):
            done = {
                TopicPartition(topic.name, part.partition_index)
                for marker in reply.markers
                for topic in marker.topics
                for part in topic.partitions
                if part.error_code in _DONE
            }
        self._settle(purpose.serial, done & under_way.left, now, effects)

    # -- what the coordinators of other brokers have decided -------------------------------------

    @serves(WriteTxnMarkersRequest)
    def write(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        """Write the markers that the coordinator on another broker has decided."""
        message = call.read(WriteTxnMarkersRequest)
        results = [self._written(marker, now, effects) for marker in message.markers]
        return self._durability.acknowledge_call(call, WriteTxnMarkersResponse(results), effects)

    def _written(
        self, marker: WritableTxnMarker, now: int, effects: list[Effect]
    ) -> WritableTxnMarkerResult:
        marking = Marking(
            *("", marker.producer_id, marker.producer_epoch, marker.transaction_result, ()),
            marker.transaction_version,
        )

        def result(topic: str, index: int) -> WritableTxnMarkerPartitionResult:
            error = self._mark(marking, TopicPartition(topic, index), now, effects)
            return WritableTxnMarkerPartitionResult(index, error)

        return WritableTxnMarkerResult(
            marker.producer_id,
            [
                WritableTxnMarkerTopicResult(
                    topic.name, [result(topic.name, index) for index in topic.partition_indexes]
                )
                for topic in marker.topics
            ],
        )

    def check(self) -> None:
        """Assert what must hold between markings and calls."""
        self._calls.check()
        for under_way in self._open.values():
            assert under_way.asked <= under_way.left
        if self._open:
            is_forwarded = self._forwarding is not None
            assert self._retry_at is not None or self._calls.due is not None or is_forwarded


def _request(marking: Marking, partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        marking.producer_id,
        marking.producer_epoch,
        marking.commit,
        [WritableTxnMarkerTopic(*each) for each in numbers_by_topic(partitions).items()],
        COORDINATOR_EPOCH,
        marking.version,
    )
    return WriteTxnMarkersRequest([marker])
