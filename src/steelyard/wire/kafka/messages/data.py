"""What producers and consumers move: APIs 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    ApiMessage,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableRecords,
    NullableString,
    Part,
    Since,
    String,
    Tag,
    Uuid,
    Versions,
)


class PartitionProduceData(Part, frozen=True, gc=False):
    index: Int32 = 0
    records: NullableRecords = b""


class TopicProduceData(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(3, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partition_data: Sequence[PartitionProduceData] = ()


class ProduceRequest(ApiMessage, frozen=True, gc=False):
    """Produce request, API 0. Source: ProduceRequest.json."""

    transactional_id: NullableString = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: Sequence[TopicProduceData] = ()


class BatchIndexAndErrorMessage(Part, frozen=True, gc=False):
    batch_index: Annotated[Int32, Since(8)] = 0
    batch_index_error_message: Annotated[NullableString, Since(8)] = None


class LeaderIdAndEpoch(Part, frozen=True, gc=False):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Part, frozen=True, gc=False):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[Sequence[BatchIndexAndErrorMessage], Since(8)] = ()
    error_message: Annotated[NullableString, Since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Since(10), Tag(0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(3, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partition_responses: Sequence[PartitionProduceResponse] = ()


class NodeEndpoint(Part, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


class ProduceResponse(ApiMessage, frozen=True, gc=False):
    """Produce response. Source: ProduceResponse.json."""

    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(10), Tag(0)] = ()


FIRST_EPOCH, LAST_EPOCH = 0, -1
"""Epochs of fetches that begin a session, or end it or have none (KIP-227, KIP-932).

Source: clients/common/requests/FetchMetadata.java, ShareRequestMetadata.java.
"""

PRODUCE = Api(0, ProduceRequest, ProduceResponse, versions=(3, 13), flexible=9)


class ReplicaState(Part, frozen=True, gc=False):
    replica_id: Annotated[Int32, Since(15)] = -1
    replica_epoch: Annotated[Int64, Since(15)] = -1


class FetchPartition(Part, frozen=True, gc=False):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Since(12)] = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Since(17), Tag(0)] = NO_ID
    high_watermark: Annotated[Int64, Since(18), Tag(1)] = 0x7FFFFFFFFFFFFFFF


class FetchTopic(Part, frozen=True, gc=False):
    topic: Annotated[String, Versions(4, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(Part, frozen=True, gc=False):
    topic: Annotated[String, Versions(7, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partitions: Annotated[Sequence[Int32], Since(7)] = ()


class FetchRequest(ApiMessage, frozen=True, gc=False):
    """Fetch request, API 1. Source: FetchRequest.json."""

    cluster_id: Annotated[NullableString, Since(12), Tag(0)] = None
    replica_id: Annotated[Int32, Versions(4, 14)] = -1
    replica_state: Annotated[ReplicaState, Since(15), Tag(1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Since(7)] = 0
    session_epoch: Annotated[Int32, Since(7)] = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Annotated[Sequence[ForgottenTopic], Since(7)] = ()
    rack_id: Annotated[String, Since(11)] = ""


class EpochEndOffset(Part, frozen=True, gc=False):
    epoch: Annotated[Int32, Since(12)] = -1
    end_offset: Annotated[Int64, Since(12)] = -1


class SnapshotId(Part, frozen=True, gc=False):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Part, frozen=True, gc=False):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Since(12), Tag(0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, Since(12), Tag(1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, Since(12), Tag(2)] = SnapshotId()
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: Annotated[Int32, Since(11)] = -1
    records: NullableRecords = b""


class FetchableTopicResponse(Part, frozen=True, gc=False):
    topic: Annotated[String, Versions(4, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partitions: Sequence[PartitionData] = ()


class FetchResponse(ApiMessage, frozen=True, gc=False):
    """Fetch response. Source: FetchResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(16), Tag(0)] = ()


FETCH = Api(1, FetchRequest, FetchResponse, versions=(4, 18), flexible=12)
