"""26 EndTxn."""

from __future__ import annotations

from steelyard.wire.kafka.schema import Api, Bool, Int16, Int32, Int64, Message, String


class EndTxnRequest(Message, frozen=True, gc=False):
    """EndTxn request. Source: EndTxnRequest.json."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message, frozen=True, gc=False):
    """EndTxn response. Source: EndTxnResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


END_TXN = Api(26, EndTxnRequest, EndTxnResponse, versions=(0, 4), flexible=3)
