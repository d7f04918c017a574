"""22 InitProducerId."""

from __future__ import annotations

from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Since,
)


class InitProducerIdRequest(Message, frozen=True, gc=False):
    """InitProducerId request. Source: InitProducerIdRequest.json."""

    transactional_id: NullableString = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Since(3)] = -1
    producer_epoch: Annotated[Int16, Since(3)] = -1


class InitProducerIdResponse(Message, frozen=True, gc=False):
    """InitProducerId response. Source: InitProducerIdResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


INIT_PRODUCER_ID = Api(
    22, InitProducerIdRequest, InitProducerIdResponse, versions=(0, 5), flexible=2
)
