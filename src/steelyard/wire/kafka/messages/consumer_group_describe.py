"""69 ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
)


class ConsumerGroupDescribeRequest(Message, frozen=True, gc=False):
    """ConsumerGroupDescribe request. Source: ConsumerGroupDescribeRequest.json."""

    group_ids: Sequence[String] = ()
    include_authorized_operations: Bool = False


class TopicPartitions(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    topic_name: String = ""
    partitions: Sequence[Int32] = ()


class Assignment(Part, frozen=True, gc=False):
    topic_partitions: Sequence[TopicPartitions] = ()


class Member(Part, frozen=True, gc=False):
    member_id: String = ""
    instance_id: NullableString = None
    rack_id: NullableString = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: NullableString = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
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


class ConsumerGroupDescribeResponse(Message, frozen=True, gc=False):
    """ConsumerGroupDescribe response. Source: ConsumerGroupDescribeResponse.json."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup] = ()


CONSUMER_GROUP_DESCRIBE = Api(
    69, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, versions=(0, 1), flexible=0
)
