"""1 Fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableRecords,
    NullableString,
    Part,
    Since,
    String,
    Tag,
    Uuid,
    Versions,
)


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


class FetchRequest(Message, frozen=True, gc=False):
    """Fetch request. Source: FetchRequest.json."""

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


class LeaderIdAndEpoch(Part, frozen=True, gc=False):
    leader_id: Annotated[Int32, Since(12)] = -1
    leader_epoch: Annotated[Int32, Since(12)] = -1


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


class NodeEndpoint(Part, frozen=True, gc=False):
    node_id: Annotated[Int32, Since(16)] = 0
    host: Annotated[String, Since(16)] = ""
    port: Annotated[Int32, Since(16)] = 0
    rack: Annotated[NullableString, Since(16)] = None


class FetchResponse(Message, frozen=True, gc=False):
    """Fetch response. Source: FetchResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(7)] = 0
    session_id: Annotated[Int32, Since(7)] = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(16), Tag(0)] = ()


FETCH = Api(1, FetchRequest, FetchResponse, versions=(4, 18), flexible=12)
