"""28 TxnOffsetCommit, versions 0-4: offsets that are committed with their transaction.

A producer that was replaced must not leave offsets behind: an epoch lower than one seen here
before, in a commit or at the end of a transaction, is INVALID_PRODUCER_EPOCH. (Apache Kafka finds
that out when it writes to __consumer_offsets.)
Source: core/kafka/server/KafkaApis.scala handleTxnOffsetCommitRequest,
GroupCoordinatorService.commitTransactionalOffsets.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka.committing import answered
from steelyard.groups.kafka.transactions import Marking
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.groups.offsets import GroupOffsets
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

PRODUCERS_MAX = 100_000
"""Most producers whose epochs are remembered; the least recently seen is forgotten first."""


class TxnOffsets:
    """The handler of TxnOffsetCommit, and the ends of transactions with offsets."""

    def __init__(self, offsets: GroupOffsets, durability: Durability, faults: Faults) -> None:
        self._offsets = offsets
        self._durability = durability
        self._faults = faults
        self._epochs: dict[int, int] = {}

    @serves(TxnOffsetCommitRequest)
    def commit(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(TxnOffsetCommitRequest)
        if not self._is_current(message.producer_id, message.producer_epoch):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
            return TxnOffsetCommitResponse(topics=answered(message.topics, error))
        try:
            answer = self._offsets.txn_commit(message, call.version, call.asker, now)
        except StorageError as fault:
            self._faults.tell(f"offsets of a transaction were not written: {fault}", now, effects)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return TxnOffsetCommitResponse(topics=answered(message.topics, error))
        return self._durability.acknowledge_call(call, answer, effects)

    def end(
        self, marking: Marking, offsets_partition: int, now: int, effects: list[Effect]
    ) -> ErrorCode:
        """End a producer's transaction for the groups of a partition of __consumer_offsets."""
        if not self._is_current(marking.producer_id, marking.producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self._offsets.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            self._offsets.end_transaction(marking, offsets_partition, now, effects)
        except StorageError as error:
            self._faults.tell(f"offsets of a transaction were not written: {error}", now, effects)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _is_current(self, producer_id: int, epoch: int) -> bool:
        """Return whether this id was not used with a higher epoch, and remember the epoch."""
        known = self._epochs.pop(producer_id, epoch)
        self._epochs[producer_id] = max(known, epoch)
        if len(self._epochs) > PRODUCERS_MAX:
            del self._epochs[next(iter(self._epochs))]
        return epoch >= known
