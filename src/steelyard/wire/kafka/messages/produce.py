"""0 Produce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Int16,
    Int32,
    Int64,
    Message,
    NullableRecords,
    NullableString,
    Part,
    Since,
    String,
    Tag,
    Uuid,
    Versions,
)


class PartitionProduceData(Part, frozen=True, gc=False):
    index: Int32 = 0
    records: NullableRecords = b""


class TopicProduceData(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(3, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partition_data: Sequence[PartitionProduceData] = ()


class ProduceRequest(Message, frozen=True, gc=False):
    """Produce request. Source: ProduceRequest.json."""

    transactional_id: NullableString = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: Sequence[TopicProduceData] = ()


class BatchIndexAndErrorMessage(Part, frozen=True, gc=False):
    batch_index: Annotated[Int32, Since(8)] = 0
    batch_index_error_message: Annotated[NullableString, Since(8)] = None


class LeaderIdAndEpoch(Part, frozen=True, gc=False):
    leader_id: Annotated[Int32, Since(10)] = -1
    leader_epoch: Annotated[Int32, Since(10)] = -1


class PartitionProduceResponse(Part, frozen=True, gc=False):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Since(5)] = -1
    record_errors: Annotated[Sequence[BatchIndexAndErrorMessage], Since(8)] = ()
    error_message: Annotated[NullableString, Since(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, Since(10), Tag(0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Part, frozen=True, gc=False):
    name: Annotated[String, Versions(3, 12)] = ""
    topic_id: Annotated[Uuid, Since(13)] = NO_ID
    partition_responses: Sequence[PartitionProduceResponse] = ()


class NodeEndpoint(Part, frozen=True, gc=False):
    node_id: Annotated[Int32, Since(10)] = 0
    host: Annotated[String, Since(10)] = ""
    port: Annotated[Int32, Since(10)] = 0
    rack: Annotated[NullableString, Since(10)] = None


class ProduceResponse(Message, frozen=True, gc=False):
    """Produce response. Source: ProduceResponse.json."""

    responses: Sequence[TopicProduceResponse] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[Sequence[NodeEndpoint], Since(10), Tag(0)] = ()


PRODUCE = Api(0, ProduceRequest, ProduceResponse, versions=(3, 13), flexible=9)
