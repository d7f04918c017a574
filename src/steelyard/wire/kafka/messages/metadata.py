"""3 Metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
    Versions,
)


class MetadataRequestTopic(Part, frozen=True, gc=False):
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    name: NullableString = ""


class MetadataRequest(Message, frozen=True, gc=False):
    """Metadata request. Source: MetadataRequest.json."""

    topics: Sequence[MetadataRequestTopic] | None = ()
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataResponseBroker(Part, frozen=True, gc=False):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[NullableString, Since(1)] = None


class MetadataResponsePartition(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    offline_replicas: Annotated[Sequence[Int32], Since(5)] = ()


class MetadataResponseTopic(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    name: NullableString = ""
    topic_id: Annotated[Uuid, Since(10)] = NO_ID
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = -2147483648


class MetadataResponse(Message, frozen=True, gc=False):
    """Metadata response. Source: MetadataResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: Annotated[NullableString, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: Annotated[Int32, Versions(8, 10)] = -2147483648
    error_code: Annotated[Int16, Since(13)] = 0


METADATA = Api(3, MetadataRequest, MetadataResponse, versions=(0, 13), flexible=9)
