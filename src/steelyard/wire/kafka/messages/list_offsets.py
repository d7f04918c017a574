"""2 ListOffsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import Api, Int8, Int16, Int32, Int64, Message, Part, Since, String

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
"""Timestamps that stand for offsets. Source: ListOffsetsRequest.java."""


class ListOffsetsPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[ListOffsetsPartition] = ()


class ListOffsetsRequest(Message, frozen=True, gc=False):
    """ListOffsets request. Source: ListOffsetsRequest.json."""

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResponse(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(Message, frozen=True, gc=False):
    """ListOffsets response. Source: ListOffsetsResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()


LIST_OFFSETS = Api(2, ListOffsetsRequest, ListOffsetsResponse, versions=(1, 11), flexible=6)
