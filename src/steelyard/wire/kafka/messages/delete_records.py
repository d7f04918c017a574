"""21 DeleteRecords."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import Api, Int16, Int32, Int64, Message, Part, String


class DeleteRecordsPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(Message, frozen=True, gc=False):
    """DeleteRecords request. Source: DeleteRecordsRequest.json."""

    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(Message, frozen=True, gc=False):
    """DeleteRecords response. Source: DeleteRecordsResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()


DELETE_RECORDS = Api(21, DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), flexible=2)
