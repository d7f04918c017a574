"""The logs of partitions: APIs 2, 21, 23, 35 and 61."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    Since,
    String,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
"""Timestamps that stand for offsets. Source: ListOffsetsRequest.java."""


class ListOffsetsPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[ListOffsetsPartition] = ()


class ListOffsetsRequest(ApiMessage, frozen=True, gc=False):
    """ListOffsets request, API 2. Source: ListOffsetsRequest.json."""

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResponse(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(ApiMessage, frozen=True, gc=False):
    """ListOffsets response. Source: ListOffsetsResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()


LIST_OFFSETS = Api(2, ListOffsetsRequest, ListOffsetsResponse, versions=(1, 11), flexible=6)


class DeleteRecordsPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(ApiMessage, frozen=True, gc=False):
    """DeleteRecords request, API 21. Source: DeleteRecordsRequest.json."""

    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(ApiMessage, frozen=True, gc=False):
    """DeleteRecords response. Source: DeleteRecordsResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()


DELETE_RECORDS = Api(21, DeleteRecordsRequest, DeleteRecordsResponse, versions=(0, 2), flexible=2)


class OffsetForLeaderPartition(Part, frozen=True, gc=False):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(ApiMessage, frozen=True, gc=False):
    """OffsetForLeaderEpoch request, API 23. Source: OffsetForLeaderEpochRequest.json."""

    replica_id: Annotated[Int32, Since(3)] = -2
    topics: Sequence[OffsetForLeaderTopic] = ()


class EpochEndOffset(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(ApiMessage, frozen=True, gc=False):
    """OffsetForLeaderEpoch response. Source: OffsetForLeaderEpochResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()


OFFSET_FOR_LEADER_EPOCH = Api(
    23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, versions=(2, 4), flexible=4
)


class DescribableLogDirTopic(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class DescribeLogDirsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeLogDirs request, API 35. Source: DescribeLogDirsRequest.json."""

    topics: Sequence[DescribableLogDirTopic] | None = ()


class DescribeLogDirsPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1
    is_cordoned: Annotated[Bool, Since(5)] = False


class DescribeLogDirsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeLogDirs response. Source: DescribeLogDirsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: Sequence[DescribeLogDirsResult] = ()


DESCRIBE_LOG_DIRS = Api(
    35, DescribeLogDirsRequest, DescribeLogDirsResponse, versions=(1, 5), flexible=2
)


class TopicRequest(Part, frozen=True, gc=False):
    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class DescribeProducersRequest(ApiMessage, frozen=True, gc=False):
    """DescribeProducers request, API 61. Source: DescribeProducersRequest.json."""

    topics: Sequence[TopicRequest] = ()


class ProducerState(Part, frozen=True, gc=False):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    active_producers: Sequence[ProducerState] = ()


class TopicResponse(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[PartitionResponse] = ()


class DescribeProducersResponse(ApiMessage, frozen=True, gc=False):
    """DescribeProducers response. Source: DescribeProducersResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicResponse] = ()


DESCRIBE_PRODUCERS = Api(
    61, DescribeProducersRequest, DescribeProducersResponse, versions=(0, 0), flexible=0
)
