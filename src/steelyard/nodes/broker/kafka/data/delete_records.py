"""21 DeleteRecords, versions 0-2: deletes the records before an offset.

- -1 stands for the high watermark: everything that may be read. An offset beyond it, or less than
  -1, is OFFSET_OUT_OF_RANGE.
- Records that are already gone are not an error; the answer says where the log begins.
- Internal topics are INVALID_TOPIC_EXCEPTION, those that are only compacted POLICY_VIOLATION.
Source: core/kafka/server/ReplicaManager.deleteRecordsOnLocalLog, Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.cluster.topic import INTERNAL
from steelyard.nodes.broker.kafka.data.partitions import Partitions
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from steelyard.wire.kafka.schema import ApiMessage

HIGH_WATERMARK = -1
_UNKNOWN = -1


class DeleteRecords:
    """The handler of DeleteRecords."""

    def __init__(self, partitions: Partitions, durability: Durability, faults: Faults) -> None:
        self._partitions = partitions
        self._durability = durability
        self._faults = faults

    @serves(DeleteRecordsRequest)
    def delete(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage | None:
        request = call.read(DeleteRecordsRequest)
        topics = [
            DeleteRecordsTopicResult(
                topic.name,
                [self._delete(topic.name, part, now, effects) for part in topic.partitions],
            )
            for topic in request.topics
        ]
        return self._durability.acknowledge_call(call, DeleteRecordsResponse(0, topics), effects)

    def _delete(
        self, topic: str, part: DeleteRecordsPartition, now: int, effects: list[Effect]
    ) -> DeleteRecordsPartitionResult:
        index = part.partition_index
        if topic in INTERNAL:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return DeleteRecordsPartitionResult(index, _UNKNOWN, code)
        place = self._partitions.find(topic, index)
        if place.fault:
            return DeleteRecordsPartitionResult(index, _UNKNOWN, place.fault)
        settings = self._partitions.cluster.settings_of(topic)
        if settings.compacts and not settings.deletes:
            return DeleteRecordsPartitionResult(index, _UNKNOWN, ErrorCode.POLICY_VIOLATION)
        log = place.log
        end = 0 if log is None else self._durability.readable_end(log)
        offset = end if part.offset == HIGH_WATERMARK else part.offset
        if not 0 <= offset <= end:
            return DeleteRecordsPartitionResult(index, _UNKNOWN, ErrorCode.OFFSET_OUT_OF_RANGE)
        if log is None:
            return DeleteRecordsPartitionResult(index, 0)
        try:
            log.delete_before(offset)
        except StorageError as error:
            self._faults.tell(f"{topic}-{index} was not deleted: {error}", now, effects)
            return DeleteRecordsPartitionResult(index, _UNKNOWN, ErrorCode.KAFKA_STORAGE_ERROR)
        return DeleteRecordsPartitionResult(index, log.min_offset)
