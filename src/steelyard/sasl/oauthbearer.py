"""OAUTHBEARER, both sides (RFC 7628), and unsecured tokens, which nobody has signed.

    client  n,a=USER,^Aauth=Bearer TOKEN^A^A
    server  nothing if it accepts the token, else {"status":"invalid_token"}
    client  ^A, after which the server says that the login has failed

An unsecured token is a JWT with the algorithm `none`: whoever can reach the port can write one, so
it is for tests and networks in which everybody is trusted, as in Kafka. Signed ones are in
`signed_tokens`. The claim `sub` names the user, `exp` is required.
Source: clients/common/security/oauthbearer/internals/OAuthBearerSaslServer.java,
OAuthBearerClientInitialResponse.java, unsecured/OAuthBearerUnsecuredJws.java.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import TypeGuard

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import AuthenticationError
from steelyard.sasl.outcomes import Accepted, Challenge, Denied, Step

MECHANISM = "OAUTHBEARER"

TOKEN_BYTES_MAX = 64 * 1024
"""Largest token that is looked at."""

CLOCK_SKEW_MS = 30_000
"""By how much the clock of who made a token may be ahead. Kafka: 0 for unsecured tokens."""

_FIRST = re.compile(r"n,(?:a=((?:[^=,\x00]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[!-~ \t\r\n]+\x01)*)\x01")
_BEARER = re.compile(r"bearer +([-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)
_INVALID = b'{"status":"invalid_token"}'
_KVSEP = b"\x01"


class TokenClaims(msgspec.Struct, frozen=True, gc=False):
    """What a valid token says. `expires_at`: in ms since the epoch."""

    user: str
    expires_at: int


Validate = Callable[[str, int], TokenClaims | str]
"""(token, now) -> its claims, or why it is not valid."""


class OAuthServer:
    """The server's side; a `ServerExchange`."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._denied: Denied | None = None
        """The outcome that waits for the client to confirm that it has read the error."""

    def step(self, token: bytes, now: int) -> Step:
        if self._denied is not None:
            return self._denied
        if len(token) > TOKEN_BYTES_MAX:
            return Denied("the token is too large")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return Denied("a message that is not UTF-8")
        found = _FIRST.fullmatch(text)
        if found is None:
            return Denied("the message is not one of OAUTHBEARER's")
        authorization, pairs = found[1] or "", found[2] or ""
        given = dict(pair.split("=", 1) for pair in pairs.split("\x01") if pair)
        bearer = _BEARER.fullmatch(given.get("auth", ""))
        if bearer is None:
            return Denied("the message has no bearer token")
        claims = self._validate(bearer[1], now)
        if isinstance(claims, str):
            self._denied = Denied(claims, _INVALID.decode())
            return Challenge(_INVALID)
        if authorization not in ("", claims.user):
            told = (
                f"Authentication failed: Client requested an authorization id ({authorization})"
                f" that is different from the token's principal name ({claims.user})"
            )
            return Denied("the authorization id is another user", told, claims.user)
        return Accepted(claims.user, b"", claims.expires_at)


class OAuthClient:
    """The client's side; a `ClientExchange`. Raises AuthenticationError for no token."""

    def __init__(self, token: str) -> None:
        if _BEARER.fullmatch(f"bearer {token}") is None:
            raise AuthenticationError("the token has characters that bearer tokens do not have")
        self._token = token
        self._error = ""

    def first(self) -> bytes:
        return b"n,,\x01auth=Bearer %s\x01\x01" % self._token.encode()

    def step(self, token: bytes) -> bytes | None:
        if not token:
            return None
        return _KVSEP  # the server has said what is wrong: confirm it, then it ends the login


def unsecured_token(user: str, expires: float) -> str:
    """Return an unsecured token. `expires`: in seconds since the epoch."""
    parts = ({"alg": "none"}, {"sub": user, "exp": expires})
    texts = (base64.urlsafe_b64encode(msgspec.json.encode(part)) for part in parts)
    return ".".join([*(text.decode().rstrip("=") for text in texts), ""])


def unsecured(token: str, now: int) -> TokenClaims | str:
    """Return the claims of an unsecured token, or why it is not valid; a `Validate`."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        return "the token is signed, or not a JWT; only unsecured ones are accepted"
    header, claims = map(_json, parts[:2])
    if header is None or claims is None:
        return "the token is not a JWT"
    if header.get("alg") != "none":
        return "the token's algorithm is not 'none'"
    return claimed(claims, now)


def claimed(
    claims: dict[str, object], now: int, *, subject: str = "sub", skew_ms: int = CLOCK_SKEW_MS
) -> TokenClaims | str:
    """Return what claims say that a token makes, or why it is not valid now.

    `subject`: the claim that names the user. `skew_ms`: by how much the clock of who made it may be
    ahead.
    """
    user, expires, issued = claims.get(subject), claims.get("exp"), claims.get("iat", 0)
    if not isinstance(user, str) or not user:
        return f"the token has no claim {subject!r}"
    if not is_time(expires) or not is_time(issued):
        return "the token's claims 'exp' and 'iat' are not times"
    if expires * 1000 <= now:
        return "the token has expired"
    if issued * 1000 > now + skew_ms:
        return "the token was issued in the future"
    return TokenClaims(user, int(expires * 1000))


def is_time(value: object) -> TypeGuard[int | float]:
    """Return whether a claim is a time in seconds since the epoch."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _json(part: str) -> dict[str, object] | None:
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return msgspec.json.decode(data, type=prepared(dict[str, object]))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
