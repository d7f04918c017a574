"""Where partitions lie, and who leads them: APIs 34, 43, 45 and 46."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
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
)


class TopicPartitions(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class ElectLeadersRequest(ApiMessage, frozen=True, gc=False):
    """ElectLeaders request, API 43. Source: ElectLeadersRequest.json."""

    election_type: Annotated[Int8, Since(1)] = 0
    topic_partitions: Sequence[TopicPartitions] | None = ()
    timeout_ms: Int32 = 60000


class PartitionResult(Part, frozen=True, gc=False):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReplicaElectionResult(Part, frozen=True, gc=False):
    topic: String = ""
    partition_result: Sequence[PartitionResult] = ()


class ElectLeadersResponse(ApiMessage, frozen=True, gc=False):
    """ElectLeaders response. Source: ElectLeadersResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(1)] = 0
    replica_election_results: Sequence[ReplicaElectionResult] = ()


ELECT_LEADERS = Api(43, ElectLeadersRequest, ElectLeadersResponse, versions=(0, 2), flexible=2)


class ReassignablePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    replicas: Sequence[Int32] | None = None


class ReassignableTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(ApiMessage, frozen=True, gc=False):
    """AlterPartitionReassignments request, API 45.

    Source: AlterPartitionReassignmentsRequest.json.
    """

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    topics: Sequence[ReassignableTopic] = ()


class ReassignablePartitionResponse(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


class ReassignableTopicResponse(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(ApiMessage, frozen=True, gc=False):
    """AlterPartitionReassignments response. Source: AlterPartitionReassignmentsResponse.json."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Annotated[Bool, Since(1)] = True
    error_code: Int16 = 0
    error_message: NullableString = ""
    responses: Sequence[ReassignableTopicResponse] = ()


ALTER_PARTITION_REASSIGNMENTS = Api(
    45,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    versions=(0, 1),
    flexible=0,
)


class ListPartitionReassignmentsTopics(Part, frozen=True, gc=False):
    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class ListPartitionReassignmentsRequest(ApiMessage, frozen=True, gc=False):
    """ListPartitionReassignments request, API 46.

    Source: ListPartitionReassignmentsRequest.json.
    """

    timeout_ms: Int32 = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    replicas: Sequence[Int32] = ()
    adding_replicas: Sequence[Int32] = ()
    removing_replicas: Sequence[Int32] = ()


class OngoingTopicReassignment(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(ApiMessage, frozen=True, gc=False):
    """ListPartitionReassignments response. Source: ListPartitionReassignmentsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    topics: Sequence[OngoingTopicReassignment] = ()


LIST_PARTITION_REASSIGNMENTS = Api(
    46,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions=(0, 0),
    flexible=0,
)


class AlterReplicaLogDirTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[Int32] = ()


class AlterReplicaLogDir(Part, frozen=True, gc=False):
    path: String = ""
    topics: Sequence[AlterReplicaLogDirTopic] = ()


class AlterReplicaLogDirsRequest(ApiMessage, frozen=True, gc=False):
    """AlterReplicaLogDirs request, API 34. Source: AlterReplicaLogDirsRequest.json."""

    dirs: Sequence[AlterReplicaLogDir] = ()


class AlterReplicaLogDirPartitionResult(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Part, frozen=True, gc=False):
    topic_name: String = ""
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = ()


class AlterReplicaLogDirsResponse(ApiMessage, frozen=True, gc=False):
    """AlterReplicaLogDirs response. Source: AlterReplicaLogDirsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[AlterReplicaLogDirTopicResult] = ()


ALTER_REPLICA_LOG_DIRS = Api(
    34, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, versions=(1, 2), flexible=2
)
