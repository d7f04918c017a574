"""66 ListTransactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    Since,
    String,
)


class ListTransactionsRequest(Message, frozen=True, gc=False):
    """ListTransactions request. Source: ListTransactionsRequest.json."""

    state_filters: Sequence[String] = ()
    producer_id_filters: Sequence[Int64] = ()
    duration_filter: Annotated[Int64, Since(1)] = -1
    transactional_id_pattern: Annotated[NullableString, Since(2)] = None


class TransactionState(Part, frozen=True, gc=False):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message, frozen=True, gc=False):
    """ListTransactions response. Source: ListTransactionsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Sequence[String] = ()
    transaction_states: Sequence[TransactionState] = ()


LIST_TRANSACTIONS = Api(
    66, ListTransactionsRequest, ListTransactionsResponse, versions=(0, 2), flexible=0
)
