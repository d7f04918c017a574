"""Delegation tokens: APIs 38 to 41."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Bytes,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    Since,
    String,
)


class TokenPrincipal(Part, frozen=True, gc=False):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(ApiMessage, frozen=True, gc=False):
    """CreateDelegationToken request, API 38. Source: CreateDelegationTokenRequest.json."""

    owner_principal_type: Annotated[NullableString, Since(3)] = ""
    owner_principal_name: Annotated[NullableString, Since(3)] = ""
    renewers: Sequence[TokenPrincipal] = ()
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(ApiMessage, frozen=True, gc=False):
    """CreateDelegationToken response. Source: CreateDelegationTokenResponse.json."""

    error_code: Int16 = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, Since(3)] = ""
    token_requester_principal_name: Annotated[String, Since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0


CREATE_DELEGATION_TOKEN = Api(
    38, CreateDelegationTokenRequest, CreateDelegationTokenResponse, versions=(1, 3), flexible=2
)


class RenewDelegationTokenRequest(ApiMessage, frozen=True, gc=False):
    """RenewDelegationToken request, API 39. Source: RenewDelegationTokenRequest.json."""

    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(ApiMessage, frozen=True, gc=False):
    """RenewDelegationToken response. Source: RenewDelegationTokenResponse.json."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


RENEW_DELEGATION_TOKEN = Api(
    39, RenewDelegationTokenRequest, RenewDelegationTokenResponse, versions=(1, 2), flexible=2
)


class ExpireDelegationTokenRequest(ApiMessage, frozen=True, gc=False):
    """ExpireDelegationToken request, API 40. Source: ExpireDelegationTokenRequest.json."""

    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(ApiMessage, frozen=True, gc=False):
    """ExpireDelegationToken response. Source: ExpireDelegationTokenResponse.json."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


EXPIRE_DELEGATION_TOKEN = Api(
    40, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, versions=(1, 2), flexible=2
)


class DescribeDelegationTokenRequest(ApiMessage, frozen=True, gc=False):
    """DescribeDelegationToken request, API 41. Source: DescribeDelegationTokenRequest.json."""

    owners: Sequence[TokenPrincipal] | None = ()


class DescribedDelegationToken(Part, frozen=True, gc=False):
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, Since(3)] = ""
    token_requester_principal_name: Annotated[String, Since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: Sequence[TokenPrincipal] = ()


class DescribeDelegationTokenResponse(ApiMessage, frozen=True, gc=False):
    """DescribeDelegationToken response. Source: DescribeDelegationTokenResponse.json."""

    error_code: Int16 = 0
    tokens: Sequence[DescribedDelegationToken] = ()
    throttle_time_ms: Int32 = 0


DESCRIBE_DELEGATION_TOKEN = Api(
    41, DescribeDelegationTokenRequest, DescribeDelegationTokenResponse, versions=(1, 3), flexible=2
)
