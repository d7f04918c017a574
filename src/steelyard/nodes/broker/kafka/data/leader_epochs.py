"""23 OffsetForLeaderEpoch, versions 2-4: where an epoch of a partition's leader ended.

There is one epoch, 0, which lasts: it ends where the log ends. Consumers use this API to detect
that a log was truncated.
Source: core/kafka/server/ReplicaManager.lastOffsetForLeaderEpoch,
Partition.lastOffsetForLeaderEpoch.
"""

from __future__ import annotations

from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.data.partitions import LEADER_EPOCH, Partitions, epoch_fault
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.messages.logs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from steelyard.wire.kafka.schema import ApiMessage


class LeaderEpochs:
    """The handler of OffsetForLeaderEpoch."""

    def __init__(self, partitions: Partitions, durability: Durability) -> None:
        self._partitions = partitions
        self._durability = durability

    @serves(OffsetForLeaderEpochRequest)
    def end_offsets(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(OffsetForLeaderEpochRequest)
        topics = [
            OffsetForLeaderTopicResult(
                topic.topic, [self._end(topic.topic, part) for part in topic.partitions]
            )
            for topic in request.topics
        ]
        return OffsetForLeaderEpochResponse(0, topics)

    def _end(self, topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
        place = self._partitions.find(topic, part.partition)
        fault = place.read_fault or epoch_fault(part.current_leader_epoch)
        if fault or part.leader_epoch != LEADER_EPOCH:
            return EpochEndOffset(fault, part.partition)
        end = 0 if place.log is None else self._durability.readable_end(place.log)
        return EpochEndOffset(0, part.partition, LEADER_EPOCH, end)
