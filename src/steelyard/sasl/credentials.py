"""What a server stores of a password: salted keys by which it can be verified, but not found.

SCRAM (RFC 5802 section 3), with H the hash of the mechanism:

    SaltedPassword = PBKDF2(H, password, salt, iterations)
    StoredKey      = H(HMAC(SaltedPassword, "Client Key"))
    ServerKey      = HMAC(SaltedPassword, "Server Key")

Passwords are not normalised (SASLprep), as in Kafka.
Source: clients/common/security/scram/internals/ScramFormatter.java, ScramCredentialUtils.java.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

import msgspec

from steelyard.errors import ConfigError

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""As in Kafka (ScramMechanism, ScramControlManager)."""

SALT_BYTES = 24
"""Of salts made here."""

SALT_BYTES_MAX = 1_024


class ScramMechanism(NamedTuple):
    """A mechanism of the SCRAM family: its name, hash, and number in Kafka's requests."""

    name: str
    hash: str
    number: int

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash).digest_size

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash, data).digest()

    def sign(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash)

    def salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return the salted password. Takes a millisecond or more."""
        return hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", "sha256", 1)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", "sha512", 2)

SCRAM_MECHANISMS = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_NUMBERS = {each.number: each for each in SCRAM_MECHANISMS.values()}


class ScramCredential(msgspec.Struct, frozen=True, gc=False):
    """What verifies a user by one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential that verifies a salted password."""
    client_key = mechanism.sign(salted_password, b"Client Key")
    server_key = mechanism.sign(salted_password, b"Server Key")
    return ScramCredential(salt, mechanism.digest(client_key), server_key, iterations)


def verifies(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Return whether this is the password, in a time that does not depend on it."""
    salted = mechanism.salted(password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def read_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Read `salt=...,stored_key=...,server_key=...,iterations=...`, as Kafka writes it.

    Raises ConfigError, which does not quote the text.
    """
    parts = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    try:
        salt, stored_key, server_key = (
            base64.b64decode(parts[name], validate=True)
            for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(parts["iterations"])
    except (KeyError, ValueError):
        raise ConfigError(
            f"a credential of {mechanism.name} is not"
            " salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=NUMBER"
        ) from None
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"a credential of {mechanism.name} has {iterations} iterations;"
            f" expected {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    if not (len(stored_key) == len(server_key) == mechanism.key_bytes and salt):
        raise ConfigError(f"a credential of {mechanism.name} has a salt or keys of a wrong length")
    return ScramCredential(salt, stored_key, server_key, iterations)
