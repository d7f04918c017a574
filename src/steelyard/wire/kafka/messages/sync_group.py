"""14 SyncGroup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Bytes,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
)


class SyncGroupRequestAssignment(Part, frozen=True, gc=False):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message, frozen=True, gc=False):
    """SyncGroup request. Source: SyncGroupRequest.json."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignments: Sequence[SyncGroupRequestAssignment] = ()


class SyncGroupResponse(Message, frozen=True, gc=False):
    """SyncGroup response. Source: SyncGroupResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignment: Bytes = b""


SYNC_GROUP = Api(14, SyncGroupRequest, SyncGroupResponse, versions=(0, 5), flexible=4)
