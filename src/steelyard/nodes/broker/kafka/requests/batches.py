"""Limits how much one request may change in topics and their settings.

Applies to 19 CreateTopics, 20 DeleteTopics, 33 AlterConfigs, 37 CreatePartitions and 44
IncrementalAlterConfigs, which are handled in parts if they name very many topics (`wide`). As in
Apache Kafka, a request that changes too much is refused as a whole with POLICY_VIOLATION. (Kafka
counts every partition; here, what the request names is counted.)
Source: metadata/controller/QuorumController.java MAX_RECORDS_PER_USER_OP,
errors/EventHandlerExceptionInfo.java.
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
)
from steelyard.wire.kafka.schema import ApiMessage

RECORDS_MAX = 10_000
"""Most topics, settings and assignments that one request may name."""
TEXT = (
    f"Unable to perform excessively large batch operation: at most {RECORDS_MAX:,} topics, settings"
    " and assignments a request."
)

_ANSWERS: dict[type[ApiMessage], tuple[Any, str, Any]] = {
    CreateTopicsRequest: (CreateTopicsResponse, "topics", CreatableTopicResult),
    DeleteTopicsRequest: (DeleteTopicsResponse, "responses", DeletableTopicResult),
    AlterConfigsRequest: (AlterConfigsResponse, "responses", AlterConfigsResourceResponse),
    CreatePartitionsRequest: (CreatePartitionsResponse, "results", CreatePartitionsTopicResult),
    IncrementalAlterConfigsRequest: (
        IncrementalAlterConfigsResponse,
        "responses",
        AlterConfigsResourceResponse,
    ),
}
"""The response, its array, and the result for each of the request's items."""
_NAMES = ("name", "topic_id", "resource_type", "resource_name")


def _items(message: ApiMessage) -> tuple[str, Sequence[Any]]:
    """Return the name and the items of the array that names what to change."""
    for array in ("resources", "topics", "topic_names"):
        items = getattr(message, array, None)
        if items:
            return array, items
    return "", ()


def _named(item: Any) -> dict[str, Any]:
    """Return what identifies an item in the request and in the answer."""
    if isinstance(item, str):
        return {"name": item}
    return {name: getattr(item, name) for name in _NAMES if hasattr(item, name)}


def is_excessive(message: ApiMessage) -> bool:
    """Return whether a request changes more than one may."""
    count = 0
    for item in _items(message)[1] if type(message) in _ANSWERS else ():
        count += 1 + len(getattr(item, "configs", ())) + len(getattr(item, "assignments", ()) or ())
        if count > RECORDS_MAX:
            return True
    return False


def with_duplicates_first(message: ApiMessage) -> ApiMessage:
    """Move names that occur more than once to the front of a request, in pairs.

    Both of a pair are then in the same part, which refuses them. Further repetitions are dropped.
    """
    array, items = _items(message)
    if type(message) not in _ANSWERS or not items:
        return message
    named: dict[Hashable, list[Any]] = {}
    for item in items:
        some = named.setdefault(tuple(_named(item).values()), [])
        if len(some) < 2:
            some.append(item)
    pairs_first = sorted(named.values(), key=len, reverse=True)
    return replace(message, **{array: list(chain.from_iterable(pairs_first))})


def refused(message: ApiMessage) -> ApiMessage:
    """Return the answer to an excessive request, or to a part of it."""
    response, array, result = _ANSWERS[type(message)]
    fault = {"error_code": ErrorCode.POLICY_VIOLATION, "error_message": TEXT}
    answers = [result(**_named(item), **fault) for item in _items(message)[1]]
    answer: ApiMessage = response(**{array: answers})
    return answer
