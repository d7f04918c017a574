"""The committed offsets of groups: APIs 8, 9, 28 and 47."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    ApiMessage,
    Bool,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
    Versions,
)


class OffsetCommitRequestPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    committed_metadata: NullableString = ""


class OffsetCommitRequestTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(2, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partitions: Sequence[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(ApiMessage, frozen=True, gc=False):
    """OffsetCommit request, API 8. Source: OffsetCommitRequest.json."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(7)] = None
    retention_time_ms: Annotated[Int64, Versions(2, 4)] = -1
    topics: Sequence[OffsetCommitRequestTopic] = ()


class OffsetResponsePartition(Part, frozen=True, gc=False):
    """What became of an offset that was to be committed or deleted."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetResponseTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(0, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partitions: Sequence[OffsetResponsePartition] = ()


class OffsetCommitResponse(ApiMessage, frozen=True, gc=False):
    """OffsetCommit response. Source: OffsetCommitResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Sequence[OffsetResponseTopic] = ()


OFFSET_COMMIT = Api(8, OffsetCommitRequest, OffsetCommitResponse, versions=(2, 10), flexible=8)


class OffsetFetchRequestTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(1, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partition_indexes: Sequence[Int32] = ()


class OffsetFetchRequestGroup(Part, frozen=True, gc=False):
    group_id: Annotated[String, Since(8)] = ""
    member_id: Annotated[NullableString, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: Annotated[Sequence[OffsetFetchRequestTopic] | None, Since(8)] = ()


class OffsetFetchRequest(ApiMessage, frozen=True, gc=False):
    """OffsetFetch request, API 9. Source: OffsetFetchRequest.json."""

    group_id: Annotated[String, Versions(1, 7)] = ""
    topics: Annotated[Sequence[OffsetFetchRequestTopic] | None, Versions(1, 7)] = ()
    groups: Annotated[Sequence[OffsetFetchRequestGroup], Since(8)] = ()
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchResponsePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(5)] = -1
    metadata: NullableString = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(1, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partitions: Sequence[OffsetFetchResponsePartition] = ()


class OffsetFetchResponseGroup(Part, frozen=True, gc=False):
    group_id: Annotated[String, Since(8)] = ""
    topics: Annotated[Sequence[OffsetFetchResponseTopic], Since(8)] = ()
    error_code: Annotated[Int16, Since(8)] = 0


class OffsetFetchResponse(ApiMessage, frozen=True, gc=False):
    """OffsetFetch response. Source: OffsetFetchResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[Sequence[OffsetFetchResponseTopic], Versions(1, 7)] = ()
    error_code: Annotated[Int16, Versions(2, 7)] = 0
    groups: Annotated[Sequence[OffsetFetchResponseGroup], Since(8)] = ()


OFFSET_FETCH = Api(9, OffsetFetchRequest, OffsetFetchResponse, versions=(1, 10), flexible=6)


class TxnOffsetCommitRequestPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: NullableString = ""


class TxnOffsetCommitRequestTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(ApiMessage, frozen=True, gc=False):
    """TxnOffsetCommit request, API 28. Source: TxnOffsetCommitRequest.json."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()


class TxnOffsetCommitResponse(ApiMessage, frozen=True, gc=False):
    """TxnOffsetCommit response. Source: TxnOffsetCommitResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetResponseTopic] = ()


TXN_OFFSET_COMMIT = Api(
    28, TxnOffsetCommitRequest, TxnOffsetCommitResponse, versions=(0, 5), flexible=3
)


class OffsetDeleteRequestPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(ApiMessage, frozen=True, gc=False):
    """OffsetDelete request, API 47. Source: OffsetDeleteRequest.json."""

    group_id: String = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()


class OffsetDeleteResponse(ApiMessage, frozen=True, gc=False):
    """OffsetDelete response. Source: OffsetDeleteResponse.json."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetResponseTopic] = ()


OFFSET_DELETE = Api(47, OffsetDeleteRequest, OffsetDeleteResponse, versions=(0, 0), flexible=None)
