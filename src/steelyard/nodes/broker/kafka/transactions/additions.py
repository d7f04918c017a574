"""Has coordinators add partitions to transactions, or verify that they are in them (KIP-890).

Leaders of partitions, and coordinators of groups, ask for it before they store something of a
transaction for the first time. A client of version 2 of transactions does not tell the coordinator
itself where it writes; the partitions are added for it. An older client has told it before, which
is only verified.

The coordinator is this broker, or another one, which is asked by AddPartitionsToTxn. With
flush=sync, nothing is stored before the disk has the addition: after a power failure a coordinator
that does not know of the partition could never end the transaction there. While the markers of the
transaction before are being written, an addition is refused with CONCURRENT_TRANSACTIONS; that is
tried again for a moment, because it costs a client much more to do so.
Source: server/transaction/AddPartitionsToTxnManager.java, core/kafka/server/ReplicaManager.scala.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.forwarding import Forwarding
from steelyard.nodes.broker.kafka.cluster.topic import TRANSACTIONS_TOPIC
from steelyard.nodes.seam import Effect
from steelyard.types import TopicPartition, numbers_by_topic
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from steelyard.wire.kafka.schema import ApiMessage

RETRY_MS = 20
"""Kafka: add.partitions.to.txn.retry.backoff.ms."""
RETRY_MAX_MS = 100
"""How long an addition is tried again. Kafka: add.partitions.to.txn.retry.backoff.max.ms."""

Refused = Mapping[TopicPartition, ErrorCode]
"""The partitions that are not in the transaction, with the reasons."""

Then = Callable[[Refused, int, list[Effect]], None]

ResultOf = Callable[[AddPartitionsToTxnTransaction, int, list[Effect]], AddPartitionsToTxnResult]
"""What this broker's coordinator does with a transaction."""


class _Open(msgspec.Struct):
    """An addition or verification that is not finished. `until`: when it is not repeated any more.

    `retry_at`: when it is repeated; `mark`: the mark of the disk that it waits for.
    """

    asked: AddPartitionsToTxnTransaction
    then: Then
    until: int
    retry_at: int = 0
    mark: int = 0


class PartitionAdditions:
    """Asks coordinators; see the module docstring."""

    def __init__(
        self,
        cluster: Cluster,
        forwarding: Forwarding,
        durability: Durability,
        result_of: ResultOf,
    ) -> None:
        self._cluster = cluster
        self._forwarding = forwarding
        self._durability = durability
        self._result_of = result_of
        self._repeated: list[_Open] = []
        self._unsynced: list[_Open] = []

    def ask(
        self,
        asked: AddPartitionsToTxnTransaction,
        then: Then,
        now: int,
        effects: list[Effect],
    ) -> Refused | None:
        """Return the partitions that are refused; None if `then` is called with them later."""
        return self._attempt(_Open(asked, then, now + RETRY_MAX_MS), now, effects)

    def _attempt(self, open_: _Open, now: int, effects: list[Effect]) -> Refused | None:
        asked = open_.asked
        node_id = self._cluster.coordinator_of(asked.transactional_id, TRANSACTIONS_TOPIC)
        if node_id is None:
            return _all_refused(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if node_id == self._cluster.node_id:
            refused = _refused(self._result_of(asked, now, effects))
            if self._is_repeated(open_, refused, now):
                return None
            if not asked.verify_only and not refused and self._waits(open_, effects):
                return None
            return refused
        broker = self._cluster.live(node_id)
        assert broker is not None

        def then(reply: ApiMessage | None, now: int, effects: list[Effect]) -> None:
            refused = _answered(asked, reply)
            if not self._is_repeated(open_, refused, now):
                open_.then(refused, now, effects)

        request = AddPartitionsToTxnRequest(transactions=[asked])
        if self._forwarding.send(broker, request, then, now, effects):
            return None
        return _all_refused(asked, ErrorCode.NETWORK_EXCEPTION)

    def _is_repeated(self, open_: _Open, refused: Refused, now: int) -> bool:
        """Return whether it is asked again in a moment."""
        if (
            open_.asked.verify_only
            or now >= open_.until
            or ErrorCode.CONCURRENT_TRANSACTIONS not in refused.values()
        ):
            return False
        open_.retry_at = now + RETRY_MS
        self._repeated.append(open_)
        return True

    def _waits(self, open_: _Open, effects: list[Effect]) -> bool:
        """Return whether the disk does not have the addition yet; `flushed` continues it then."""
        open_.mark = self._durability.mark()
        if self._durability.has(open_.mark):
            return False
        self._durability.hasten(open_.mark, effects)
        self._unsynced.append(open_)
        return True

    def flushed(self, now: int, effects: list[Effect]) -> None:
        """Continue what was waiting for a flush."""
        waiting, self._unsynced = self._unsynced, []
        for open_ in waiting:
            if self._durability.has(open_.mark):
                open_.then({}, now, effects)
            else:
                self._unsynced.append(open_)

    @property
    def next_at(self) -> int | None:
        return min((open_.retry_at for open_ in self._repeated), default=None)

    def due(self, now: int, effects: list[Effect]) -> None:
        """Ask again."""
        waiting, self._repeated = self._repeated, []
        for open_ in waiting:
            if open_.retry_at > now:
                self._repeated.append(open_)
                continue
            refused = self._attempt(open_, now, effects)
            if refused is not None:
                open_.then(refused, now, effects)


def transaction_of(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    adds: bool,
) -> AddPartitionsToTxnTransaction:
    """Return the question about some partitions. `adds`: they are added, not only verified."""
    topics = [
        AddPartitionsToTxnTopic(name, numbers)
        for name, numbers in numbers_by_topic(sorted(partitions)).items()
    ]
    return AddPartitionsToTxnTransaction(transactional_id, producer_id, epoch, not adds, topics)


def client_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return a coordinator's error as clients expect it from leaders and from groups.

    `knows_abortable`: the client knows TRANSACTION_ABORTABLE.
    """
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _all_refused(asked: AddPartitionsToTxnTransaction, error: ErrorCode) -> Refused:
    return {TopicPartition(t.name, index): error for t in asked.topics for index in t.partitions}


def _refused(result: AddPartitionsToTxnResult) -> Refused:
    return {
        TopicPartition(topic.name, part.partition_index): ErrorCode(part.partition_error_code)
        for topic in result.topic_results
        for part in topic.results_by_partition
        if part.partition_error_code
    }


def _answered(asked: AddPartitionsToTxnTransaction, reply: ApiMessage | None) -> Refused:
    """Return what another broker's coordinator refuses; everything if it has not answered."""
    if not isinstance(reply, AddPartitionsToTxnResponse):
        return _all_refused(asked, ErrorCode.NETWORK_EXCEPTION)
    if reply.error_code:
        return _all_refused(asked, ErrorCode(reply.error_code))
    for result in reply.results_by_transaction:
        if result.transactional_id == asked.transactional_id:
            return _refused(result)
    return _all_refused(asked, ErrorCode.NETWORK_EXCEPTION)
