"""The users on a broker's disk: versions, merging in any order, deletion, damage."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import StoreConfig
from steelyard.errors import ConfigError, ProtocolError
from steelyard.nodes.broker import users as module
from steelyard.nodes.broker.users import User, UserStore, check_name, check_user
from steelyard.sasl.credentials import SCRAM_SHA_256, ScramCredential, credential_of
from steelyard.store.memory import MemoryDisk
from steelyard.store.store import Store


def credential(salted: bytes = b"x" * 32) -> ScramCredential:
    return credential_of(SCRAM_SHA_256, salted, b"salt", 4096)


SCRAM = {"SCRAM-SHA-256": credential()}
OTHER = {"SCRAM-SHA-256": credential(b"y" * 32)}


class Kept:
    """A store on a disk in memory."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()

    def users(self, *first: User) -> UserStore:
        store = Store(self.disk, StoreConfig(), None)
        store.open(0)
        found = UserStore(store.table("users"), first)
        found.check()
        return found


def test_what_is_stored_is_there_after_a_restart() -> None:
    kept = Kept()
    users = kept.users()
    users.merge([users.changed("alice", SCRAM), users.changed("bob", SCRAM)])
    users.merge([users.changed("bob", {})])
    again = kept.users()
    assert again.names() == ["alice"]
    assert again.credential("alice", "SCRAM-SHA-256") == credential()
    assert again.credential("alice", "SCRAM-SHA-512") is None
    assert again.get("bob") is None
    assert again.all() == users.all()
    assert again.digest == users.digest != ""
    assert again.changed("bob", SCRAM).version == 3


def test_first_users_come_once() -> None:
    kept = Kept()
    users = kept.users(User("admin", 0, SCRAM))
    assert users.names() == ["admin"]
    users.merge([users.changed("admin", OTHER)])
    again = kept.users(User("admin", 0, SCRAM))
    assert again.credential("admin", "SCRAM-SHA-256") == OTHER["SCRAM-SHA-256"]
    again.merge([again.changed("admin", {})])
    assert kept.users(User("admin", 0, SCRAM)).names() == []


VERSIONS = [
    User("a", 0, SCRAM),
    User("a", 1, SCRAM),
    User("a", 1, OTHER),
    User("a", 2, {}),
    User("b", 7, OTHER),
]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_all_brokers_come_to_the_same(order: tuple[int, ...]) -> None:
    """In whatever order they hear of versions, together or one by one."""
    one, other = Kept().users(), Kept().users()
    one.merge(VERSIONS)
    for position in order:
        other.merge([VERSIONS[position]])
    other.merge([VERSIONS[4]])
    assert one.all() == other.all() == [VERSIONS[3], VERSIONS[4]]
    assert one.digest == other.digest


@given(st.lists(st.sampled_from(VERSIONS)), st.lists(st.sampled_from(VERSIONS)))
def test_merging_both_ways_ends_differences(ours: list[User], theirs: list[User]) -> None:
    one, other = Kept().users(), Kept().users()
    one.merge(ours)
    other.merge(theirs)
    one.merge(other.all())
    other.merge(one.all())
    assert one.all() == other.all()
    assert not one.merge(other.all())


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USERS_MAX", 3)
    users = Kept().users()
    for number in range(3):
        assert users.has_room(f"u{number}")
        users.merge([users.changed(f"u{number}", SCRAM)])
    assert not users.has_room("another")
    assert users.has_room("u1")
    for number in range(3):
        users.merge([users.changed(f"u{number}", {})])
    users.merge([User("u3", 1, {})])
    assert [user.name for user in users.all()] == ["u1", "u2", "u3"]
    users.check()


@pytest.mark.parametrize("name", ["", "a" * 256, "é" * 128, "a\0b"])
def test_names_that_nobody_can_have(name: str) -> None:
    with pytest.raises(ConfigError):
        check_name(name)
    with pytest.raises(ProtocolError):
        check_user(User(name, 1, SCRAM))


@pytest.mark.parametrize(
    "user",
    [
        User("a", -1, SCRAM),
        User("a", 2**60, SCRAM),
        User("a", 1, {"SCRAM-SHA-1": credential()}),
        User("a", 1, {"SCRAM-SHA-512": credential()}),
        User("a", 1, {"SCRAM-SHA-256": ScramCredential(b"", b"x" * 32, b"x" * 32, 4096)}),
        User("a", 1, {"SCRAM-SHA-256": ScramCredential(b"s", b"x" * 32, b"x" * 32, 1)}),
        User("a", 1, {"SCRAM-SHA-256": ScramCredential(b"s", b"x" * 32, b"x" * 32, 10**9)}),
    ],
)
def test_users_that_no_broker_sends(user: User) -> None:
    with pytest.raises(ProtocolError):
        check_user(user)
