"""Access rules: APIs 29 to 31. Numbers of types, operations and permissions: `acl.bindings`."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Int8,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
)


class DescribeAclsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeAcls request, API 29. Source: DescribeAclsRequest.json."""

    resource_type_filter: Int8 = 0
    resource_name_filter: NullableString = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString = ""
    host_filter: NullableString = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Part, frozen=True, gc=False):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: Sequence[AclDescription] = ()


class DescribeAclsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeAcls response. Source: DescribeAclsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    resources: Sequence[DescribeAclsResource] = ()


DESCRIBE_ACLS = Api(29, DescribeAclsRequest, DescribeAclsResponse, versions=(1, 3), flexible=2)


class AclCreation(Part, frozen=True, gc=False):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(ApiMessage, frozen=True, gc=False):
    """CreateAcls request, API 30. Source: CreateAclsRequest.json."""

    creations: Sequence[AclCreation] = ()


class AclCreationResult(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""


class CreateAclsResponse(ApiMessage, frozen=True, gc=False):
    """CreateAcls response. Source: CreateAclsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[AclCreationResult] = ()


CREATE_ACLS = Api(30, CreateAclsRequest, CreateAclsResponse, versions=(1, 3), flexible=2)


class DeleteAclsFilter(Part, frozen=True, gc=False):
    resource_type_filter: Int8 = 0
    resource_name_filter: NullableString = ""
    pattern_type_filter: Int8 = 3
    principal_filter: NullableString = ""
    host_filter: NullableString = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(ApiMessage, frozen=True, gc=False):
    """DeleteAcls request, API 31. Source: DeleteAclsRequest.json."""

    filters: Sequence[DeleteAclsFilter] = ()


class DeleteAclsMatchingAcl(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Part, frozen=True, gc=False):
    error_code: Int16 = 0
    error_message: NullableString = ""
    matching_acls: Sequence[DeleteAclsMatchingAcl] = ()


class DeleteAclsResponse(ApiMessage, frozen=True, gc=False):
    """DeleteAcls response. Source: DeleteAclsResponse.json."""

    throttle_time_ms: Int32 = 0
    filter_results: Sequence[DeleteAclsFilterResult] = ()


DELETE_ACLS = Api(31, DeleteAclsRequest, DeleteAclsResponse, versions=(1, 3), flexible=2)
