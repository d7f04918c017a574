"""47 OffsetDelete."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import Api, Int16, Int32, Message, Part, String


class OffsetDeleteRequestPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(Message, frozen=True, gc=False):
    """OffsetDelete request. Source: OffsetDeleteRequest.json."""

    group_id: String = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()


class OffsetDeleteResponsePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[OffsetDeleteResponsePartition] = ()


class OffsetDeleteResponse(Message, frozen=True, gc=False):
    """OffsetDelete response. Source: OffsetDeleteResponse.json."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Sequence[OffsetDeleteResponseTopic] = ()


OFFSET_DELETE = Api(47, OffsetDeleteRequest, OffsetDeleteResponse, versions=(0, 0), flexible=None)
