"""9 OffsetFetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
    Versions,
)


class OffsetFetchRequestTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(1, 7)] = ""
    partition_indexes: Annotated[Sequence[Int32], Versions(1, 7)] = ()


class OffsetFetchRequestTopics(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(8, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partition_indexes: Annotated[Sequence[Int32], Since(8)] = ()


class OffsetFetchRequestGroup(Part, frozen=True, gc=False):
    group_id: Annotated[String, Since(8)] = ""
    member_id: Annotated[NullableString, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: Annotated[Sequence[OffsetFetchRequestTopics] | None, Since(8)] = ()


class OffsetFetchRequest(Message, frozen=True, gc=False):
    """OffsetFetch request. Source: OffsetFetchRequest.json."""

    group_id: Annotated[String, Versions(1, 7)] = ""
    topics: Annotated[Sequence[OffsetFetchRequestTopic] | None, Versions(1, 7)] = ()
    groups: Annotated[Sequence[OffsetFetchRequestGroup], Since(8)] = ()
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchResponsePartition(Part, frozen=True, gc=False):
    partition_index: Annotated[Int32, Versions(1, 7)] = 0
    committed_offset: Annotated[Int64, Versions(1, 7)] = 0
    committed_leader_epoch: Annotated[Int32, Versions(5, 7)] = -1
    metadata: Annotated[NullableString, Versions(1, 7)] = ""
    error_code: Annotated[Int16, Versions(1, 7)] = 0


class OffsetFetchResponseTopic(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(1, 7)] = ""
    partitions: Annotated[Sequence[OffsetFetchResponsePartition], Versions(1, 7)] = ()


class OffsetFetchResponsePartitions(Part, frozen=True, gc=False):
    partition_index: Annotated[Int32, Since(8)] = 0
    committed_offset: Annotated[Int64, Since(8)] = 0
    committed_leader_epoch: Annotated[Int32, Since(8)] = -1
    metadata: Annotated[NullableString, Since(8)] = ""
    error_code: Annotated[Int16, Since(8)] = 0


class OffsetFetchResponseTopics(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(8, 9)] = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    partitions: Annotated[Sequence[OffsetFetchResponsePartitions], Since(8)] = ()


class OffsetFetchResponseGroup(Part, frozen=True, gc=False):
    group_id: Annotated[String, Since(8)] = ""
    topics: Annotated[Sequence[OffsetFetchResponseTopics], Since(8)] = ()
    error_code: Annotated[Int16, Since(8)] = 0


class OffsetFetchResponse(Message, frozen=True, gc=False):
    """OffsetFetch response. Source: OffsetFetchResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[Sequence[OffsetFetchResponseTopic], Versions(1, 7)] = ()
    error_code: Annotated[Int16, Versions(2, 7)] = 0
    groups: Annotated[Sequence[OffsetFetchResponseGroup], Since(8)] = ()


OFFSET_FETCH = Api(9, OffsetFetchRequest, OffsetFetchResponse, versions=(1, 10), flexible=6)
