"""24 AddPartitionsToTxn."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import Api, Int16, Int32, Int64, Message, Part, String


class AddPartitionsToTxnTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[Int32] = ()


class AddPartitionsToTxnRequest(Message, frozen=True, gc=False):
    """AddPartitionsToTxn request. Source: AddPartitionsToTxnRequest.json."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnPartitionResult(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResponse(Message, frozen=True, gc=False):
    """AddPartitionsToTxn response. Source: AddPartitionsToTxnResponse.json."""

    throttle_time_ms: Int32 = 0
    results_by_topic: Sequence[AddPartitionsToTxnTopicResult] = ()


ADD_PARTITIONS_TO_TXN = Api(
    24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, versions=(0, 3), flexible=3
)
