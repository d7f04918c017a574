"""Producer ids and transactions: APIs 22, 24 to 27, 65 and 66."""

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
    Int64,
    NullableString,
    Part,
    Since,
    String,
    Versions,
)


class InitProducerIdRequest(ApiMessage, frozen=True, gc=False):
    """InitProducerId request, API 22. Source: InitProducerIdRequest.json."""

    transactional_id: NullableString = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


class InitProducerIdResponse(ApiMessage, frozen=True, gc=False):
    """InitProducerId response. Source: InitProducerIdResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


INIT_PRODUCER_ID = Api(
    22, InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5), flexible=2
)


class AddPartitionsToTxnTopic(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[Int32] = ()


ADDED_BY_BROKERS_SINCE = 4
"""First version of AddPartitionsToTxn that brokers send, not clients."""


class AddPartitionsToTxnTransaction(Part, frozen=True, gc=False):
    """The partitions that one transaction is about to write to.

    `verify_only`: they are not to be added, only looked for.
    """

    transactional_id: Annotated[String, Since(4)] = ""
    producer_id: Annotated[Int64, Since(4)] = 0
    producer_epoch: Annotated[Int16, Since(4)] = 0
    verify_only: Annotated[Bool, Since(4)] = False
    topics: Annotated[Sequence[AddPartitionsToTxnTopic], Since(4)] = ()


class AddPartitionsToTxnRequest(ApiMessage, frozen=True, gc=False):
    """AddPartitionsToTxn request, API 24. Source: AddPartitionsToTxnRequest.json.

    Versions up to 3 come from clients and are about one transaction; later ones from brokers.
    """

    transactional_id: Annotated[String, Versions(0, 3)] = ""
    producer_id: Annotated[Int64, Versions(0, 3)] = 0
    producer_epoch: Annotated[Int16, Versions(0, 3)] = 0
    topics: Annotated[Sequence[AddPartitionsToTxnTopic], Versions(0, 3)] = ()
    transactions: Annotated[Sequence[AddPartitionsToTxnTransaction], Since(4)] = ()


class AddPartitionsToTxnPartitionResult(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResult(Part, frozen=True, gc=False):
    transactional_id: Annotated[String, Since(4)] = ""
    topic_results: Annotated[Sequence[AddPartitionsToTxnTopicResult], Since(4)] = ()


class AddPartitionsToTxnResponse(ApiMessage, frozen=True, gc=False):
    """AddPartitionsToTxn response. Source: AddPartitionsToTxnResponse.json."""

    throttle_time_ms: Int32 = 0
    results_by_topic: Annotated[Sequence[AddPartitionsToTxnTopicResult], Versions(0, 3)] = ()
    error_code: Annotated[Int16, Since(4)] = 0
    results_by_transaction: Annotated[Sequence[AddPartitionsToTxnResult], Since(4)] = ()


ADD_PARTITIONS_TO_TXN = Api(
    24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, versions=(0, 5), flexible=3
)


class AddOffsetsToTxnRequest(ApiMessage, frozen=True, gc=False):
    """AddOffsetsToTxn request, API 25. Source: AddOffsetsToTxnRequest.json."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(ApiMessage, frozen=True, gc=False):
    """AddOffsetsToTxn response. Source: AddOffsetsToTxnResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


ADD_OFFSETS_TO_TXN = Api(
    25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, versions=(0, 4), flexible=3
)


class EndTxnRequest(ApiMessage, frozen=True, gc=False):
    """EndTxn request, API 26. Source: EndTxnRequest.json."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(ApiMessage, frozen=True, gc=False):
    """EndTxn response. Source: EndTxnResponse.json.

    `producer_id`, `producer_epoch`: those of the producer's next transaction (KIP-890).
    """

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Since(5)] = -1
    producer_epoch: Annotated[Int16, Since(5)] = -1


END_TXN = Api(26, EndTxnRequest, EndTxnResponse, versions=(0, 5), flexible=3)


class WritableTxnMarkerTopic(Part, frozen=True, gc=False):
    name: String = ""
    partition_indexes: Sequence[Int32] = ()


class WritableTxnMarker(Part, frozen=True, gc=False):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: Sequence[WritableTxnMarkerTopic] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, Since(2)] = 0


class WriteTxnMarkersRequest(ApiMessage, frozen=True, gc=False):
    """WriteTxnMarkers request, API 27. Source: WriteTxnMarkersRequest.json."""

    markers: Sequence[WritableTxnMarker] = ()


class WritableTxnMarkerPartitionResult(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    partitions: Sequence[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(Part, frozen=True, gc=False):
    producer_id: Int64 = 0
    topics: Sequence[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(ApiMessage, frozen=True, gc=False):
    """WriteTxnMarkers response. Source: WriteTxnMarkersResponse.json."""

    markers: Sequence[WritableTxnMarkerResult] = ()


WRITE_TXN_MARKERS = Api(
    27, WriteTxnMarkersRequest, WriteTxnMarkersResponse, versions=(1, 2), flexible=1
)


class DescribeTransactionsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeTransactions request, API 65. Source: DescribeTransactionsRequest.json."""

    transactional_ids: Sequence[String] = ()


class TopicData(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class DescribedTransaction(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeTransactions response. Source: DescribeTransactionsResponse.json."""

    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[DescribedTransaction] = ()


DESCRIBE_TRANSACTIONS = Api(
    65, DescribeTransactionsRequest, DescribeTransactionsResponse, versions=(0, 0), flexible=0
)


class ListTransactionsRequest(ApiMessage, frozen=True, gc=False):
    """ListTransactions request, API 66. Source: ListTransactionsRequest.json."""

    state_filters: Sequence[String] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[NullableString, Since(2)] = None


class ListedTransaction(Part, frozen=True, gc=False):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(ApiMessage, frozen=True, gc=False):
    """ListTransactions response. Source: ListTransactionsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[String] = ()
    transaction_states: Sequence[ListedTransaction] = ()


LIST_TRANSACTIONS = Api(
    66, ListTransactionsRequest, ListTransactionsResponse, versions=(0, 2), flexible=0
)
