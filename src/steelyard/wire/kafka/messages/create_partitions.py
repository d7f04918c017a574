"""37 CreatePartitions."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    Api,
    Bool,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    String,
)


class CreatePartitionsAssignment(Part, frozen=True, gc=False):
    broker_ids: Sequence[Int32] = ()


class CreatePartitionsTopic(Part, frozen=True, gc=False):
    name: String = ""
    count: Int32 = 0
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(Message, frozen=True, gc=False):
    """CreatePartitions request. Source: CreatePartitionsRequest.json."""

    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Part, frozen=True, gc=False):
    name: String = ""
    error_code: Int16 = 0
    error_message: NullableString = None


class CreatePartitionsResponse(Message, frozen=True, gc=False):
    """CreatePartitions response. Source: CreatePartitionsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[CreatePartitionsTopicResult] = ()


CREATE_PARTITIONS = Api(
    37, CreatePartitionsRequest, CreatePartitionsResponse, versions=(0, 3), flexible=2
)
