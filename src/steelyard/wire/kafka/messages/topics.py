"""Making and deleting topics: APIs 19, 20 and 37."""

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
    NullableString,
    Part,
    Since,
    String,
    Tag,
    Uuid,
    Versions,
)


class CreatableReplicaAssignment(Part, frozen=True, gc=False):
    partition_index: Int32 = 0
    broker_ids: Sequence[Int32] = ()


class CreatableTopicConfig(Part, frozen=True, gc=False):
    name: String = ""
    value: NullableString = ""


class CreatableTopic(Part, frozen=True, gc=False):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


class CreateTopicsRequest(ApiMessage, frozen=True, gc=False):
    """CreateTopics request, API 19. Source: CreateTopicsRequest.json."""

    topics: Sequence[CreatableTopic] = ()
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreatableTopicConfigs(Part, frozen=True, gc=False):
    name: Annotated[String, Since(5)] = ""
    value: Annotated[NullableString, Since(5)] = ""
    read_only: Annotated[Bool, Since(5)] = False
    config_source: Annotated[Int8, Since(5)] = -1
    is_sensitive: Annotated[Bool, Since(5)] = False


class CreatableTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    topic_id: Annotated[Uuid, Since(7)] = NO_ID
    error_code: Int16 = 0
    error_message: NullableString = ""
    topic_config_error_code: Annotated[Int16, Since(5), Tag(0)] = 0
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[Sequence[CreatableTopicConfigs] | None, Since(5)] = ()


class CreateTopicsResponse(ApiMessage, frozen=True, gc=False):
    """CreateTopics response. Source: CreateTopicsResponse.json."""

    throttle_time_ms: Int32 = 0
    topics: Sequence[CreatableTopicResult] = ()


CREATE_TOPICS = Api(19, CreateTopicsRequest, CreateTopicsResponse, versions=(2, 7), flexible=5)


class DeleteTopicState(Part, frozen=True, gc=False):
    name: Annotated[NullableString, Since(6)] = None
    topic_id: Annotated[Uuid, Since(6)] = NO_ID


class DeleteTopicsRequest(ApiMessage, frozen=True, gc=False):
    """DeleteTopics request, API 20. Source: DeleteTopicsRequest.json."""

    topics: Annotated[Sequence[DeleteTopicState], Since(6)] = ()
    topic_names: Annotated[Sequence[String], Versions(1, 5)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Part, frozen=True, gc=False):
    name: NullableString = ""
    topic_id: Annotated[Uuid, Since(6)] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(5)] = None


class DeleteTopicsResponse(ApiMessage, frozen=True, gc=False):
    """DeleteTopics response. Source: DeleteTopicsResponse.json."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult] = ()


DELETE_TOPICS = Api(20, DeleteTopicsRequest, DeleteTopicsResponse, versions=(1, 6), flexible=4)


class CreatePartitionsAssignment(Part, frozen=True, gc=False):
    broker_ids: Sequence[Int32] = ()


class CreatePartitionsTopic(Part, frozen=True, gc=False):
    name: String = ""
    count: Int32 = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(ApiMessage, frozen=True, gc=False):
    """CreatePartitions request, API 37. Source: CreatePartitionsRequest.json."""

    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    error_code: Int16 = 0
    error_message: NullableString = None


class CreatePartitionsResponse(ApiMessage, frozen=True, gc=False):
    """CreatePartitions response. Source: CreatePartitionsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[CreatePartitionsTopicResult] = ()


CREATE_PARTITIONS = Api(
    37, CreatePartitionsRequest, CreatePartitionsResponse, versions=(0, 3), flexible=2
)
