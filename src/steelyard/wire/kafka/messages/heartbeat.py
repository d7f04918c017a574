"""12 Heartbeat."""

from __future__ import annotations

from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Message,
    NullableString,
    Since,
    String,
)


class HeartbeatRequest(Message, frozen=True, gc=False):
    """Heartbeat request. Source: HeartbeatRequest.json."""

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None


class HeartbeatResponse(Message, frozen=True, gc=False):
    """Heartbeat response. Source: HeartbeatResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


HEARTBEAT = Api(12, HeartbeatRequest, HeartbeatResponse, versions=(0, 4), flexible=4)
