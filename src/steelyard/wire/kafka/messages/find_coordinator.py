"""10 FindCoordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Versions,
)


class FindCoordinatorRequest(Message, frozen=True, gc=False):
    """FindCoordinator request. Source: FindCoordinatorRequest.json."""

    key: Annotated[String, Versions(0, 3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[Sequence[String], Since(4)] = ()


class Coordinator(Part, frozen=True, gc=False):
    key: Annotated[String, Since(4)] = ""
    node_id: Annotated[Int32, Since(4)] = 0
    host: Annotated[String, Since(4)] = ""
    port: Annotated[Int32, Since(4)] = 0
    error_code: Annotated[Int16, Since(4)] = 0
    error_message: Annotated[NullableString, Since(4)] = ""


class FindCoordinatorResponse(Message, frozen=True, gc=False):
    """FindCoordinator response. Source: FindCoordinatorResponse.json."""

    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Versions(0, 3)] = 0
    error_message: Annotated[NullableString, Versions(1, 3)] = ""
    node_id: Annotated[Int32, Versions(0, 3)] = 0
    host: Annotated[String, Versions(0, 3)] = ""
    port: Annotated[Int32, Versions(0, 3)] = 0
    coordinators: Annotated[Sequence[Coordinator], Since(4)] = ()


FIND_COORDINATOR = Api(
    10, FindCoordinatorRequest, FindCoordinatorResponse, versions=(0, 6), flexible=3
)
