"""Logins (17 and 36), and what verifies the passwords of users (50 and 51)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from steelyard.wire.kafka.schema import (
    Api,
    ApiMessage,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    Since,
    String,
)


class SaslHandshakeRequest(ApiMessage, frozen=True, gc=False):
    """SaslHandshake request, API 17: chooses the mechanism. Source: SaslHandshakeRequest.json.

    After version 0, bare tokens follow in frames of their own (`frame.SaslToken`); after version 1,
    SaslAuthenticate requests.
    """

    mechanism: String = ""


class SaslHandshakeResponse(ApiMessage, frozen=True, gc=False):
    """SaslHandshake response. Source: SaslHandshakeResponse.json."""

    error_code: Int16 = 0
    mechanisms: Sequence[String] = ()


SASL_HANDSHAKE = Api(
    17, SaslHandshakeRequest, SaslHandshakeResponse, versions=(0, 1), flexible=None
)


class SaslAuthenticateRequest(ApiMessage, frozen=True, gc=False):
    """SaslAuthenticate request, API 36. Source: SaslAuthenticateRequest.json."""

    auth_bytes: Bytes = b""

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


class SaslAuthenticateResponse(ApiMessage, frozen=True, gc=False):
    """SaslAuthenticate response. Source: SaslAuthenticateResponse.json."""

    error_code: Int16 = 0
    error_message: NullableString = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


SASL_AUTHENTICATE = Api(
    36, SaslAuthenticateRequest, SaslAuthenticateResponse, versions=(0, 2), flexible=2
)


class UserName(Part, frozen=True, gc=False):
    name: String = ""


class DescribeUserScramCredentialsRequest(ApiMessage, frozen=True, gc=False):
    """DescribeUserScramCredentials request, API 50.

    Source: DescribeUserScramCredentialsRequest.json.
    """

    users: Sequence[UserName] | None = ()


class CredentialInfo(Part, frozen=True, gc=False):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Part, frozen=True, gc=False):
    user: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""
    credential_infos: Sequence[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(ApiMessage, frozen=True, gc=False):
    """DescribeUserScramCredentials response. Source: DescribeUserScramCredentialsResponse.json."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = ""
    results: Sequence[DescribeUserScramCredentialsResult] = ()


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    50,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    versions=(0, 0),
    flexible=0,
)


class ScramCredentialDeletion(Part, frozen=True, gc=False):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Part, frozen=True, gc=False):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion({self.name!r}, {self.mechanism}, {self.iterations})"


class AlterUserScramCredentialsRequest(ApiMessage, frozen=True, gc=False):
    """AlterUserScramCredentials request, API 51. Source: AlterUserScramCredentialsRequest.json."""

    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()


class AlterUserScramCredentialsResult(Part, frozen=True, gc=False):
    user: String = ""
    error_code: Int16 = 0
    error_message: NullableString = ""


class AlterUserScramCredentialsResponse(ApiMessage, frozen=True, gc=False):
    """AlterUserScramCredentials response. Source: AlterUserScramCredentialsResponse.json."""

    throttle_time_ms: Int32 = 0
    results: Sequence[AlterUserScramCredentialsResult] = ()


ALTER_USER_SCRAM_CREDENTIALS = Api(
    51,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    versions=(0, 0),
    flexible=0,
)
