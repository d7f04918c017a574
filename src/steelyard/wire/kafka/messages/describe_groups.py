"""15 DescribeGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
)


class DescribeGroupsRequest(Message, frozen=True, gc=False):
    """DescribeGroups request. Source: DescribeGroupsRequest.json."""

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


class DescribeGroupsResponse(Message, frozen=True, gc=False):
    """DescribeGroups response. Source: DescribeGroupsResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: Sequence[DescribedGroup] = ()


DESCRIBE_GROUPS = Api(
    15, DescribeGroupsRequest, DescribeGroupsResponse, versions=(0, 6), flexible=5
)
