"""27 WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Part,
    Since,
    String,
)


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


class WriteTxnMarkersRequest(Message, frozen=True, gc=False):
    """WriteTxnMarkers request. Source: WriteTxnMarkersRequest.json."""

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


class WriteTxnMarkersResponse(Message, frozen=True, gc=False):
    """WriteTxnMarkers response. Source: WriteTxnMarkersResponse.json."""

    markers: Sequence[WritableTxnMarkerResult] = ()


WRITE_TXN_MARKERS = Api(
    27, WriteTxnMarkersRequest, WriteTxnMarkersResponse, versions=(1, 2), flexible=1
)
