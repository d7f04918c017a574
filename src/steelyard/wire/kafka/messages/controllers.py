"""What controllers keep: their quorum, features and brokers: APIs 55, 57 and 64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
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
    Uint16,
    Uuid,
    Versions,
)


class QuorumPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0


class QuorumTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    partitions: Sequence[QuorumPartition] = ()


class DescribeQuorumRequest(ApiMessage, frozen=True, gc=False):
    """DescribeQuorum request, API 55. Source: DescribeQuorumRequest.json."""

    topics: Sequence[QuorumTopic] = ()


class ReplicaState(Part, frozen=True, gc=False):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, Since(2)] = NO_ID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, Since(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, Since(1)] = -1


class DescribedQuorumPartition(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(2)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: Sequence[ReplicaState] = ()
    observers: Sequence[ReplicaState] = ()


class DescribedQuorumTopic(Part, frozen=True, gc=False):
    topic_name: String = ""
    partitions: Sequence[DescribedQuorumPartition] = ()


class QuorumListener(Part, frozen=True, gc=False):
    name: Annotated[String, Since(2)] = ""
    host: Annotated[String, Since(2)] = ""
    port: Annotated[Uint16, Since(2)] = 0


class QuorumNode(Part, frozen=True, gc=False):
    node_id: Annotated[Int32, Since(2)] = 0
    listeners: Annotated[Sequence[QuorumListener], Since(2)] = ()


class DescribeQuorumResponse(ApiMessage, frozen=True, gc=False):
    """DescribeQuorum response. Source: DescribeQuorumResponse.json."""

    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(2)] = ""
    topics: Sequence[DescribedQuorumTopic] = ()
    nodes: Annotated[Sequence[QuorumNode], Since(2)] = ()


DESCRIBE_QUORUM = Api(
    55, DescribeQuorumRequest, DescribeQuorumResponse, versions=(0, 2), flexible=0
)


class FeatureUpdateKey(Part, frozen=True, gc=False):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, Versions(0, 0)] = False
    upgrade_type: Annotated[Int8, Since(1)] = 1


class UpdateFeaturesRequest(ApiMessage, frozen=True, gc=False):
    """UpdateFeatures request, API 57. Source: UpdateFeaturesRequest.json."""

    timeout_ms: Int32 = 60000
    feature_updates: Sequence[FeatureUpdateKey] = ()
    validate_only: Annotated[Bool, Since(1)] = False


class UpdatableFeatureResult(Part, frozen=True, gc=False):
    feature: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""


class UpdateFeaturesResponse(ApiMessage, frozen=True, gc=False):
    """UpdateFeatures response. Source: UpdateFeaturesResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    results: Annotated[Sequence[UpdatableFeatureResult], Versions(0, 1)] = ()


UPDATE_FEATURES = Api(
    57, UpdateFeaturesRequest, UpdateFeaturesResponse, versions=(0, 2), flexible=0
)


class UnregisterBrokerRequest(ApiMessage, frozen=True, gc=False):
    """UnregisterBroker request, API 64. Source: UnregisterBrokerRequest.json."""

    broker_id: Int32 = 0


class UnregisterBrokerResponse(ApiMessage, frozen=True, gc=False):
    """UnregisterBroker response. Source: UnregisterBrokerResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""


UNREGISTER_BROKER = Api(
    64, UnregisterBrokerRequest, UnregisterBrokerResponse, versions=(0, 0), flexible=0
)
