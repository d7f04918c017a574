"""25 AddOffsetsToTxn."""

from __future__ import annotations

from steelyard.wire.kafka.schema import Api, Int16, Int32, Int64, Message, String


class AddOffsetsToTxnRequest(Message, frozen=True, gc=False):
    """AddOffsetsToTxn request. Source: AddOffsetsToTxnRequest.json."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message, frozen=True, gc=False):
    """AddOffsetsToTxn response. Source: AddOffsetsToTxnResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


ADD_OFFSETS_TO_TXN = Api(
    25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, versions=(0, 4), flexible=3
)
