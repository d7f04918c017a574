"""28 TxnOffsetCommit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    Since,
    String,
)


class TxnOffsetCommitRequestPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(2)] = -1
    committed_metadata: NullableString = ""


class TxnOffsetCommitRequestTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(Message, frozen=True, gc=False):
    """TxnOffsetCommit request. Source: TxnOffsetCommitRequest.json."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Annotated[Int32, Since(3)] = -1
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()


class TxnOffsetCommitResponsePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[TxnOffsetCommitResponsePartition] = ()


class TxnOffsetCommitResponse(Message, frozen=True, gc=False):
    """TxnOffsetCommit response. Source: TxnOffsetCommitResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TxnOffsetCommitResponseTopic] = ()


TXN_OFFSET_COMMIT = Api(
    28, TxnOffsetCommitRequest, TxnOffsetCommitResponse, versions=(0, 4), flexible=3
)
