"""An authorization server's part in tests: a key, its public half as a key set, and tokens that it signs."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ALGORITHMS = ("RS256", "PS384", "ES256", "ES384", "ES512", "EdDSA")
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class Issuer:
    """Signs with one key. `algorithm`: of the signatures; `key_id`: empty for a key without one."""

    def __init__(self, algorithm: str = "ES256", key_id: str = "key-1") -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        self.key: Any
        if algorithm in _CURVES:
            self.key = ec.generate_private_key(_CURVES[algorithm])
        elif algorithm == "EdDSA":
            self.key = ed25519.Ed25519PrivateKey.generate()
        else:
            self.key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    @property
    def public(self) -> dict[str, Any]:
        """The public key as a JSON Web Key."""
        kind = jwt.get_algorithm_by_name(self.algorithm)
        found: dict[str, Any] = json.loads(kind.to_jwk(self.key.public_key()))
        found.pop("key_ops", None)
        return {**found, "kid": self.key_id} if self.key_id else found

    def token(self, user: str | None = "alice", seconds: float = 60, **more: Any) -> str:
        """A token that is valid for so long from now on; None leaves a claim out."""
        claims = {"sub": user, "iat": time.time(), "exp": time.time() + seconds, **more}
        claims = {name: value for name, value in claims.items() if value is not None}
        headers = {"kid": self.key_id} if self.key_id else {}
        return jwt.encode(claims, self.key, algorithm=self.algorithm, headers=headers)


def key_set(*issuers: Issuer) -> str:
    return json.dumps({"keys": [issuer.public for issuer in issuers]})
