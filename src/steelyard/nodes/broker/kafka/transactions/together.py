"""9102 COMMIT_TOGETHER, a request of our own at the RocketMQ listener: commit transactions at once.

Kafka's EndTxn ends one transaction. A writer with many producers, such as a Spark job, would have
to end them one after another, and could not know after a crash which of them still have to be
committed. This request decides all of them, once: see `TransactionCoordinator.commit_together`.
Body: a `CommitTogether`, JSON. This broker must coordinate the writer's name and all of the ids.

| answer | |
|---|---|
| 0 | committed; the ext field `already` is true if the part was committed before |
| 14 | not coordinated here, or the disk refused; ask for the coordinator again |
| 29 | nothing was committed; the remark has Kafka's error |
"""

from __future__ import annotations

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import StorageError
from steelyard.groups.kafka.transactional_ids import CommitTogether
from steelyard.groups.kafka.transactions import TransactionCoordinator
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import TRANSACTIONS_TOPIC
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.remoting.codes import ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command

RETRIABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class CommitsTogether:
    """The handler of COMMIT_TOGETHER."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        cluster: Cluster,
        durability: Durability,
        faults: Faults,
    ) -> None:
        self._transactions = transactions
        self._cluster = cluster
        self._durability = durability
        self._faults = faults

    @serves(SteelyardCode.COMMIT_TOGETHER)
    def requested(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        try:
            asked = msgspec.json.decode(request.body, type=prepared(CommitTogether))
        except msgspec.DecodeError as fault:
            return request.reply(ResponseCode.INVALID_PARAMETER, f"not a CommitTogether: {fault}")
        error = self._error(asked, now, effects)
        if error in RETRIABLE:
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, error.name)
        if error not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return request.reply(ResponseCode.INVALID_PARAMETER, error.name)
        already = "false" if error is ErrorCode.NONE else "true"
        answer = request.reply(ext={"already": already})
        return self._durability.acknowledge(request, answer, effects)

    def _error(self, asked: CommitTogether, now: int, effects: list[Effect]) -> ErrorCode:
        keys = (asked.writer, *(each.transactional_id for each in asked.transactions))
        for key in keys:
            fault = self._cluster.coordinator_fault(key, TRANSACTIONS_TOPIC)
            if fault:
                return fault
        try:
            return self._transactions.commit_together(asked, now)
        except StorageError as refused:
            self._faults.tell(f"a transaction was not written: {refused}", now, effects)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
