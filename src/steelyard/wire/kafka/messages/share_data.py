"""What members of share groups move (KIP-932, KIP-1206, KIP-1222): APIs 78 and 79."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.messages.data import LeaderIdAndEpoch, NodeEndpoint
from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    ApiMessage,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableRecords,
    NullableString,
    Part,
    Since,
    Uuid,
)


class AcknowledgementBatch(Part, frozen=True, gc=False):
    """Offsets from first to last, with one type for all of them or one for each.

    Types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
    """

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: Sequence[Int8] = ()


class AcknowledgePartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class AcknowledgeTopic(Part, frozen=True, gc=False):
    """A topic of either request: ShareFetch has the same structure under another name."""

    topic_id: Uuid = NO_ID
    partitions: Sequence[AcknowledgePartition] = ()


class ForgottenShareTopic(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[Int32] = ()


class ShareFetchRequest(ApiMessage, frozen=True, gc=False):
    """ShareFetch request, API 78. Source: ShareFetchRequest.json."""

    group_id: NullableString = None
    member_id: NullableString = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Annotated[Int8, Since(2)] = 0
    is_renew_ack: Annotated[Bool, Since(2)] = False
    topics: Sequence[AcknowledgeTopic] = ()
    forgotten_topics_data: Sequence[ForgottenShareTopic] = ()


class AcquiredRecords(Part, frozen=True, gc=False):
    """Offsets from first to last that the member has now, for the how-manieth time."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class SharePartitionData(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: NullableString = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(0, 0)
    records: NullableRecords = b""
    acquired_records: Sequence[AcquiredRecords] = ()


class ShareFetchableTopicResponse(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[SharePartitionData] = ()


class ShareFetchResponse(ApiMessage, frozen=True, gc=False):
    """ShareFetch response. Source: ShareFetchResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: Sequence[ShareFetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


SHARE_FETCH = Api(78, ShareFetchRequest, ShareFetchResponse, versions=(1, 2), flexible=0)


class ShareAcknowledgeRequest(ApiMessage, frozen=True, gc=False):
    """ShareAcknowledge request, API 79. Source: ShareAcknowledgeRequest.json."""

    group_id: NullableString = None
    member_id: NullableString = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[Bool, Since(2)] = False
    topics: Sequence[AcknowledgeTopic] = ()


class ShareAcknowledgePartitionData(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(0, 0)


class ShareAcknowledgeTopicResponse(Part, frozen=True, gc=False):
    topic_id: Uuid = NO_ID
    partitions: Sequence[ShareAcknowledgePartitionData] = ()


class ShareAcknowledgeResponse(ApiMessage, frozen=True, gc=False):
    """ShareAcknowledge response. Source: ShareAcknowledgeResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Annotated[Int32, Since(2)] = 0
    responses: Sequence[ShareAcknowledgeTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()


SHARE_ACKNOWLEDGE = Api(
    79, ShareAcknowledgeRequest, ShareAcknowledgeResponse, versions=(1, 2), flexible=0
)
