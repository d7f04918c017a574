"""Share groups (KIP-932) and the offsets at which they are: APIs 76, 77, 90, 91 and 92."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.messages.consumer_groups import Assignment, DescribedAssignment
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
)


class ShareGroupHeartbeatRequest(ApiMessage, frozen=True, gc=False):
    """ShareGroupHeartbeat request, API 76. Source: ShareGroupHeartbeatRequest.json."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: NullableString = None
    subscribed_topic_names: Sequence[String] | None = None


class ShareGroupHeartbeatResponse(ApiMessage, frozen=True, gc=False):
    """ShareGroupHeartbeat response. Source: ShareGroupHeartbeatResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


SHARE_GROUP_HEARTBEAT = Api(
    76, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, versions=(1, 1), flexible=0
)


class ShareGroupDescribeRequest(ApiMessage, frozen=True, gc=False):
    """ShareGroupDescribe request, API 77. Source: ShareGroupDescribeRequest.json."""

    group_ids: Sequence[String] = ()
    include_authorized_operations: Bool = False


class DescribedShareMember(Part, frozen=True, gc=False):
    member_id: String = ""
    rack_id: NullableString = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    assignment: DescribedAssignment = DescribedAssignment()


class DescribedShareGroup(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Sequence[DescribedShareMember] = ()
    authorized_operations: Int32 = -2147483648


class ShareGroupDescribeResponse(ApiMessage, frozen=True, gc=False):
    """ShareGroupDescribe response. Source: ShareGroupDescribeResponse.json."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedShareGroup] = ()


SHARE_GROUP_DESCRIBE = Api(
    77, ShareGroupDescribeRequest, ShareGroupDescribeResponse, versions=(1, 1), flexible=0
)


class DescribeShareGroupOffsetsRequestTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    partitions: Sequence[Int32] = ()


class DescribeShareGroupOffsetsRequestGroup(Part, frozen=True, gc=False):
    group_id: String = ""
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = ()


class DescribeShareGroupOffsetsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeShareGroupOffsets request, API 90. Source: DescribeShareGroupOffsetsRequest.json."""

    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = ()


class DescribeShareGroupOffsetsResponsePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, Since(1)] = -1
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponseTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    topic_id: Uuid = NO_ID
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = ()


class DescribeShareGroupOffsetsResponseGroup(Part, frozen=True, gc=False):
    group_id: String = ""
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = ()
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeShareGroupOffsets response. Source: DescribeShareGroupOffsetsResponse.json."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = ()


DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    90,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    versions=(0, 1),
    flexible=0,
)


class AlterShareGroupOffsetsRequestPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = ()


class AlterShareGroupOffsetsRequest(ApiMessage, frozen=True, gc=False):
    """AlterShareGroupOffsets request, API 91. Source: AlterShareGroupOffsetsRequest.json."""

    group_id: String = ""
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = ()


class AlterShareGroupOffsetsResponsePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class AlterShareGroupOffsetsResponseTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    topic_id: Uuid = NO_ID
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = ()


class AlterShareGroupOffsetsResponse(ApiMessage, frozen=True, gc=False):
    """AlterShareGroupOffsets response. Source: AlterShareGroupOffsetsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = ()


ALTER_SHARE_GROUP_OFFSETS = Api(
    91,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    versions=(0, 0),
    flexible=0,
)


class DeleteShareGroupOffsetsRequestTopic(Part, frozen=True, gc=False):
    topic_name: String = ""


class DeleteShareGroupOffsetsRequest(ApiMessage, frozen=True, gc=False):
    """DeleteShareGroupOffsets request, API 92. Source: DeleteShareGroupOffsetsRequest.json."""

    group_id: String = ""
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = ()


class DeleteShareGroupOffsetsResponseTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    topic_id: Uuid = NO_ID
    error_code: Int16 = 0
    error_message: NullableString = None


class DeleteShareGroupOffsetsResponse(ApiMessage, frozen=True, gc=False):
    """DeleteShareGroupOffsets response. Source: DeleteShareGroupOffsetsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()


DELETE_SHARE_GROUP_OFFSETS = Api(
    92,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    versions=(0, 0),
    flexible=0,
)
