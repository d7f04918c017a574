"""Classic groups: APIs 11 to 16 and 42."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Bool,
    Bytes,
    Int16,
    Int32,
    NullableString,
    Part,
    Since,
    String,
    Versions,
)


class JoinGroupRequestProtocol(Part, frozen=True, gc=False):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(ApiMessage, frozen=True, gc=False):
    """JoinGroup request, API 11. Source: JoinGroupRequest.json."""

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(5)] = None
    protocol_type: String = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    reason: Annotated[NullableString, Since(8)] = None


class JoinGroupResponseMember(Part, frozen=True, gc=False):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(5)] = None
    metadata: Bytes = b""


class JoinGroupResponse(ApiMessage, frozen=True, gc=False):
    """JoinGroup response. Source: JoinGroupResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableString, Since(7)] = None
    protocol_name: NullableString = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, Since(9)] = False
    member_id: String = ""
    members: Sequence[JoinGroupResponseMember] = ()


JOIN_GROUP = Api(11, JoinGroupRequest, JoinGroupResponse, versions=(0, 9), flexible=6)


class HeartbeatRequest(ApiMessage, frozen=True, gc=False):
    """Heartbeat request, API 12. Source: HeartbeatRequest.json."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None


class HeartbeatResponse(ApiMessage, frozen=True, gc=False):
    """Heartbeat response. Source: HeartbeatResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


HEARTBEAT = Api(12, HeartbeatRequest, HeartbeatResponse, versions=(0, 4), flexible=4)


class MemberIdentity(Part, frozen=True, gc=False):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    reason: Annotated[NullableString, Since(5)] = None


class LeaveGroupRequest(ApiMessage, frozen=True, gc=False):
    """LeaveGroup request, API 13. Source: LeaveGroupRequest.json."""

    group_id: String = ""
    member_id: Annotated[String, Versions(0, 2)] = ""
    members: Annotated[Sequence[MemberIdentity], Since(3)] = ()


class MemberResponse(Part, frozen=True, gc=False):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = ""
    error_code: Annotated[Int16, Since(3)] = 0


class LeaveGroupResponse(ApiMessage, frozen=True, gc=False):
    """LeaveGroup response. Source: LeaveGroupResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[Sequence[MemberResponse], Since(3)] = ()


LEAVE_GROUP = Api(13, LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible=4)


class SyncGroupRequestAssignment(Part, frozen=True, gc=False):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(ApiMessage, frozen=True, gc=False):
    """SyncGroup request, API 14. Source: SyncGroupRequest.json."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignments: Sequence[SyncGroupRequestAssignment] = ()


class SyncGroupResponse(ApiMessage, frozen=True, gc=False):
    """SyncGroup response. Source: SyncGroupResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignment: Bytes = b""


SYNC_GROUP = Api(14, SyncGroupRequest, SyncGroupResponse, versions=(0, 5), flexible=4)


class DescribeGroupsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeGroups request, API 15. Source: DescribeGroupsRequest.json."""

    groups: Sequence[String] = ()
    include_authorized_operations: Annotated[Bool, Since(3)] = False


class DescribedGroupMember(Part, frozen=True, gc=False):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: Annotated[Int32, Since(3)] = -2147483648


class DescribeGroupsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeGroups response. Source: DescribeGroupsResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: Sequence[DescribedGroup] = ()


DESCRIBE_GROUPS = Api(
    15, DescribeGroupsRequest, DescribeGroupsResponse, versions=(0, 6), flexible=5
)


class ListGroupsRequest(ApiMessage, frozen=True, gc=False):
    """ListGroups request, API 16. Source: ListGroupsRequest.json."""

    states_filter: Annotated[Sequence[String], Since(4)] = ()
    types_filter: Annotated[Sequence[String], Since(5)] = ()


class ListedGroup(Part, frozen=True, gc=False):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(ApiMessage, frozen=True, gc=False):
    """ListGroups response. Source: ListGroupsResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: Sequence[ListedGroup] = ()


LIST_GROUPS = Api(16, ListGroupsRequest, ListGroupsResponse, versions=(0, 5), flexible=3)


class DeleteGroupsRequest(ApiMessage, frozen=True, gc=False):
    """DeleteGroups request, API 42. Source: DeleteGroupsRequest.json."""

    groups_names: Sequence[String] = ()


class DeletableGroupResult(Part, frozen=True, gc=False):
    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(3)] = None


class DeleteGroupsResponse(ApiMessage, frozen=True, gc=False):
    """DeleteGroups response. Source: DeleteGroupsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult] = ()


DELETE_GROUPS = Api(42, DeleteGroupsRequest, DeleteGroupsResponse, versions=(0, 3), flexible=2)
