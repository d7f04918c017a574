"""18 ApiVersions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Part,
    Since,
    String,
    Tag,
)


class ApiVersionsRequest(Message, frozen=True, gc=False):
    """ApiVersions request. Source: ApiVersionsRequest.json."""

    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersion(Part, frozen=True, gc=False):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Part, frozen=True, gc=False):
    name: Annotated[String, Since(3)] = ""
    min_version: Annotated[Int16, Since(3)] = 0
    max_version: Annotated[Int16, Since(3)] = 0


class FinalizedFeatureKey(Part, frozen=True, gc=False):
    name: Annotated[String, Since(3)] = ""
    max_version_level: Annotated[Int16, Since(3)] = 0
    min_version_level: Annotated[Int16, Since(3)] = 0


class ApiVersionsResponse(Message, frozen=True, gc=False):
    """ApiVersions response. Source: ApiVersionsResponse.json."""

    error_code: Int16 = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[Sequence[SupportedFeatureKey], Since(3), Tag(0)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3), Tag(1)] = -1
    finalized_features: Annotated[Sequence[FinalizedFeatureKey], Since(3), Tag(2)] = ()
    zk_migration_ready: Annotated[Bool, Since(3), Tag(3)] = False


API_VERSIONS = Api(18, ApiVersionsRequest, ApiVersionsResponse, versions=(0, 4), flexible=3)
