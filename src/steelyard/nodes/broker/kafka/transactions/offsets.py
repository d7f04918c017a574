"""28 TxnOffsetCommit, versions 0-5: offsets that are committed with their transaction.

Before offsets are stored, the transaction's coordinator is asked (`additions`): from version 5 on
it adds the group's partition of __consumer_offsets to the transaction, before that the client has
done so (AddOffsetsToTxn), which is verified. If the coordinator cannot be asked, the answer is
COORDINATOR_LOAD_IN_PROGRESS, and clients retry.

A producer that was replaced must not leave offsets behind: an epoch lower than one seen here
before, in a commit or at the end of a transaction, is INVALID_PRODUCER_EPOCH. (Apache Kafka finds
that out when it writes to __consumer_offsets.)
Source: core/kafka/server/KafkaApis.scala handleTxnOffsetCommitRequest,
GroupCoordinatorService.commitTransactionalOffsets, CoordinatorOperationExceptionHelper.java.
"""

from __future__ import annotations

from functools import partial

import msgspec

from steelyard.errors import StorageError
from steelyard.groups.kafka.committing import answered
from steelyard.groups.kafka.transactional_ids import BUMPS_EPOCH, Marking
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.groups.offsets import GroupOffsets
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.transactions.additions import (
    PartitionAdditions,
    Refused,
    client_error,
    transaction_of,
)
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

PRODUCERS_MAX = 100_000
"""Most producers whose epochs are remembered; the least recently seen is forgotten first."""

KNOWS_LOADING = 2
KNOWS_ABORTABLE = 4
ADDS_PARTITIONS = 5
"""First versions whose clients know COORDINATOR_LOAD_IN_PROGRESS and TRANSACTION_ABORTABLE, and
have the group's partition added."""

_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors of a transaction's coordinator that clients do not expect from a group's."""


class _Asked(msgspec.Struct):
    """A commit about which the transaction's coordinator is asked.

    `ended`: the transaction has ended meanwhile.
    """

    call: OpenRequest
    producer_id: int
    epoch: int
    adds: bool
    ended: bool = False


class TxnOffsets:
    """The handler of TxnOffsetCommit, and the ends of transactions with offsets.

    `verifies`: transaction.partition.verification.enable.
    """

    def __init__(
        self,
        offsets: GroupOffsets,
        additions: PartitionAdditions,
        cluster: Cluster,
        durability: Durability,
        faults: Faults,
        *,
        verifies: bool,
    ) -> None:
        self._offsets = offsets
        self._additions = additions
        self._cluster = cluster
        self._durability = durability
        self._faults = faults
        self._verifies = verifies
        self._epochs: dict[int, tuple[int, bool]] = {}
        """By producer: its latest epoch, and whether offsets were committed with it since the last
        end of a transaction."""
        self._asked: list[_Asked] = []

    @serves(TxnOffsetCommitRequest)
    def commit(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(TxnOffsetCommitRequest)
        adds = call.version >= ADDS_PARTITIONS
        error = self._offsets.refusal(message.group_id)
        if not error and self._is_late(message.producer_id, message.producer_epoch):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error:
            return _refused(message, error)
        if not (adds or self._verifies):
            return self._store(call, now, effects)
        producer_id, epoch = message.producer_id, message.producer_epoch
        place = self._cluster.offsets_partition(message.group_id)
        asked = _Asked(call, producer_id, epoch, adds)
        refused = self._additions.ask(
            transaction_of(message.transactional_id, producer_id, epoch, [place], adds=adds),
            partial(self._told, asked),
            now,
            effects,
        )
        if refused is None:
            self._asked.append(asked)
            return None
        return self._verified(asked, refused, now, effects)

    def _told(self, asked: _Asked, refused: Refused, now: int, effects: list[Effect]) -> None:
        """Continue with the answer of a transaction's coordinator."""
        self._asked = [each for each in self._asked if each is not asked]
        answer = self._verified(asked, refused, now, effects)
        if answer is not None:
            asked.call.answer(answer, effects)

    def _verified(
        self, asked: _Asked, refused: Refused, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        """Store the offsets, unless the coordinator refuses the group's partition."""
        call = asked.call
        error = next(iter(refused.values()), ErrorCode.NONE)
        error = _ERRORS.get(error, error)
        error = client_error(error, knows_abortable=call.version >= KNOWS_ABORTABLE)
        if not error and self._is_late(asked.producer_id, asked.epoch):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if not error and asked.ended:
            error = ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < KNOWS_LOADING:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error:
            return _refused(call.read(TxnOffsetCommitRequest), error)
        return self._store(call, now, effects)

    def _store(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        message = call.read(TxnOffsetCommitRequest)
        self._saw(message.producer_id, message.producer_epoch, is_open=True)
        try:
            answer = self._offsets.txn_commit(message, call.version, call.asker, now)
        except StorageError as fault:
            self._faults.tell(f"offsets of a transaction were not written: {fault}", now, effects)
            return _refused(message, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._durability.acknowledge_call(call, answer, effects)

    def end(
        self, marking: Marking, offsets_partition: int, now: int, effects: list[Effect]
    ) -> ErrorCode:
        """End a producer's transaction for the groups of a partition of __consumer_offsets.

        A marker of version 2 with the epoch of the latest commit is that of the transaction before
        (see `Producers.marker_fault`).
        """
        producer_id, epoch = marking.producer_id, marking.producer_epoch
        is_earlier = self._epochs.get(producer_id) == (epoch, True)
        if self._is_late(producer_id, epoch) or (marking.version >= BUMPS_EPOCH and is_earlier):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self._offsets.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        try:
            self._offsets.end_transaction(marking, offsets_partition, now, effects)
        except StorageError as error:
            self._faults.tell(f"offsets of a transaction were not written: {error}", now, effects)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._saw(producer_id, epoch, is_open=False)
        for asked in self._asked:
            is_next = asked.adds and asked.epoch == epoch
            if asked.producer_id == producer_id and not is_next:
                asked.ended = True
        return ErrorCode.NONE

    def _is_late(self, producer_id: int, epoch: int) -> bool:
        """Return whether this id was used with a higher epoch."""
        return self._epochs.get(producer_id, (epoch, False))[0] > epoch

    def _saw(self, producer_id: int, epoch: int, *, is_open: bool) -> None:
        self._epochs.pop(producer_id, None)
        self._epochs[producer_id] = epoch, is_open
        if len(self._epochs) > PRODUCERS_MAX:
            del self._epochs[next(iter(self._epochs))]


def _refused(message: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=answered(message.topics, error))
