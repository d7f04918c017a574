"""19 CreateTopics, 20 DeleteTopics, 33 AlterConfigs, 37 CreatePartitions, 44 IncrementalAlterConfigs, where they name very many topics.

They are handled in parts (`wide`). How much one of them may change is bounded as in Apache Kafka: POLICY_VIOLATION for all of
it. (There each partition counts, here what the request names.)
Source: metadata/controller/QuorumController.java MAX_RECORDS_PER_USER_OP, errors/EventHandlerExceptionInfo.java.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from steelyard.wire.kafka.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

RECORDS_MAX = 10_000
"""Topics, and settings and assignments of them, that one request may name."""
TEXT = f"Unable to perform excessively large batch operation: at most {RECORDS_MAX:,} topics, settings and assignments a request."

Alter = AlterConfigsRequest | IncrementalAlterConfigsRequest


def _array(message: ApiMessage) -> str | None:
    """The field that names what is to be changed, None in a request that changes no topics."""
    if isinstance(message, CreateTopicsRequest | CreatePartitionsRequest):
        return "topics"
    if isinstance(message, DeleteTopicsRequest):
        return "topics" if message.topics else "topic_names"
    return "resources" if isinstance(message, Alter) else None


def _name(item: Any) -> Hashable:
    if isinstance(item, str | DeleteTopicState):
        return item
    if hasattr(item, "resource_name"):
        return item.resource_type, item.resource_name
    name: str = item.name
    return name


def is_excessive(message: ApiMessage) -> bool:
    """Whether it changes more than one request may."""
    array = _array(message)
    count = 0
    for item in getattr(message, array) if array else ():
        count += 1 + len(getattr(item, "configs", ())) + len(getattr(item, "assignments", ()) or ())
        if count > RECORDS_MAX:
            return True
    return False


def with_duplicates_first(message: ApiMessage) -> ApiMessage:
    """The request with what it names more than once at the beginning, as pairs: both are in one part, which refuses them."""
    array = _array(message)
    if array is None:
        return message
    named: dict[Hashable, list[Any]] = {}
    for item in getattr(message, array):
        some = named.setdefault(_name(item), [])
        if len(some) < 2:
            some.append(item)
    pairs_first = sorted(named.values(), key=len, reverse=True)
    return replace(message, **{array: list(chain.from_iterable(pairs_first))})


def refused(message: ApiMessage) -> ApiMessage:
    """The answer to a request that is excessive, or to a part of it."""
    code = ErrorCode.POLICY_VIOLATION
    if isinstance(message, CreateTopicsRequest):
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(topic.name, NO_ID, code, TEXT, configs=())
                for topic in message.topics
            ]
        )
    if isinstance(message, CreatePartitionsRequest):
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(topic.name, code, TEXT) for topic in message.topics
            ]
        )
    if isinstance(message, DeleteTopicsRequest):
        states: Sequence[DeleteTopicState] = message.topics or [
            DeleteTopicState(name) for name in message.topic_names
        ]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(state.name, state.topic_id, code, TEXT) for state in states
            ]
        )
    assert isinstance(message, Alter)
    responses = [
        AlterConfigsResourceResponse(code, TEXT, each.resource_type, each.resource_name)
        for each in message.resources
    ]
    if isinstance(message, AlterConfigsRequest):
        return AlterConfigsResponse(responses=responses)
    return IncrementalAlterConfigsResponse(responses=responses)
