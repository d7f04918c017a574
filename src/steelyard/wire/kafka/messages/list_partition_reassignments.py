"""46 ListPartitionReassignments."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import Api, Int16, Int32, Message, NullableString, Part, String


class ListPartitionReassignmentsTopics(Part, frozen=True, gc=False):
    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class ListPartitionReassignmentsRequest(Message, frozen=True, gc=False):
    """ListPartitionReassignments request. Source: ListPartitionReassignmentsRequest.json."""

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


class ListPartitionReassignmentsResponse(Message, frozen=True, gc=False):
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
