"""SCRAM-SHA-256 and SCRAM-SHA-512, both sides (RFC 5802, RFC 7677), without channel binding.

    client  n,,n=USER,r=CLIENT_NONCE
    server  r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client  c=biws,r=CLIENT_NONCE SERVER_NONCE,p=PROOF
    server  v=SIGNATURE

The server does not say that it does not know a user: it sends a salt made up from the name, always
the same, and refuses the proof. (Kafka refuses such a user at once.) Extensions of the client's
first message are ignored, as in Kafka; mandatory ones (`m=`) are refused. An authorization id must
be empty or the user's name.
Source: clients/common/security/scram/internals/ScramSaslServer.java, ScramSaslClient.java,
ScramMessages.java.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable

from steelyard.errors import AuthenticationError
from steelyard.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)
from steelyard.sasl.outcomes import Accepted, Challenge, Denied, Step

_NONCE = r"r=([!-+\--~]+)"
_BASE64 = r"([A-Za-z0-9+/=]+)"
_EXTENSIONS = r"(?:,[a-zA-Z]+=[^,]*)*"
_FIRST = re.compile(rf"[ny],(?:a=([^,]+))?,n=([^,]+),{_NONCE}{_EXTENSIONS}")
_SERVER_FIRST = re.compile(rf"{_NONCE},s={_BASE64},i=([0-9]{{1,9}}){_EXTENSIONS}")
_FINAL = re.compile(rf"(c={_BASE64},{_NONCE}{_EXTENSIONS}),p={_BASE64}")
_NAME = re.compile(r"(?:[^=]|=2C|=3D)*")

ID_MISMATCH = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
"""Kafka's words, also for PLAIN."""


class ScramServer:
    """The server's side; a `ServerExchange`.

    `find`: returns the credential of a user, None for unknown ones. `nonce`: random printable
    characters other than a comma. `decoy`: a secret key from which the salts of unknown users come.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], ScramCredential | None],
        nonce: str,
        decoy: bytes,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._decoy = decoy
        self._user = ""
        self._header = ""
        self._signed = ""
        """The messages so far, as they are signed."""
        self._credential: ScramCredential | None = None
        self._is_known = False

    def step(self, token: bytes, now: int) -> Step:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return Denied("a message that is not UTF-8", user=self._user)
        return self._first(text) if self._credential is None else self._final(text)

    def _first(self, text: str) -> Step:
        found = _FIRST.fullmatch(text)
        if found is None or ",m=" in text:
            return Denied("the first message is not one of SCRAM's, or has channel binding")
        authorization, name, nonce = found.groups()
        user = _name(name)
        if user is None or (authorization and _name(authorization) is None):
            return Denied("the user's name is not encoded as it should be")
        if authorization and _name(authorization) != user:
            return Denied("the authorization id is another user", ID_MISMATCH, user)
        self._user = user
        self._header = text[: text.index(",n=") + 1]
        credential = self._find(user)
        self._is_known = credential is not None
        self._credential = credential or self._made_up(user)
        self._nonce = nonce + self._nonce
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{text[len(self._header) :]},{answer}"
        return Challenge(answer.encode())

    def _made_up(self, user: str) -> ScramCredential:
        """Return what an unknown user's credential might look like."""
        mechanism = self._mechanism
        salt = mechanism.sign(self._decoy, user.encode())[:24]
        key = mechanism.sign(self._decoy, b"key" + user.encode())
        return ScramCredential(salt, key, key, ITERATIONS_MIN)

    def _final(self, text: str) -> Step:
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None
        found = _FINAL.fullmatch(text)
        if found is None:
            return Denied("the final message is not one of SCRAM's", user=self._user)
        without_proof, binding, nonce, proof = found.groups()
        if binding != base64.b64encode(self._header.encode()).decode():
            return Denied("the final message repeats another header", user=self._user)
        if not hmac.compare_digest(nonce, self._nonce):
            return Denied("the final message repeats another nonce", user=self._user)
        proven = _decoded(proof)
        signed = f"{self._signed},{without_proof}".encode()
        signature = mechanism.sign(credential.stored_key, signed)
        if proven is None or len(proven) != len(signature):
            return Denied("the proof has a wrong length", user=self._user)
        is_right = hmac.compare_digest(
            mechanism.digest(_xor(proven, signature)), credential.stored_key
        )
        if not self._is_known:
            return Denied("unknown user, or one without this mechanism", user=self._user)
        if not is_right:
            return Denied("wrong password", user=self._user)
        answer = base64.b64encode(mechanism.sign(credential.server_key, signed))
        return Accepted(self._user, b"v=" + answer)


class ScramClient:
    """The client's side; a `ClientExchange`. `nonce`: as of `ScramServer`."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._expected: bytes | None = None
        self._is_complete = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes | None:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationError("the server's message is not UTF-8") from None
        if self._expected is None:
            return self._proof(text)
        self._end(text)
        return None

    def _proof(self, text: str) -> bytes:
        mechanism = self._mechanism
        found = _SERVER_FIRST.fullmatch(text)
        if found is None or not found[1].startswith(self._nonce) or found[1] == self._nonce:
            raise AuthenticationError("the server's first message is not one of SCRAM's")
        salt, iterations = _decoded(found[2]), int(found[3])
        if not salt or not ITERATIONS_MIN <= iterations <= 100 * ITERATIONS_MAX:
            raise AuthenticationError(
                f"the server wants {iterations} iterations; expected {ITERATIONS_MIN} or more"
            )
        salted = mechanism.salted(self._password, salt, iterations)
        key = mechanism.sign(salted, b"Client Key")
        without_proof = f"c=biws,r={found[1]}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        proof = _xor(key, mechanism.sign(mechanism.digest(key), signed))
        self._expected = mechanism.sign(mechanism.sign(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _end(self, text: str) -> None:
        expected = self._expected
        assert expected is not None
        signature = _decoded(text[2:]) if text.startswith("v=") else None
        if signature is None or not hmac.compare_digest(signature, expected):
            raise AuthenticationError(
                "the server did not prove that it knows the password: it may be another one"
            )


def _name(encoded: str) -> str | None:
    """Decode a name; None if it has an `=` of its own."""
    if _NAME.fullmatch(encoded) is None:
        return None
    return encoded.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
