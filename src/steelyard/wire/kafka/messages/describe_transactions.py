"""65 DescribeTransactions."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import Api, Int16, Int32, Int64, Message, Part, String


class DescribeTransactionsRequest(Message, frozen=True, gc=False):
    """DescribeTransactions request. Source: DescribeTransactionsRequest.json."""

    transactional_ids: Sequence[String] = ()


class TopicData(Part, frozen=True, gc=False):
    topic: String = ""
    partitions: Sequence[Int32] = ()


class TransactionState(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(Message, frozen=True, gc=False):
    """DescribeTransactions response. Source: DescribeTransactionsResponse.json."""

    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[TransactionState] = ()


DESCRIBE_TRANSACTIONS = Api(
    65, DescribeTransactionsRequest, DescribeTransactionsResponse, versions=(0, 0), flexible=0
)
