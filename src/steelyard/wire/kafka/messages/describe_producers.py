"""61 DescribeProducers."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    String,
)


class TopicRequest(Part, frozen=True, gc=False):
    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class DescribeProducersRequest(Message, frozen=True, gc=False):
    """DescribeProducers request. Source: DescribeProducersRequest.json."""

    topics: Sequence[TopicRequest] = ()


class ProducerState(Part, frozen=True, gc=False):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    active_producers: Sequence[ProducerState] = ()


class TopicResponse(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[PartitionResponse] = ()


class DescribeProducersResponse(Message, frozen=True, gc=False):
    """DescribeProducers response. Source: DescribeProducersResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[TopicResponse] = ()


DESCRIBE_PRODUCERS = Api(
    61, DescribeProducersRequest, DescribeProducersResponse, versions=(0, 0), flexible=0
)
