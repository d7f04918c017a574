"""Groups of the protocol of KIP-848: APIs 68 and 69."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    ApiMessage,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
)


class TopicPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[Int32] = ()


class ConsumerGroupHeartbeatRequest(ApiMessage, frozen=True, gc=False):
    """ConsumerGroupHeartbeat request, API 68. Source: ConsumerGroupHeartbeatRequest.json."""

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


class Assignment(Part, frozen=True, gc=False):
    topic_partitions: Sequence[TopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(ApiMessage, frozen=True, gc=False):
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


class ConsumerGroupDescribeRequest(ApiMessage, frozen=True, gc=False):
    """ConsumerGroupDescribe request, API 69. Source: ConsumerGroupDescribeRequest.json."""

    group_ids: Sequence[String] = ()
    include_authorized_operations: Bool = False


class DescribedTopicPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    topic_name: String = ""
    partitions: Sequence[Int32] = ()


class DescribedAssignment(Part, frozen=True, gc=False):
    topic_partitions: Sequence[DescribedTopicPartitions] = ()


class Member(Part, frozen=True, gc=False):
    member_id: String = ""
    instance_id: NullableString = None
    rack_id: NullableString = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: NullableString = None
    assignment: DescribedAssignment = DescribedAssignment()
    target_assignment: DescribedAssignment = DescribedAssignment()
    member_type: Annotated[Int8, Since(1)] = -1


class DescribedGroup(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: Sequence[Member] = ()
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(ApiMessage, frozen=True, gc=False):
    """ConsumerGroupDescribe response. Source: ConsumerGroupDescribeResponse.json."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup] = ()


CONSUMER_GROUP_DESCRIBE = Api(
    69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, versions=(0, 1), flexible=0
)
