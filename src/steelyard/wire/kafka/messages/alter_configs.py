"""33 AlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    Api,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    String,
)


class AlterableConfig(Part, frozen=True, gc=False):
    name: String = ""
    value: NullableString = ""


class AlterConfigsResource(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[AlterableConfig] = ()


class AlterConfigsRequest(Message, frozen=True, gc=False):
    """AlterConfigs request. Source: AlterConfigsRequest.json."""

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message, frozen=True, gc=False):
    """AlterConfigs response. Source: AlterConfigsResponse.json."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


ALTER_CONFIGS = Api(33, AlterConfigsRequest, AlterConfigsResponse, versions=(0, 2), flexible=2)
