"""44 IncrementalAlterConfigs."""

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
    config_operation: Int8 = 0
    value: NullableString = ""


class AlterConfigsResource(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[AlterableConfig] = ()


class IncrementalAlterConfigsRequest(Message, frozen=True, gc=False):
    """IncrementalAlterConfigs request. Source: IncrementalAlterConfigsRequest.json."""

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message, frozen=True, gc=False):
    """IncrementalAlterConfigs response. Source: IncrementalAlterConfigsResponse.json."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


INCREMENTAL_ALTER_CONFIGS = Api(
    44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, versions=(0, 1), flexible=1
)
