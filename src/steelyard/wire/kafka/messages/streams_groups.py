"""Groups of Kafka Streams applications (KIP-1071): APIs 88 and 89.

The structures of a topology are also those of the record StreamsGroupTopologyValue.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
    Uint16,
)


class KeyValue(Part, frozen=True, gc=False):
    key: String = ""
    value: String = ""


class TopicInfo(Part, frozen=True, gc=False):
    """An internal topic. `partitions`, `replication_factor`: 0 leaves them to the broker."""

    name: String = ""
    partitions: Int32 = 0
    replication_factor: Int16 = 0
    topic_configs: Sequence[KeyValue] = ()


class CopartitionGroup(Part, frozen=True, gc=False):
    """Topics that need the same number of partitions, as indexes into those of a subtopology."""

    source_topics: Sequence[Int16] = ()
    source_topic_regex: Sequence[Int16] = ()
    repartition_source_topics: Sequence[Int16] = ()


class Subtopology(Part, frozen=True, gc=False):
    subtopology_id: String = ""
    source_topics: Sequence[String] = ()
    source_topic_regex: Sequence[String] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_sink_topics: Sequence[String] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()
    copartition_groups: Sequence[CopartitionGroup] = ()


class Topology(Part, frozen=True, gc=False):
    epoch: Int32 = 0
    subtopologies: Sequence[Subtopology] = ()


class TaskIds(Part, frozen=True, gc=False):
    """Tasks of one subtopology, by the numbers of their input partitions."""

    subtopology_id: String = ""
    partitions: Sequence[Int32] = ()


class Endpoint(Part, frozen=True, gc=False):
    """Where an application answers interactive queries."""

    host: String = ""
    port: Uint16 = 0


class TaskOffset(Part, frozen=True, gc=False):
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(ApiMessage, frozen=True, gc=False):
    """StreamsGroupHeartbeat request, API 88. Source: StreamsGroupHeartbeatRequest.json."""

    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: Sequence[TaskIds] | None = None
    standby_tasks: Sequence[TaskIds] | None = None
    warmup_tasks: Sequence[TaskIds] | None = None
    process_id: NullableString = None
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] | None = None
    task_offsets: Sequence[TaskOffset] | None = None
    task_end_offsets: Sequence[TaskOffset] | None = None
    shutdown_application: Bool = False


class Status(Part, frozen=True, gc=False):
    """`status_code`: see `groups.kafka.streams.statuses`; `status_detail`: for people."""

    status_code: Int8 = 0
    status_detail: String = ""


class TopicPartition(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class EndpointToPartitions(Part, frozen=True, gc=False):
    user_endpoint: Endpoint = Endpoint()
    active_partitions: Sequence[TopicPartition] = ()
    standby_partitions: Sequence[TopicPartition] = ()


class StreamsGroupHeartbeatResponse(ApiMessage, frozen=True, gc=False):
    """StreamsGroupHeartbeat response. Source: StreamsGroupHeartbeatResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: Sequence[Status] | None = None
    active_tasks: Sequence[TaskIds] | None = None
    standby_tasks: Sequence[TaskIds] | None = None
    warmup_tasks: Sequence[TaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = None


STREAMS_GROUP_HEARTBEAT = Api(
    88, StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse, versions=(0, 0), flexible=0
)


class StreamsGroupDescribeRequest(ApiMessage, frozen=True, gc=False):
    """StreamsGroupDescribe request, API 89. Source: StreamsGroupDescribeRequest.json."""

    group_ids: Sequence[String] = ()
    include_authorized_operations: Bool = False


class DescribedSubtopology(Part, frozen=True, gc=False):
    subtopology_id: String = ""
    source_topics: Sequence[String] = ()
    repartition_sink_topics: Sequence[String] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()


class DescribedTopology(Part, frozen=True, gc=False):
    epoch: Int32 = 0
    subtopologies: Sequence[DescribedSubtopology] | None = None


class TaskAssignment(Part, frozen=True, gc=False):
    active_tasks: Sequence[TaskIds] = ()
    standby_tasks: Sequence[TaskIds] = ()
    warmup_tasks: Sequence[TaskIds] = ()


class DescribedMember(Part, frozen=True, gc=False):
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: NullableString = None
    rack_id: NullableString = None
    client_id: String = ""
    client_host: String = ""
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] = ()
    task_offsets: Sequence[TaskOffset] = ()
    task_end_offsets: Sequence[TaskOffset] = ()
    assignment: TaskAssignment = TaskAssignment()
    target_assignment: TaskAssignment = TaskAssignment()
    is_classic: Bool = False


class DescribedGroup(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: DescribedTopology | None = None
    members: Sequence[DescribedMember] = ()
    authorized_operations: Int32 = -2147483648


class StreamsGroupDescribeResponse(ApiMessage, frozen=True, gc=False):
    """StreamsGroupDescribe response. Source: StreamsGroupDescribeResponse.json."""

    throttle_time_ms: Int32 = 0
    groups: Sequence[DescribedGroup] = ()


STREAMS_GROUP_DESCRIBE = Api(
    89, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, versions=(0, 0), flexible=0
)
