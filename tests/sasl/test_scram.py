"""SCRAM against the examples of its RFCs, and against whatever else comes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import AuthenticationError, ConfigError
from steelyard.sasl.credentials import (
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    credential_of,
    read_credential,
    verifies,
)
from steelyard.sasl.outcomes import Accepted, Challenge, Denied
from steelyard.sasl.scram import ScramClient, ScramServer

SHA_1 = ScramMechanism("SCRAM-SHA-1", "sha1", 0)
"""Not offered; RFC 5802 has its only example."""

EXAMPLES = {
    "RFC 5802 section 5": (
        SHA_1,
        ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j", "QSXCR+Q6sek8bf92"),
        (
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
    ),
    "RFC 7677 section 3": (
        SCRAM_SHA_256,
        (
            "rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            "W22ZaJ0SNY7soEsUEjb6gQ==",
        ),
        (
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ),
}

SALT = b"a salt"
MECHANISMS = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda m: m.name)


def stored(mechanism: ScramMechanism, password: str, salt: bytes = SALT) -> ScramCredential:
    return credential_of(mechanism, mechanism.salted(password, salt, 4096), salt, 4096)


KNOWN = {
    mechanism.name: {name: stored(mechanism, f"{name}'s") for name in ("alice", "b,o=b", "grüße")}
    for mechanism in SCRAM_MECHANISMS.values()
}


def server(mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramServer:
    return ScramServer(mechanism, KNOWN[mechanism.name].get, "server-nonce", b"decoy")


def login(mechanism: ScramMechanism, user: str, password: str) -> Any:
    """The outcome of a client's login; it has checked the server as well."""
    client, ours = ScramClient(mechanism, user, password, "client-nonce"), server(mechanism)
    challenge = ours.step(client.first(), 0)
    assert isinstance(challenge, Challenge)
    proof = client.step(challenge.token)
    assert proof is not None
    outcome = ours.step(proof, 0)
    if isinstance(outcome, Accepted):
        assert client.step(outcome.token) is None
    return outcome


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_rfcs(example: str) -> None:
    mechanism, (client_nonce, server_nonce, salt), messages = EXAMPLES[example]
    first, challenge, proof, signature = (message.encode() for message in messages)
    client = ScramClient(mechanism, "user", "pencil", client_nonce)
    assert client.first() == first
    assert client.step(challenge) == proof
    assert client.step(signature) is None

    known = {"user": stored(mechanism, "pencil", base64.b64decode(salt))}
    ours = ScramServer(mechanism, known.get, server_nonce, b"decoy")
    assert ours.step(first, 0) == Challenge(challenge)
    assert ours.step(proof, 0) == Accepted("user", signature)


@MECHANISMS
@pytest.mark.parametrize("user", ["alice", "b,o=b", "grüße"])
def test_logins(mechanism: ScramMechanism, user: str) -> None:
    assert isinstance(login(mechanism, user, f"{user}'s"), Accepted)
    assert login(mechanism, user, "another's") == Denied("wrong password", user=user)


@MECHANISMS
def test_an_unknown_user_learns_nothing(mechanism: ScramMechanism) -> None:
    """The challenge looks like any other, and is the same each time."""
    assert login(mechanism, "nobody", "x") == Denied(
        "unknown user, or one without this mechanism", user="nobody"
    )
    first = [server(mechanism).step(b"n,,n=nobody,r=1", 0) for _ in range(2)]
    assert first[0] == first[1] != server(mechanism).step(b"n,,n=somebody,r=1", 0)


@MECHANISMS
def test_the_made_up_keys_let_nobody_in(mechanism: ScramMechanism) -> None:
    """Not even who could guess a password for what is made up."""
    ours = server(mechanism)
    ours._find = lambda user: None
    client = ScramClient(mechanism, "alice", "alice's", "n")
    challenge = ours.step(client.first(), 0)
    assert isinstance(challenge, Challenge)
    credential = ours._credential
    assert credential is not None
    proof = client.step(challenge.token)
    assert proof is not None
    assert isinstance(ours.step(proof, 0), Denied)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("n,,n=alice", ""),
        ("p=tls-unique,,n=alice,r=1", ""),
        ("n,,m=ext,n=alice,r=1", ""),
        ("n,,n=alice,r=1,m=ext", ""),
        ("n,,n=al=ice,r=1", ""),
        ("n,a=bob,n=alice,r=1", "Authentication failed: Client requested an authorization id"),
        ("", ""),
    ],
)
def test_first_messages_that_are_refused(message: str, told: str) -> None:
    outcome = server().step(message.encode(), 0)
    assert isinstance(outcome, Denied)
    assert outcome.told.startswith(told)
    assert bool(outcome.told) == bool(told)


