"""OAUTHBEARER, both sides, and unsecured tokens."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import AuthenticationError
from steelyard.sasl.oauthbearer import (
    TOKEN_BYTES_MAX,
    OAuthClient,
    OAuthServer,
    TokenClaims,
    unsecured,
)
from steelyard.sasl.outcomes import Accepted, Challenge, Denied

NOW = 1_700_000_000_000
LATER = 1_700_000_060


def token(claims: Any, header: Any = None, signature: str = "") -> str:
    parts = [
        base64.urlsafe_b64encode(msgspec.json.encode(part)).decode().rstrip("=")
        for part in ({"alg": "none"} if header is None else header, claims)
    ]
    return ".".join([*parts, signature])


VALID = {"sub": "alice", "exp": LATER}


def test_the_example_of_the_rfc() -> None:
    """RFC 7628 section 4.1, without its host and port."""
    client = OAuthClient("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
    message = b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert client.first() == message
    seen: list[str] = []

    def validate(given: str, now: int) -> TokenClaims:
        seen.append(given)
        return TokenClaims("user@example.com", LATER * 1000)

    whole = message.replace(b"n,,", b"n,a=user@example.com,").replace(
        b"\x01auth", b"\x01host=server.example.com\x01port=143\x01auth"
    )
    accepted = Accepted("user@example.com", b"", LATER * 1000)
    assert OAuthServer(validate).step(whole, NOW) == accepted
    assert seen == ["vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="]


def test_a_login() -> None:
    client = OAuthClient(token(VALID))
    outcome = OAuthServer(unsecured).step(client.first(), NOW)
    assert outcome == Accepted("alice", b"", LATER * 1000)
    assert client.step(b"") is None


def test_a_refusal_takes_two_steps() -> None:
    client, server = OAuthClient(token({**VALID, "exp": 1})), OAuthServer(unsecured)
    challenge = server.step(client.first(), NOW)
    assert challenge == Challenge(b'{"status":"invalid_token"}')
    assert client.step(challenge.token) == b"\x01"
    # and not even a valid token helps then
    for answer in (b"\x01", OAuthClient(token(VALID)).first()):
        denied = Denied("the token has expired", '{"status":"invalid_token"}')
        assert server.step(answer, NOW) == denied


@pytest.mark.parametrize(
    ("given_token", "reason"),
    [
        (token(VALID, signature="c2ln"), "signed"),
        (token(VALID, {"alg": "HS256"}), "algorithm"),
        (token({"exp": LATER}), "'sub'"),
        (token({**VALID, "sub": 7}), "'sub'"),
        (token({"sub": "alice"}), "'exp'"),
        (token({**VALID, "exp": "soon"}), "'exp'"),
        (token({**VALID, "exp": True}), "'exp'"),
        (token({**VALID, "exp": NOW // 1000}), "expired"),
        (token({**VALID, "iat": LATER}), "future"),
        (token([]), "not a JWT"),
        ("a.b.", "not a JWT"),
        ("ab", "not a JWT"),
    ],
)
def test_tokens_that_are_not_valid(given_token: str, reason: str) -> None:
    found = unsecured(given_token, NOW)
    assert isinstance(found, str)
    assert reason in found
    assert given_token not in found


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * TOKEN_BYTES_MAX + b"\x01\x01",
        b"\xff",
    ],
)
def test_messages_that_are_refused(message: bytes) -> None:
    assert isinstance(OAuthServer(unsecured).step(message, NOW), Denied)


def test_another_users_name() -> None:
    message = OAuthClient(token(VALID)).first().replace(b"n,,", b"n,a=bob,")
    outcome = OAuthServer(unsecured).step(message, NOW)
    assert isinstance(outcome, Denied)
    assert "(bob) that is different from the token's principal name (alice)" in outcome.told


def test_a_token_of_wrong_characters() -> None:
    for wrong in ("", "a b", "a\x01b"):
        with pytest.raises(AuthenticationError):
            OAuthClient(wrong)


@given(st.binary(max_size=80), st.text(max_size=80))
def test_whatever_comes_nobody_is_let_in(message: bytes, text: str) -> None:
    assert not isinstance(OAuthServer(unsecured).step(message, NOW), Accepted)
    assert isinstance(unsecured(text, NOW), str)
