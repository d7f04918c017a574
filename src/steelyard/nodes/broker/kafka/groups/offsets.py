"""8 OffsetCommit (versions 2-10), 9 OffsetFetch (1-10), 47 OffsetDelete (0): committed offsets.

They are served for the groups that this broker coordinates, by the rules of `groups.kafka`. With
flush=sync a commit or a deletion is answered when it is on the disk. NOT_COORDINATOR is the answer
for the groups of other brokers, and if the disk refuses a commit or a deletion.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.groups.kafka.committing import answered
from steelyard.groups.kafka.coordinator import Coordinator
from steelyard.groups.kafka.effects import Effects
from steelyard.groups.kafka.groups import Asker
from steelyard.groups.kafka.transactional_ids import Marking
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster, coordinator_partition
from steelyard.nodes.broker.kafka.cluster.topic import OFFSETS_TOPIC
from steelyard.nodes.broker.kafka.groups.groups import GroupRequests
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from steelyard.wire.kafka.schema import ApiMessage


class GroupOffsets:
    """Handlers of these APIs, and what transactions and deleted topics do to offsets."""

    def __init__(
        self,
        coordinator: Coordinator,
        cluster: Cluster,
        durability: Durability,
        requests: GroupRequests,
    ) -> None:
        self._coordinator = coordinator
        self._cluster = cluster
        self._durability = durability
        self._requests = requests

    @serves(OffsetCommitRequest)
    def commit(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(OffsetCommitRequest)
        error = self._requests.refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return OffsetCommitResponse(topics=answered(request.topics, error))
        happened: Effects = []
        try:
            answer = self._coordinator.commits.commit(request, call.version, now, happened)
        except StorageError as fault:
            effects.append(
                LogLine("ERROR", f"offsets of {request.group_id} were not stored: {fault}")
            )
            error = ErrorCode.NOT_COORDINATOR
            return OffsetCommitResponse(topics=answered(request.topics, error))
        self._requests.settle(happened, now, effects)
        if not happened:
            return answer  # nothing was stored
        return self._durability.acknowledge_call(call, answer, effects)

    @serves(OffsetFetchRequest)
    def fetch(self, call: OpenRequest, now: int, effects: list[Effect]) -> Steps[ApiMessage]:
        request = call.read(OffsetFetchRequest)
        named = {request.group_id} if call.version < 8 else {g.group_id for g in request.groups}
        refused = {group_id: self._requests.refusal(group_id) for group_id in sorted(named)}
        return self._coordinator.fetches.fetch(request, call.version, refused)

    @serves(OffsetDeleteRequest)
    def delete(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(OffsetDeleteRequest)
        error = self._requests.refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error)
        try:
            answer = self._coordinator.commits.delete(request)
        except StorageError as fault:
            effects.append(
                LogLine("ERROR", f"offsets of {request.group_id} were not deleted: {fault}")
            )
            return OffsetDeleteResponse(ErrorCode.NOT_COORDINATOR)
        return self._durability.acknowledge_call(call, answer, effects)

    # -- transactions and topics -----------------------------------------------------------------

    def txn_commit(
        self, request: TxnOffsetCommitRequest, version: int, asker: Asker, now: int
    ) -> TxnOffsetCommitResponse:
        """Keep offsets until the transaction ends; the caller has checked the producer.

        Raises StorageError, and then nothing was stored.
        """
        error = self.refusal(request.group_id)
        if error is ErrorCode.NONE:
            return self._coordinator.commits.txn_commit(request, version, now)
        return TxnOffsetCommitResponse(topics=answered(request.topics, error))

    def refusal(self, group_id: str) -> ErrorCode:
        """Return why offsets of a group are not stored here; NONE if they are."""
        return self._requests.refusal(group_id)

    @property
    def is_loading(self) -> bool:
        """Return whether offsets of transactions may still come from another broker.

        No transaction that has offsets can be ended until then.
        """
        return self._cluster.awaits_any(OFFSETS_TOPIC)

    def end_transaction(
        self, marking: Marking, offsets_partition: int, now: int, effects: list[Effect]
    ) -> None:
        """Apply the marker of a transaction to one partition of __consumer_offsets.

        The offsets of its groups are committed or dropped; a second marker does nothing. Raises
        StorageError, and then nothing has changed.
        """
        partitions = self._cluster.partitions(OFFSETS_TOPIC)

        def concerns(group_id: str) -> bool:
            return partitions == 0 or (
                coordinator_partition(group_id, partitions) == offsets_partition
            )

        happened: Effects = []
        self._coordinator.commits.end_transaction(
            marking.producer_id, concerns, committed=marking.commit, effects=happened
        )
        self._requests.settle(happened, now, effects)

    def topic_deleted(self, topic: str) -> None:
        """Delete the offsets of a deleted topic. Raises StorageError."""
        self._coordinator.topic_deleted(topic)
