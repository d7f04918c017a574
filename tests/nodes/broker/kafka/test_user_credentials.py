"""The users of a cluster: changed through any broker, known to all, whoever was away."""

from __future__ import annotations

import base64

import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.nodes.broker.kafka.cluster.spreading import COMPARE_MS
from steelyard.nodes.broker.kafka.logins import credentials as module
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.requests import USERS
from steelyard.nodes.broker.users import User, UserStore
from steelyard.sasl.credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    credential_of,
    verifies,
)
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logins import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from steelyard.wire.remoting.codes import ResponseCode
from steelyard.wire.remoting.command import Command

ITERATIONS = 4096


def upsertion(
    name: str, password: str = "secret", mechanism: ScramMechanism = SCRAM_SHA_256
) -> ScramCredentialUpsertion:
    salted = mechanism.salted(password, b"salt", ITERATIONS)
    return ScramCredentialUpsertion(name, mechanism.number, ITERATIONS, b"salt", salted)


def deletion(name: str, mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name, mechanism.number)


def request(
    *items: ScramCredentialUpsertion | ScramCredentialDeletion,
) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        [item for item in items if isinstance(item, ScramCredentialDeletion)],
        [item for item in items if isinstance(item, ScramCredentialUpsertion)],
    )


def alter(
    rig: KafkaRig, *items: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    answer = rig.ask(request(*items), 0, AlterUserScramCredentialsResponse)
    return {each.user: (each.error_code, each.error_message) for each in answer.results}


def describe(rig: KafkaRig, *names: str) -> dict[str, tuple[int, list[CredentialInfo]]]:
    asked = DescribeUserScramCredentialsRequest([UserName(name) for name in names])
    answer = rig.ask(asked, 0, DescribeUserScramCredentialsResponse)
    return {each.user: (each.error_code, list(each.credential_infos)) for each in answer.results}


def test_a_user_comes_changes_and_goes(rig: KafkaRig) -> None:
    assert alter(rig, upsertion("alice")) == {"alice": (0, None)}
    assert alter(rig, upsertion("alice", mechanism=SCRAM_SHA_512)) == {"alice": (0, None)}
    both = [CredentialInfo(1, ITERATIONS), CredentialInfo(2, ITERATIONS)]
    assert describe(rig) == {"alice": (0, both)}
    users = rig.node._parts.users
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        credential = users.credential("alice", mechanism.name)
        assert credential is not None
        assert verifies(mechanism, credential, "secret")
    rig.restart()
    assert alter(rig, deletion("alice")) == {"alice": (0, None)}
    assert describe(rig, "alice") == {"alice": (0, both[1:])}
    assert alter(rig, deletion("alice", SCRAM_SHA_512)) == {"alice": (0, None)}
    assert describe(rig) == {}
    assert describe(rig, "alice")["alice"][0] == ErrorCode.RESOURCE_NOT_FOUND


def test_nothing_stored_gives_the_password_away(rig: KafkaRig) -> None:
    item = upsertion("alice", "a password")
    alter(rig, item)
    everything = b"".join(bytes(file.data) for file in rig.disk.files.values())
    assert b"alice" in everything
    for secret in (b"a password", item.salted_password):
        assert secret not in everything
        assert base64.b64encode(secret) not in everything
    assert "a password" not in repr(item)


@pytest.mark.parametrize(
    ("item", "code", "text"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("x" * 256), ErrorCode.UNACCEPTABLE_CREDENTIAL, "255 bytes"),
        (
            ScramCredentialUpsertion("a", 1, 4095, b"s", b"x" * 32),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too few iterations",
        ),
        (
            ScramCredentialUpsertion("a", 1, 16385, b"s", b"x" * 32),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too many iterations",
        ),
        (
            ScramCredentialUpsertion("a", 3, 4096, b"s", b"x" * 32),
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (
            ScramCredentialUpsertion("a", 2, 4096, b"s", b"x" * 32),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "must have 64 bytes",
        ),
        (
            ScramCredentialUpsertion("a", 1, 4096, b"", b"x" * 32),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "1 to 1024 bytes",
        ),
        (
            deletion("nobody"),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_is_refused(
    rig: KafkaRig,
    item: ScramCredentialUpsertion | ScramCredentialDeletion,
    code: ErrorCode,
    text: str,
) -> None:
    """Each user on its own: the other one of the request is changed."""
    results = alter(rig, item, upsertion("bob"))
    found, told = results[item.name]
    assert found == code
    assert text in (told or "")
    assert results["bob"] == (0, None)
    assert set(describe(rig)) == {"bob"}


def test_a_user_twice_in_a_request(rig: KafkaRig) -> None:
    alter(rig, upsertion("alice"))
    results = alter(rig, deletion("alice"), upsertion("alice", mechanism=SCRAM_SHA_512))
    assert results["alice"][0] == ErrorCode.DUPLICATE_RESOURCE
    assert describe(rig, "alice", "alice")["alice"][0] == ErrorCode.DUPLICATE_RESOURCE


def test_too_many_at_once(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALTERED_MAX", 2)
    results = alter(rig, *(upsertion(f"u{number}") for number in range(3)))
    assert [code for code, _ in results.values()] == [0, 0, ErrorCode.POLICY_VIOLATION]


def test_too_many_users(rig: KafkaRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.nodes.broker.users.USERS_MAX", 1)
    assert alter(rig, upsertion("a"))["a"][0] == 0
    assert alter(rig, upsertion("b"))["b"][0] == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert alter(rig, upsertion("a", "another"))["a"][0] == 0


# -- several brokers -----------------------------------------------------------------------------


def users(brokers: Brokers, name: str) -> UserStore:
    node = brokers.processes[name].node
    assert isinstance(node, BrokerNode)
    return node._parts.users


def change(
    brokers: Brokers, name: str, *items: ScramCredentialUpsertion | ScramCredentialDeletion
) -> None:
    answer = brokers.ask(name, request(*items), 0, AlterUserScramCredentialsResponse)
    assert all(each.error_code == 0 for each in answer.results)


def test_all_live_brokers_know_when_it_is_answered() -> None:
    brokers = Brokers("broker-a", "broker-b", "broker-c")
    change(brokers, "broker-b", upsertion("alice"))
    for name in ("broker-a", "broker-c"):
        assert users(brokers, name).all() == users(brokers, "broker-b").all()
    change(brokers, "broker-c", deletion("alice"))
    for name in ("broker-a", "broker-b", "broker-c"):
        assert users(brokers, name).names() == []


def test_who_was_away_learns_of_it_and_brings_nobody_back() -> None:
    brokers = Brokers("broker-a", "broker-b")
    change(brokers, "broker-a", upsertion("alice"), upsertion("bob"))
    brokers.kill("broker-b")
    change(brokers, "broker-a", deletion("alice"), upsertion("carol"))
    brokers.start("broker-b")
    brokers.advance(1_000)
    for name in ("broker-a", "broker-b"):
        assert users(brokers, name).names() == ["bob", "carol"]


def test_who_changed_alone_tells_the_other_later() -> None:
    """Both changed while they did not see each other; the higher version of each user counts."""
    brokers = Brokers("broker-a", "broker-b")
    change(brokers, "broker-a", upsertion("alice"))
    brokers.kill("broker-b")
    change(brokers, "broker-a", upsertion("bob"))
    brokers.kill("broker-a")
    brokers.start("broker-b")
    brokers.advance(6_000)
    change(brokers, "broker-b", upsertion("alice", "new"))
    change(brokers, "broker-b", deletion("alice"), upsertion("carol"))
    brokers.start("broker-a")
    brokers.advance(6_000)
    for name in ("broker-a", "broker-b"):
        assert users(brokers, name).names() == ["bob", "carol"]
        assert users(brokers, name).digest == users(brokers, "broker-a").digest


def test_what_was_lost_on_the_way_is_found_by_comparing() -> None:
    brokers = Brokers("broker-a", "broker-b")
    change(brokers, "broker-a", upsertion("alice"))
    brokers.lost = lambda command: command.code == USERS
    posted = brokers.post("broker-a", request(upsertion("bob")), 0)
    assert posted not in brokers.replies
    brokers.advance(6_000)  # the call ends
    assert brokers.answer(posted, AlterUserScramCredentialsResponse).results[0].error_code == 0
    assert users(brokers, "broker-b").names() == ["alice"]
    brokers.lost = lambda command: False
    brokers.advance(2 * COMPARE_MS)
    assert users(brokers, "broker-b").names() == ["alice", "bob"]


def test_brokers_without_users_or_logins_ask_nobody() -> None:
    seen: list[int] = []
    brokers = Brokers("broker-a", "broker-b")

    def note(command: Command) -> bool:
        seen.append(command.code)
        return False

    brokers.lost = note
    brokers.advance(3 * COMPARE_MS)
    assert seen
    assert USERS not in seen


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}x",
        b'{"records":[{"name":"","version":1}]}',
        b'{"records":[{"name":"a","version":1,"scram":{"PLAIN":{}}}]}',
    ],
)
def test_nonsense_of_other_brokers(body: bytes) -> None:
    brokers = Brokers("broker-a")
    reply = brokers.command("broker-a", USERS, {}, body)
    assert reply.code != ResponseCode.SUCCESS
    assert users(brokers, "broker-a").all() == []


def test_a_first_user_of_several_brokers() -> None:
    """Each salted its password by itself; in the end all have the same."""
    one, other = (
        User("admin", 0, {"SCRAM-SHA-256": users_credential(salt)}) for salt in (b"a", b"b")
    )
    brokers = Brokers("broker-a", "broker-b")
    users(brokers, "broker-a").merge([one])
    users(brokers, "broker-b").merge([other])
    brokers.advance(2 * COMPARE_MS)
    assert users(brokers, "broker-a").all() == users(brokers, "broker-b").all() != []


def users_credential(salt: bytes) -> ScramCredential:
    return credential_of(SCRAM_SHA_256, SCRAM_SHA_256.salted("x", salt, 4096), salt, 4096)
