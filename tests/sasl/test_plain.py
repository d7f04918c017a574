"""PLAIN, both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import AuthenticationError
from steelyard.sasl.outcomes import Accepted, Denied
from steelyard.sasl.plain import PlainClient, PlainServer

KNOWN = {("alice", "secret"), ("grüße", "päss,=")}


def server() -> PlainServer:
    return PlainServer(lambda user, password: (user, password) in KNOWN)


@pytest.mark.parametrize(("user", "password"), sorted(KNOWN))
def test_logins(user: str, password: str) -> None:
    client = PlainClient(user, password)
    assert server().step(client.first(), 0) == Accepted(user)
    client.step(b"")
    with pytest.raises(AuthenticationError):
        client.step(b"x")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0" + b"s" * 256, "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from"
            " username",
        ),
        (b"\xff", ""),
    ],
)
def test_what_is_refused(token: bytes, told: str) -> None:
    """In Kafka's words."""
    outcome = server().step(token, 0)
    assert isinstance(outcome, Denied)
    assert outcome.told == told
    assert "secret" not in outcome.reason


@given(st.binary(max_size=80))
def test_whatever_comes_nobody_is_let_in(token: bytes) -> None:
    assert isinstance(server().step(token, 0), Denied)