@pytest.mark.parametrize("first", ["n,a=alice,n=alice,r=1", "y,,n=alice,r=1,tokenauth=false"])
def test_first_messages_that_are_taken(first: str) -> None:
    assert isinstance(server().step(first.encode(), 0), Challenge)


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda proof: proof.replace("c=biws", "c=eSws"),
        lambda proof: proof.replace("server-nonce", "other-nonce"),
        lambda proof: proof.replace(",p=", ",p=AAAA"),
        lambda proof: proof[:-1],
        lambda proof: proof + "\n",
        lambda proof: proof.partition(",p=")[0],
    ],
)
def test_final_messages_that_are_refused(spoilt: Any) -> None:
    client, ours = ScramClient(SCRAM_SHA_256, "alice", "alice's", "client-nonce"), server()
    challenge = ours.step(client.first(), 0)
    assert isinstance(challenge, Challenge)
    proof = client.step(challenge.token)
    assert proof is not None
    assert isinstance(ours.step(spoilt(proof.decode()).encode(), 0), Denied)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=client-nonceX,s=YQ==,i=4095",
        b"r=client-nonce,s=YQ==,i=4096",
        b"r=other,s=YQ==,i=4096",
        b"r=client-nonceX,s=Y,i=4096",
        b"r=client-nonceX,s=YQ==,i=999999999",
        b"e=other-error",
        b"\xff",
    ],
)
def test_servers_that_are_not_believed(challenge: bytes) -> None:
    with pytest.raises(AuthenticationError):
        ScramClient(SCRAM_SHA_256, "alice", "x", "client-nonce").step(challenge)


def test_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "x", "n")
    client.step(b"r=nX,s=YQ==,i=4096")
    for answer in (b"v=AAAA", b"e=invalid-proof", b"", b"v=\xff"):
        with pytest.raises(AuthenticationError):
            client.step(answer)


@given(st.lists(st.binary(max_size=120) | st.text(max_size=60).map(str.encode), max_size=4))
def test_whatever_comes_nobody_is_let_in(tokens: list[bytes]) -> None:
    ours = server()
    for token in tokens:
        outcome = ours.step(token, 0)
        assert not isinstance(outcome, Accepted)
        if isinstance(outcome, Denied):
            break


@given(st.binary(max_size=120) | st.text(max_size=60).map(str.encode))
def test_no_proof_but_the_right_one(data: bytes) -> None:
    for final in (data, b"c=biws,r=1server-nonce,p=" + base64.b64encode(data)):
        ours = server()
        assert isinstance(ours.step(b"n,,n=alice,r=1", 0), Challenge)
        assert isinstance(ours.step(final, 0), Denied)


@given(st.binary(max_size=120))
def test_clients_take_no_nonsense(data: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "x", "n")
    with pytest.raises(AuthenticationError):
        client.step(data)


def test_passwords_are_checked() -> None:
    credential = stored(SCRAM_SHA_512, "secret")
    assert verifies(SCRAM_SHA_512, credential, "secret")
    assert not verifies(SCRAM_SHA_512, credential, "Secret")
    assert "a salt" not in repr(credential)


def test_credentials_as_kafka_writes_them() -> None:
    credential = stored(SCRAM_SHA_256, "secret")
    parts = [
        f"{name}={base64.b64encode(getattr(credential, name)).decode()}"
        for name in ("salt", "stored_key", "server_key")
    ]
    assert read_credential(SCRAM_SHA_256, ",".join([*parts, "iterations=4096"])) == credential
    for wrong in (
        "",
        ",".join(parts),
        ",".join([*parts, "iterations=1"]),
        ",".join([*parts[:2], "server_key=AAAA", "iterations=4096"]),
        ",".join([*parts[:2], "server_key=!", "iterations=4096"]),
    ):
        with pytest.raises(ConfigError) as error:
            read_credential(SCRAM_SHA_256, wrong)
        assert parts[1] not in str(error.value)
