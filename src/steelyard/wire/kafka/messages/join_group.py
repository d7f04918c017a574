"""11 JoinGroup."""

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


class JoinGroupRequestProtocol(Part, frozen=True, gc=False):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message, frozen=True, gc=False):
    """JoinGroup request. Source: JoinGroupRequest.json."""

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


class JoinGroupResponse(Message, frozen=True, gc=False):
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
