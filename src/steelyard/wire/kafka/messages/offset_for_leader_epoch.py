"""23 OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import Api, Int16, Int32, Int64, Message, Part, Since, String


class OffsetForLeaderPartition(Part, frozen=True, gc=False):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(Message, frozen=True, gc=False):
    """OffsetForLeaderEpoch request. Source: OffsetForLeaderEpochRequest.json."""

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


class OffsetForLeaderEpochResponse(Message, frozen=True, gc=False):
    """OffsetForLeaderEpoch response. Source: OffsetForLeaderEpochResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()


OFFSET_FOR_LEADER_EPOCH = Api(
    23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, versions=(2, 4), flexible=4
)
