"""Validation of ConsumerGroupHeartbeat for any group. Source: GroupCoordinatorService.java."""

from __future__ import annotations

import msgspec

from steelyard.groups.kafka.consumer.member import LEAVE, LEFT_FOR_NOW
from steelyard.groups.kafka.consumer.target import ASSIGNORS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MEMBER_ID_REQUIRED_FROM = 1
"""First version in which the client chooses its own id (KIP-1082)."""

CHARACTERS_MAX = 4 * 1024 * 1024
"""Most characters that a member sends about itself, which are stored while it is in the group.

Kafka limits only the request.
"""


class HeartbeatRefusal(msgspec.Struct, frozen=True):
    """Why a request is refused; `message` is for people."""

    code: ErrorCode
    message: str

    def response(self) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(error_code=self.code, error_message=self.message)


def refuse_invalid(request: ConsumerGroupHeartbeatRequest, version: int) -> HeartbeatRefusal | None:
    """Return INVALID_REQUEST or UNSUPPORTED_ASSIGNOR with the reason; None for a valid request."""
    text = _invalid(request, version)
    if text is not None:
        return HeartbeatRefusal(ErrorCode.INVALID_REQUEST, text)
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        return HeartbeatRefusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    return None


def _invalid(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    epoch = request.member_epoch
    names_itself = version >= MEMBER_ID_REQUIRED_FROM or epoch > 0 or epoch == LEAVE
    if names_itself and not request.member_id.strip():
        return "MemberId can't be empty."
    for value, field in (
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            return f"{field} can't be empty."
    named = (request.group_id, request.member_id, request.instance_id, request.rack_id)
    told = (*named, request.subscribed_topic_regex, *(request.subscribed_topic_names or ()))
    if sum(len(text) for text in told if text is not None) > CHARACTERS_MAX:
        return f"The request is longer than {CHARACTERS_MAX} characters."
    if epoch < LEFT_FOR_NOW:
        return "MemberEpoch is invalid."
    if epoch == LEFT_FOR_NOW and request.instance_id is None:
        return "InstanceId can't be null."
    return _invalid_join(request) if epoch == 0 else None


def _invalid_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining."
        )
    return None
