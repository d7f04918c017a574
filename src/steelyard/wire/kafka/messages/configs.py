"""The settings of topics, groups and brokers: APIs 32, 33, 44 and 74."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
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
)

TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
GROUP_CONFIG = 8
"""Where a setting comes from. Source: DescribeConfigsResponse.ConfigSource."""


class DescribeConfigsResource(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Sequence[String] | None = ()


class DescribeConfigsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeConfigs request, API 32. Source: DescribeConfigsRequest.json."""

    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsSynonym(Part, frozen=True, gc=False):
    name: String = ""
    value: NullableString = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Part, frozen=True, gc=False):
    name: String = ""
    value: NullableString = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[NullableString, Since(3)] = ""


class DescribeConfigsResult(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[DescribeConfigsResourceResult] = ()


class DescribeConfigsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeConfigs response. Source: DescribeConfigsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DescribeConfigsResult] = ()


DESCRIBE_CONFIGS = Api(
    32, DescribeConfigsRequest, DescribeConfigsResponse, versions=(1, 4), flexible=4
)


class AlterableConfig(Part, frozen=True, gc=False):
    name: String = ""
    value: NullableString = ""


class AlterConfigsResource(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[AlterableConfig] = ()


class AlterConfigsRequest(ApiMessage, frozen=True, gc=False):
    """AlterConfigs request, API 33. Source: AlterConfigsRequest.json."""

    resources: Sequence[AlterConfigsResource] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(ApiMessage, frozen=True, gc=False):
    """AlterConfigs response. Source: AlterConfigsResponse.json."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


ALTER_CONFIGS = Api(33, AlterConfigsRequest, AlterConfigsResponse, versions=(0, 2), flexible=2)


class ConfigOperation(Part, frozen=True, gc=False):
    name: String = ""
    config_operation: Int8 = 0
    value: NullableString = ""


class IncrementalAlterConfigsResource(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[ConfigOperation] = ()


class IncrementalAlterConfigsRequest(ApiMessage, frozen=True, gc=False):
    """IncrementalAlterConfigs request, API 44. Source: IncrementalAlterConfigsRequest.json."""

    resources: Sequence[IncrementalAlterConfigsResource] = ()
    validate_only: Bool = False


class IncrementalAlterConfigsResponse(ApiMessage, frozen=True, gc=False):
    """IncrementalAlterConfigs response. Source: IncrementalAlterConfigsResponse.json."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse] = ()


INCREMENTAL_ALTER_CONFIGS = Api(
    44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, versions=(0, 1), flexible=1
)


class ListConfigResourcesRequest(ApiMessage, frozen=True, gc=False):
    """ListConfigResources request, API 74. Source: ListConfigResourcesRequest.json."""

    resource_types: Annotated[Sequence[Int8], Since(1)] = ()


class ConfigResource(Part, frozen=True, gc=False):
    resource_name: String = ""
    resource_type: Annotated[Int8, Since(1)] = 16


class ListConfigResourcesResponse(ApiMessage, frozen=True, gc=False):
    """ListConfigResources response. Source: ListConfigResourcesResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Sequence[ConfigResource] = ()


LIST_CONFIG_RESOURCES = Api(
    74, ListConfigResourcesRequest, ListConfigResourcesResponse, versions=(0, 1), flexible=0
)
