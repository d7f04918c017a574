"""The batches of a model of Kafka's producer: their sequences, what is in flight, what comes again.

As Java's producer does it: up to five batches of a partition are in flight; what failed is sent
again in order, one batch at a time, with the same sequence; a batch that does not come through
within its delivery time-out is given up. Source: the client's TransactionManager.java,
RecordAccumulator.shouldStopDrainBatchesForPartition, Sender.java.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from steelyard.nodes.seam import Address
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.records import TRANSACTIONAL, Record, write_batch

IN_FLIGHT_MAX = 5
"""Of one partition; brokers know as many."""
DELIVERY_MS = 12_000
ALL_REPLICAS = -1

RETRIABLE = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""Errors after which clients repeat a request as it was."""


@dataclass(slots=True, eq=False)
class Batch:
    """Records for one partition. `sequence`: -1 before it is sent for the first time."""

    partition: int
    values: tuple[bytes, ...]
    expires_at: int
    sequence: int = -1
    is_repeated: bool = False


class UnacknowledgedBatches:
    """The batches of one producer id and epoch that are not acknowledged yet."""

    def __init__(self, topic: str, transactional_id: str | None) -> None:
        self._topic = topic
        self._transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self._next: dict[int, int] = {}
        """The next sequence by partition."""
        self._queues: dict[int, deque[Batch]] = {}
        self.is_stale = False
        """Whether a leader has to be asked for."""
        self.has_gap = False
        """Whether a batch that was sent was given up: what follows it needs another epoch."""

    @property
    def is_empty(self) -> bool:
        return not self._queues

    @property
    def has_sent(self) -> bool:
        """Return whether the fate of a batch that was sent is open."""
        return any(batch.sequence >= 0 for queue in self._queues.values() for batch in queue)

    def renew(self, producer_id: int, epoch: int) -> None:
        """Go on with another epoch, in which sequences begin at 0."""
        assert not self.has_sent
        self.producer_id, self.epoch = producer_id, epoch
        self._next = {}
        self.has_gap = False

    def add(self, partition: int, values: Iterable[bytes], now: int) -> None:
        batch = Batch(partition, tuple(values), now + DELIVERY_MS)
        self._queues.setdefault(partition, deque()).append(batch)

    def drop(self) -> None:
        """Give up all batches."""
        self.has_gap |= self.has_sent
        self._queues = {}

    def expired(self, now: int) -> bool:
        """Give up batches whose time is over; return whether there were some.

        What was sent after one to its partition is given up as well, because it cannot follow.
        """
        found = False
        for partition, queue in list(self._queues.items()):
            if all(batch.expires_at > now for batch in queue):
                continue
            found = True
            self.has_gap |= any(batch.sequence >= 0 for batch in queue)
            left = deque(each for each in queue if each.sequence < 0 and each.expires_at > now)
            self._keep(partition, left)
        return found

    def _keep(self, partition: int, queue: deque[Batch]) -> None:
        if queue:
            self._queues[partition] = queue
        else:
            self._queues.pop(partition, None)

    # -- requests ----------------------------------------------------------------------------------

    def window(self, *, only_sent: bool = False) -> list[list[Batch]]:
        """Return the batches to send now: the first of each partition, then the second, and so on.

        `only_sent`: no batch is to be sent for the first time.
        """
        columns = [list(self._sendable(queue, only_sent)) for queue in self._queues.values()]
        depth = max(map(len, columns), default=0)
        return [[each[row] for each in columns if row < len(each)] for row in range(depth)]

    def _sendable(self, queue: deque[Batch], only_sent: bool) -> Iterator[Batch]:
        for place, batch in enumerate(queue):
            if place == IN_FLIGHT_MAX or (only_sent and batch.sequence < 0):
                return
            if place and batch.is_repeated:
                return
            yield batch
            if batch.is_repeated:
                return

    def requests(
        self, row: Iterable[Batch], leaders: dict[int, Address], now: int
    ) -> list[tuple[Address, ProduceRequest, list[Batch]]]:
        """Return one request to each leader; batches without a known leader are left out."""
        by_leader: dict[Address, list[Batch]] = {}
        for batch in row:
            leader = leaders.get(batch.partition)
            if leader is None:
                self.is_stale = True
            else:
                by_leader.setdefault(leader, []).append(batch)
        return [
            (leader, self._request(batches, now), batches) for leader, batches in by_leader.items()
        ]

    def _request(self, batches: list[Batch], now: int) -> ProduceRequest:
        parts = [PartitionProduceData(each.partition, self._encoded(each, now)) for each in batches]
        topic = TopicProduceData(self._topic, partition_data=parts)
        return ProduceRequest(self._transactional_id, ALL_REPLICAS, 1_000, [topic])

    def _encoded(self, batch: Batch, now: int) -> bytes:
        if batch.sequence < 0:
            batch.sequence = self._next.get(batch.partition, 0)
            self._next[batch.partition] = batch.sequence + len(batch.values)
        return write_batch(
            [Record(number, now, None, value) for number, value in enumerate(batch.values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=batch.sequence,
            attributes=0 if self._transactional_id is None else TRANSACTIONAL,
        )

    # -- answers -----------------------------------------------------------------------------------

    def answered(
        self,
        batches: Iterable[Batch],
        reply: object,
        acknowledged: Callable[[Batch], None],
        out_of_order: Callable[[Batch], None],
    ) -> ErrorCode:
        """Take the answer to a request; return an error that is not retriable, or NONE.

        `out_of_order`: called for a batch that is said to be so although all before it were
        acknowledged.
        """
        codes: dict[int, int] = {}
        if isinstance(reply, ProduceResponse):
            parts = reply.responses[0].partition_responses
            codes = {part.index: part.error_code for part in parts}
        failure = ErrorCode.NONE
        for batch in batches:
            queue = self._queues[batch.partition]
            code = ErrorCode(codes.get(batch.partition, ErrorCode.NETWORK_EXCEPTION))
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                acknowledged(batch)
                queue.remove(batch)
                self._keep(batch.partition, queue)
                continue
            batch.is_repeated = True
            if code in RETRIABLE:
                self.is_stale = True
            elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                if queue[0] is batch:
                    out_of_order(batch)
            else:
                failure = code
        return failure
