"""8 OffsetCommit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Int16,
    Int32,
    Int64,
    Message,
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


class OffsetCommitRequest(Message, frozen=True, gc=False):
    """OffsetCommit request. Source: OffsetCommitRequest.json."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(7)] = None
    retention_time_ms: Annotated[Int64, Versions(2, 4)] = -1
    topics: Sequence[OffsetCommitRequestTopic] = ()


class OffsetCommitResponsePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(2, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partitions: Sequence[OffsetCommitResponsePartition] = ()


class OffsetCommitResponse(Message, frozen=True, gc=False):
    """OffsetCommit response. Source: OffsetCommitResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Sequence[OffsetCommitResponseTopic] = ()


OFFSET_COMMIT = Api(8, OffsetCommitRequest, OffsetCommitResponse, versions=(2, 10), flexible=8)
