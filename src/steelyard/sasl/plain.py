"""PLAIN, both sides (RFC 4616): the password itself, which belongs on encrypted connections.

The server checks it against the credentials of SCRAM, which are all that it stores.
Source: clients/common/security/plain/internals/PlainSaslServer.java.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.errors import AuthenticationError
from steelyard.sasl.outcomes import Accepted, Denied, Step
from steelyard.sasl.scram import ID_MISMATCH

MECHANISM = "PLAIN"

NAME_BYTES_MAX = 255
"""Of a user's name and of a password (RFC 4616 section 2)."""


class PlainServer:
    """The server's side; a `ServerExchange`.

    `check`: returns whether this is the user's password, and takes as long for an unknown user.
    """

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        self._check = check

    def step(self, token: bytes, now: int) -> Step:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            return Denied("a message that is not UTF-8")
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            return Denied("the message does not have three parts", text)
        authorization, user, password = parts
        if not user:
            return Denied("no user name", "Authentication failed: username not specified")
        if not password:
            told = "Authentication failed: password not specified"
            return Denied("no password", told, user)
        wrong = Denied(
            "wrong password or unknown user",
            "Authentication failed: Invalid username or password",
            user,
        )
        if max(len(user.encode()), len(password.encode())) > NAME_BYTES_MAX:
            return wrong
        if not self._check(user, password):
            return wrong
        if authorization not in ("", user):
            return Denied("the authorization id is another user", ID_MISMATCH, user)
        return Accepted(user)


class PlainClient:
    """The client's side; a `ClientExchange`."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def step(self, token: bytes) -> None:
        if token:
            raise AuthenticationError("the server answered PLAIN with a challenge")
