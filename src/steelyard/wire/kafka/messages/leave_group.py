"""13 LeaveGroup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Versions,
)


class MemberIdentity(Part, frozen=True, gc=False):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    reason: Annotated[NullableString, Since(5)] = None


class LeaveGroupRequest(Message, frozen=True, gc=False):
    """LeaveGroup request. Source: LeaveGroupRequest.json."""

    group_id: String = ""
    member_id: Annotated[String, Versions(0, 2)] = ""
    members: Annotated[Sequence[MemberIdentity], Since(3)] = ()


class MemberResponse(Part, frozen=True, gc=False):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = ""
    error_code: Annotated[Int16, Since(3)] = 0


class LeaveGroupResponse(Message, frozen=True, gc=False):
    """LeaveGroup response. Source: LeaveGroupResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[Sequence[MemberResponse], Since(3)] = ()


LEAVE_GROUP = Api(13, LeaveGroupRequest, LeaveGroupResponse, versions=(0, 5), flexible=4)
