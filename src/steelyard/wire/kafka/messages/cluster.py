"""Who is there, and what it speaks: APIs 3, 10, 18, 60 and 75."""

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
    Int64,
    NullableString,
    Part,
    Since,
    String,
    Tag,
    Uuid,
    Versions,
)


class MetadataRequestTopic(Part, frozen=True, gc=False):
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    name: NullableString = ""


class MetadataRequest(ApiMessage, frozen=True, gc=False):
    """Metadata request, API 3. Source: MetadataRequest.json."""

    topics: Sequence[MetadataRequestTopic] | None = ()
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataResponseBroker(Part, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[NullableString, Since(1)] = None


class MetadataResponsePartition(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    offline_replicas: Annotated[Sequence[Int32], Since(5)] = ()


class MetadataResponseTopic(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    name: NullableString = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = -2147483648


class MetadataResponse(ApiMessage, frozen=True, gc=False):
    """Metadata response. Source: MetadataResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: Annotated[NullableString, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: Annotated[Int32, Versions(8, 10)] = -2147483648
    error_code: Annotated[Int16, Since(13)] = 0


METADATA = Api(3, MetadataRequest, MetadataResponse, versions=(0, 13), flexible=9)


class FindCoordinatorRequest(ApiMessage, frozen=True, gc=False):
    """FindCoordinator request, API 10. Source: FindCoordinatorRequest.json."""

    key: Annotated[String, Versions(0, 3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[Sequence[String], Since(4)] = ()


class Coordinator(Part, frozen=True, gc=False):
    key: Annotated[String, Since(4)] = ""
    node_id: Annotated[Int32, Since(4)] = 0
    host: Annotated[String, Since(4)] = ""
    port: Annotated[Int32, Since(4)] = 0
    error_code: Annotated[Int16, Since(4)] = 0
    error_message: Annotated[NullableString, Since(4)] = ""


class FindCoordinatorResponse(ApiMessage, frozen=True, gc=False):
    """FindCoordinator response. Source: FindCoordinatorResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Versions(0, 3)] = 0
    error_message: Annotated[NullableString, Versions(1, 3)] = ""
    node_id: Annotated[Int32, Versions(0, 3)] = 0
    host: Annotated[String, Versions(0, 3)] = ""
    port: Annotated[Int32, Versions(0, 3)] = 0
    coordinators: Annotated[Sequence[Coordinator], Since(4)] = ()


FIND_COORDINATOR = Api(
    10, FindCoordinatorRequest, FindCoordinatorResponse, versions=(0, 6), flexible=3
)


class ApiVersionsRequest(ApiMessage, frozen=True, gc=False):
    """ApiVersions request, API 18. Source: ApiVersionsRequest.json."""

    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersion(Part, frozen=True, gc=False):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Part, frozen=True, gc=False):
    name: Annotated[String, Since(3)] = ""
    min_version: Annotated[Int16, Since(3)] = 0
    max_version: Annotated[Int16, Since(3)] = 0


class FinalizedFeatureKey(Part, frozen=True, gc=False):
    name: Annotated[String, Since(3)] = ""
    max_version_level: Annotated[Int16, Since(3)] = 0
    min_version_level: Annotated[Int16, Since(3)] = 0


class ApiVersionsResponse(ApiMessage, frozen=True, gc=False):
    """ApiVersions response. Source: ApiVersionsResponse.json."""

    error_code: Int16 = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[Sequence[SupportedFeatureKey], Since(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tag(1)] = -1
    finalized_features: Annotated[Sequence[FinalizedFeatureKey], Since(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Bool, Since(3), Tag(3)] = False


API_VERSIONS = Api(18, ApiVersionsRequest, ApiVersionsResponse, versions=(0, 4), flexible=3)


class DescribeClusterRequest(ApiMessage, frozen=True, gc=False):
    """DescribeCluster request, API 60. Source: DescribeClusterRequest.json."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Bool, Since(2)] = False


class DescribeClusterBroker(Part, frozen=True, gc=False):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None
    is_fenced: Annotated[Bool, Since(2)] = False


class DescribeClusterResponse(ApiMessage, frozen=True, gc=False):
    """DescribeCluster response. Source: DescribeClusterResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: Int32 = -2147483648


DESCRIBE_CLUSTER = Api(
    60, DescribeClusterRequest, DescribeClusterResponse, versions=(0, 2), flexible=0
)


class DescribedTopicName(Part, frozen=True, gc=False):
    name: String = ""


class PartitionCursor(Part, frozen=True, gc=False):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeTopicPartitions request, API 75. Source: DescribeTopicPartitionsRequest.json."""

    topics: Sequence[DescribedTopicName] = ()
    response_partition_limit: Int32 = 2000
    cursor: PartitionCursor | None = None


class DescribeTopicPartitionsResponsePartition(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = ()


class DescribeTopicPartitionsResponseTopic(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    name: NullableString = ""
    topic_id: Uuid = NO_ID
    is_internal: Bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeTopicPartitions response. Source: DescribeTopicPartitionsResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: PartitionCursor | None = None


DESCRIBE_TOPIC_PARTITIONS = Api(
    75, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, versions=(0, 0), flexible=0
)
