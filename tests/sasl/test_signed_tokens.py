"""Signed access tokens: which are valid, and what is a key set."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from tests.sasl.test_oauthbearer import token as unsigned
from tests.token_issuer import ALGORITHMS, Issuer, key_set

from steelyard.config import KafkaConfig
from steelyard.errors import ConfigError
from steelyard.sasl import signed_tokens
from steelyard.sasl.oauthbearer import TokenClaims
from steelyard.sasl.signed_tokens import KEYS_MAX, SignedTokens, read_keys

ISSUER = Issuer()
OTHER = Issuer(key_id="key-2")


def now() -> int:
    return time.time_ns() // 1_000_000


def tokens(*issuers: Issuer, **config: Any) -> SignedTokens:
    names = {f"sasl_oauthbearer_{name}": value for name, value in config.items()}
    made = SignedTokens(KafkaConfig(**names))
    made.replace(read_keys(key_set(*(issuers or (ISSUER,)))))
    return made


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("key_id", ["key-1", ""])
def test_every_kind_of_signature(algorithm: str, key_id: str) -> None:
    issuer = Issuer(algorithm, key_id)
    made = tokens(OTHER, issuer) if key_id else tokens(issuer)
    claims = made.validate(issuer.token(), now())
    assert isinstance(claims, TokenClaims)
    assert claims.user == "alice"
    assert 0 < claims.expires_at - now() <= 60_000
    stranger = Issuer(algorithm, key_id)
    assert made.validate(stranger.token(), now()) == "the token's signature is wrong"


def test_a_token_that_was_changed() -> None:
    header, claims, signature = ISSUER.token().split(".")
    forged = base64.urlsafe_b64encode(b'{"sub":"root","exp":9999999999}').decode().rstrip("=")
    for wrong in (
        f"{header}.{forged}.{signature}",
        f"{header}.{claims}.{signature[:-4]}AAAA",
        f"{header}.{claims}.",
    ):
        assert tokens().validate(wrong, now()) == "the token's signature is wrong"


def test_algorithms_that_prove_nothing() -> None:
    """`none`, and a shared secret that everybody knows: the public key."""
    valid = {"sub": "alice", "exp": time.time() + 60}
    no_jwt, no_key = "the token is not a JWT", "the token's algorithm is not one of the key's"
    assert tokens().validate(unsigned(valid, {"alg": "none", "kid": "key-1"}), now()) == no_key
    issuer = Issuer("RS256")
    public = json.dumps(issuer.public).encode()
    for secret in (public, b""):
        unsigned_part = unsigned(valid, {"alg": "HS256", "kid": "key-1"}).rstrip(".")
        made = hmac.digest(secret, unsigned_part.encode(), "sha256")
        confused = f"{unsigned_part}.{base64.urlsafe_b64encode(made).decode().rstrip('=')}"
        assert tokens(issuer).validate(confused, now()) == no_key
    for wrong in ("", "a", "a.b", "a.b.c", "..", "é.b.c", "a" * 70_000):
        assert tokens().validate(wrong, now()) == no_jwt


def test_a_key_for_one_algorithm_only() -> None:
    issuer = Issuer("RS256")
    named = {**issuer.public, "alg": "RS512"}
    made = tokens()
    made.replace(read_keys(json.dumps({"keys": [named]})))
    assert "algorithm" in str(made.validate(issuer.token(), now()))
    issuer.algorithm = "RS512"
    assert isinstance(made.validate(issuer.token(), now()), TokenClaims)


@pytest.mark.parametrize(
    ("claims", "config", "why"),
    [
        ({"iss": "https://a"}, {"expected_issuer": "https://a"}, ""),
        ({"iss": "https://b"}, {"expected_issuer": "https://a"}, "another issuer"),
        ({}, {"expected_issuer": "https://a"}, "another issuer"),
        ({"aud": "kafka"}, {"expected_audience": ("kafka", "queue")}, ""),
        ({"aud": ["web", "queue"]}, {"expected_audience": ("kafka", "queue")}, ""),
        ({"aud": ["web", 3]}, {"expected_audience": ("kafka",)}, "another audience"),
        ({"aud": "web"}, {"expected_audience": ("kafka",)}, "another audience"),
        ({}, {"expected_audience": ("kafka",)}, "another audience"),
        ({"user": None}, {}, "no claim 'sub'"),
        ({"user": None, "client": "alice"}, {"sub_claim_name": "client"}, ""),
        ({}, {"sub_claim_name": "client"}, "no claim 'client'"),
        ({"seconds": -1}, {}, "has expired"),
        ({"exp": None}, {}, "are not times"),
        ({"exp": "soon"}, {}, "are not times"),
        ({"iat": 90}, {}, "issued in the future"),
        ({"iat": 20}, {}, ""),
        ({"iat": 20}, {"clock_skew_seconds": 5}, "issued in the future"),
        ({"nbf": 90}, {}, "not valid yet"),
        ({"nbf": 20}, {}, ""),
        ({"nbf": "x"}, {}, "'nbf' is not a time"),
    ],
)
def test_claims(claims: dict[str, Any], config: dict[str, Any], why: str) -> None:
    """`iat` and `nbf` are in seconds from now on."""
    times: dict[str, Any] = {
        name: time.time() + value if isinstance(value, int) and name in ("iat", "nbf") else value
        for name, value in claims.items()
    }
    found = tokens(**config).validate(ISSUER.token(**times), now())
    if why:
        assert isinstance(found, str)
        assert why in found
    else:
        assert isinstance(found, TokenClaims)
        assert found.user == "alice"


def test_claims_that_are_no_object() -> None:
    for payload in (b"[1]", b"nonsense"):
        signed = jwt.PyJWS().encode(payload, ISSUER.key, "ES256", headers={"kid": "key-1"})
        assert tokens().validate(signed, now()) == "the token's claims are not JSON"


def test_keys_are_exchanged() -> None:
    made = SignedTokens(KafkaConfig())
    assert made.validate(ISSUER.token(), now()) == "there are no keys to verify tokens with"
    for issuers in ((ISSUER,), (ISSUER, OTHER), (OTHER,)):
        made.replace(read_keys(key_set(*issuers)))
        for issuer in (ISSUER, OTHER):
            found = made.validate(issuer.token(), now())
            assert isinstance(found, TokenClaims) == (issuer in issuers), found
    assert "a key that the key set does not have" in str(made.validate(ISSUER.token(), now()))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "it is not JSON"),
        ("[]", "it is not JSON"),
        ("{}", "not a JSON Web Key Set"),
        ('{"keys": {}}', "not a JSON Web Key Set"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}), "not a JSON Web Key Set"),
        ('{"keys": []}', "no public key"),
        ('{"keys": [3, {"kty": "oct", "k": "c2VjcmV0"}]}', "no public key"),
        (json.dumps({"keys": [{**ISSUER.public, "use": "enc"}]}), "no public key"),
        (json.dumps({"keys": [{**ISSUER.public, "crv": "P-1"}]}), "no public key"),
        (json.dumps({"keys": [{**ISSUER.public, "alg": "HS256"}]}), "no public key"),
        (json.dumps({"keys": [{**ISSUER.public, "d": "AA"}]}), "no public key"),
        (json.dumps({"keys": [{**ISSUER.public, "x": "!"}]}), "the key 'key-1' is wrong"),
    ],
)
def test_what_is_no_key_set(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read_keys(text)


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'steelyard\[oauth\]'"):
        signed_tokens.check_installed()
