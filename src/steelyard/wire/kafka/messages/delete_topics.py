"""20 DeleteTopics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    NO_ID,
    Api,
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


class DeleteTopicState(Part, frozen=True, gc=False):
    name: Annotated[NullableString, Since(6)] = None
    topic_id: Annotated[Uuid, Since(6)] = NO_ID


class DeleteTopicsRequest(Message, frozen=True, gc=False):
    """DeleteTopics request. Source: DeleteTopicsRequest.json."""

    topics: Annotated[Sequence[DeleteTopicState], Since(6)] = ()
    topic_names: Annotated[Sequence[String], Versions(1, 5)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Part, frozen=True, gc=False):
    name: NullableString = ""
    topic_id: Annotated[Uuid, Since(6)] = NO_ID
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(5)] = None


class DeleteTopicsResponse(Message, frozen=True, gc=False):
    """DeleteTopics response. Source: DeleteTopicsResponse.json."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult] = ()


DELETE_TOPICS = Api(20, DeleteTopicsRequest, DeleteTopicsResponse, versions=(1, 6), flexible=4)
