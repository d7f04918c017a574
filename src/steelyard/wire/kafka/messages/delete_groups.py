"""42 DeleteGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
)


class DeleteGroupsRequest(Message, frozen=True, gc=False):
    """DeleteGroups request. Source: DeleteGroupsRequest.json."""

    groups_names: Sequence[String] = ()


class DeletableGroupResult(Part, frozen=True, gc=False):
    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(3)] = None


class DeleteGroupsResponse(Message, frozen=True, gc=False):
    """DeleteGroups response. Source: DeleteGroupsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DeletableGroupResult] = ()


DELETE_GROUPS = Api(42, DeleteGroupsRequest, DeleteGroupsResponse, versions=(0, 3), flexible=2)
