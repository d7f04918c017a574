"""Access tokens that an authorization server has signed: JWTs (RFC 7519), and its keys (RFC 7517).

A token is valid if a key of the key set has signed it, if its issuer and audience are the expected
ones, and now is between its `nbf` and `exp`; the claim `sub` (or another one) names the user.
Signatures are RSA's (RS256 to PS512), ECDSA's (ES256 to ES512) or EdDSA's, as the key says: tokens
without a signature, or with one that is made with a shared secret, are never accepted.
Source: clients/common/security/oauthbearer/BrokerJwtValidator.java,
internals/secured/RefreshingHttpsJwks.java (KIP-768).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ConfigError
from steelyard.sasl.oauthbearer import TokenClaims, claimed, is_time

if TYPE_CHECKING:
    from steelyard.config import KafkaConfig

KEYS_MAX = 1_000
"""Most keys of a key set."""

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Mapping[str, tuple[str, ...]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
}
_EDWARDS = ("Ed25519", "Ed448")


class TokenKey(NamedTuple):
    """A public key. `key_id`: empty if it has none; `algorithms`: those that it is used with."""

    key_id: str
    algorithms: tuple[str, ...]
    key: Any


TokenKeys = tuple[TokenKey, ...]
"""The keys that sign now; more than one while they are exchanged."""


def check_installed() -> None:
    """Raise ConfigError if a package that verifies signatures is missing."""
    from importlib.util import find_spec

    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise ConfigError(
            "signed access tokens need PyJWT and cryptography: pip install 'steelyard[oauth]'"
        )


def read_keys(text: str) -> TokenKeys:
    """Return the keys of a JSON Web Key Set that verify signatures; others are passed over.

    Raises ConfigError if it is none, or has no such key.
    """
    import jwt

    try:
        found = msgspec.json.decode(text, type=prepared(dict[str, object])).get("keys")
    except msgspec.DecodeError as error:
        raise ConfigError(f"it is not JSON: {error}") from None
    if not isinstance(found, list) or len(found) > KEYS_MAX:
        raise ConfigError(f"it is not a JSON Web Key Set: 'keys' must be a list of 1 to {KEYS_MAX}")
    keys: list[TokenKey] = []
    for each in found:
        algorithms = _algorithms(each) if isinstance(each, dict) else ()
        if not algorithms:
            continue
        try:
            made = jwt.PyJWK(each, algorithm=algorithms[0])
        except jwt.PyJWTError as error:
            raise ConfigError(f"the key {str(each.get('kid'))[:50]!r} is wrong: {error}") from None
        keys.append(TokenKey(str(each.get("kid") or ""), algorithms, made.key))
    if not keys:
        raise ConfigError("it has no public key that verifies signatures (RSA, EC or OKP)")
    return tuple(keys)


def _algorithms(key: Mapping[str, object]) -> tuple[str, ...]:
    """Return the algorithms of a key; none if it does not verify signatures."""
    if key.get("use", "sig") != "sig" or "d" in key:
        return ()  # a private key does not belong there
    allowed: tuple[str, ...]
    match key.get("kty"):
        case "RSA":
            allowed = _RSA
        case "EC":
            allowed = _CURVES.get(str(key.get("crv")), ())
        case "OKP":
            allowed = ("EdDSA",) if key.get("crv") in _EDWARDS else ()
        case _:
            return ()
    named = key.get("alg")
    return tuple(each for each in allowed if named in (None, each))


class SignedTokens:
    """Validates tokens; `validate` is a `Validate`. Begins without a key, and accepts nothing."""

    def __init__(self, config: KafkaConfig) -> None:
        self._issuer = config.sasl_oauthbearer_expected_issuer
        self._audiences = frozenset(config.sasl_oauthbearer_expected_audience)
        self._subject = config.sasl_oauthbearer_sub_claim_name
        self._skew_ms = config.sasl_oauthbearer_clock_skew_seconds * 1_000
        self._keys: TokenKeys = ()

    def replace(self, keys: TokenKeys) -> None:
        """Use these keys from now on."""
        self._keys = keys

    def validate(self, token: str, now: int) -> TokenClaims | str:
        """Return what a token says, or why it is not valid."""
        payload = self._verified(token)
        if isinstance(payload, str):
            return payload
        try:
            claims = msgspec.json.decode(payload, type=prepared(dict[str, object]))
        except msgspec.DecodeError:
            return "the token's claims are not JSON"
        if self._issuer and claims.get("iss") != self._issuer:
            return "the token has another issuer"
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if self._audiences and not any(
            isinstance(each, str) and each in self._audiences for each in audiences
        ):
            return "the token is for another audience"
        begins = claims.get("nbf", 0)
        if not is_time(begins):
            return "the token's claim 'nbf' is not a time"
        if begins * 1_000 > now + self._skew_ms:
            return "the token is not valid yet"
        return claimed(claims, now, subject=self._subject, skew_ms=self._skew_ms)

    def _verified(self, token: str) -> bytes | str:
        """Return a token's claims, if one of the keys has signed it; else why it is not valid."""
        import jwt

        if not self._keys:
            return "there are no keys to verify tokens with"
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.PyJWTError:
            return "the token is not a JWT"
        keys = [key for key in self._keys if key_id in (None, key.key_id)]
        if not keys:
            return "the token is signed with a key that the key set does not have"
        why = ""
        for key in keys:
            try:
                found = jwt.PyJWS().decode(token, key.key, algorithms=list(key.algorithms))
            except jwt.InvalidAlgorithmError:
                why = why or "the token's algorithm is not one of the key's"
            except jwt.PyJWTError:
                why = "the token's signature is wrong"
            else:
                return bytes(found)
        return why
