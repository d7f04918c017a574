"""68 ConsumerGroupHeartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
)


class TopicPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[Int32] = ()


class ConsumerGroupHeartbeatRequest(Message, frozen=True, gc=False):
    """ConsumerGroupHeartbeat request. Source: ConsumerGroupHeartbeatRequest.json."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Sequence[String] | None = None
    subscribed_topic_regex: Annotated[NullableString, Since(1)] = None
    server_assignor: NullableString = None
    topic_partitions: Sequence[TopicPartitions] | None = None


class ResponseTopicPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[Int32] = ()


class Assignment(Part, frozen=True, gc=False):
    topic_partitions: Sequence[ResponseTopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(Message, frozen=True, gc=False):
    """ConsumerGroupHeartbeat response. Source: ConsumerGroupHeartbeatResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


CONSUMER_GROUP_HEARTBEAT = Api(
    68, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, versions=(0, 1), flexible=0
)
