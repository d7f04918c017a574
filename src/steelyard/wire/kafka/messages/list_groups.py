"""16 ListGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import Api, Int16, Int32, Message, Part, Since, String


class ListGroupsRequest(Message, frozen=True, gc=False):
    """ListGroups request. Source: ListGroupsRequest.json."""

    states_filter: Annotated[Sequence[String], Since(4)] = ()
    types_filter: Annotated[Sequence[String], Since(5)] = ()


class ListedGroup(Part, frozen=True, gc=False):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


class ListGroupsResponse(Message, frozen=True, gc=False):
    """ListGroups response. Source: ListGroupsResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: Sequence[ListedGroup] = ()


LIST_GROUPS = Api(16, ListGroupsRequest, ListGroupsResponse, versions=(0, 5), flexible=3)
