"""The users of a cluster, on this broker's disk: what their passwords are verified by.

The table `users` has a JSON object for each: its `version` and its credentials by mechanism. Every
broker has all users, and each may change one: a change gets a higher version, and of two versions
of a user the higher one counts on all brokers (of equal ones, that with the greater bytes), in
whatever order they hear of them. A deleted user stays as a version without credentials, so that a
broker that was away does not bring it back. Clients of either dialect log in as these users; no
password is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from steelyard.errors import ConfigError, ProtocolError
from steelyard.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SCRAM_MECHANISMS,
    ScramCredential,
)
from steelyard.store.tables import Table

USERS_MAX = 10_000
"""Most users, and most deleted ones that are remembered; the oldest of these are forgotten first.
"""

NAME_BYTES_MAX = 255
"""Largest name of a user, in UTF-8 (RFC 4616)."""

VERSION_MAX = 2**53


class User(msgspec.Struct, frozen=True):
    """A user. `scram`: its credentials by the name of the mechanism; a deleted one has none."""

    name: str
    version: int = 0
    scram: dict[str, ScramCredential] = {}

    @property
    def is_deleted(self) -> bool:
        return not self.scram


def check_name(name: str) -> None:
    """Raise ConfigError if a user cannot have this name."""
    if not name or len(name.encode(errors="replace")) > NAME_BYTES_MAX or "\0" in name:
        raise ConfigError(
            f"{name[:50]!r} cannot be the name of a user: it has 1 to {NAME_BYTES_MAX} bytes, none"
            " of them NUL"
        )


def check_user(user: User) -> None:
    """Raise ProtocolError if another broker could not have sent this user."""
    try:
        check_name(user.name)
    except ConfigError as error:
        raise ProtocolError(str(error)) from None
    if not 0 <= user.version <= VERSION_MAX:
        raise ProtocolError(f"{user.version} is not the version of a user")
    for name, credential in user.scram.items():
        mechanism = SCRAM_MECHANISMS.get(name)
        if mechanism is None:
            raise ProtocolError(f"{name[:50]!r} is not a mechanism of SCRAM")
        sizes = {len(credential.stored_key), len(credential.server_key)}
        if sizes != {mechanism.key_bytes} or not 0 < len(credential.salt) <= SALT_BYTES_MAX:
            raise ProtocolError(f"a credential of {name} has a salt or keys of a wrong length")
        if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
            raise ProtocolError(f"a credential of {name} has {credential.iterations} iterations")


class UserStore:
    """The users on this broker's disk. Methods that write raise StorageError."""

    def __init__(self, table: Table, first: Sequence[User] = ()) -> None:
        """Read the table. `first`: users to create if they never were, from a file."""
        self._table = table
        self._users: dict[str, User] = {}
        for name, data in table.items():
            try:
                self._users[name] = msgspec.json.decode(data, type=User)
            except msgspec.DecodeError:
                continue
        self._digest = ""
        self.changes = 0
        """Incremented with every change."""
        self.merge(user for user in first if user.name not in self._users)

    def __len__(self) -> int:
        """Return the number of users, deleted ones included."""
        return len(self._users)

    def get(self, name: str) -> User | None:
        """Return a user; None if there is none, or not any more."""
        user = self._users.get(name)
        return None if user is None or user.is_deleted else user

    def credential(self, name: str, mechanism: str) -> ScramCredential | None:
        user = self._users.get(name)
        return None if user is None else user.scram.get(mechanism)

    def names(self) -> list[str]:
        """Return the names of all users that are not deleted, sorted."""
        return sorted(name for name, user in self._users.items() if not user.is_deleted)

    def all(self) -> list[User]:
        """Return all users, deleted ones included, by name."""
        return [self._users[name] for name in sorted(self._users)]

    @property
    def digest(self) -> str:
        """A text that is the same on two brokers that have the same users."""
        if not self._digest and self._users:
            found = hashlib.sha256()
            for user in self.all():
                found.update(_encoded(user) + b"\n")
            self._digest = found.hexdigest()
        return self._digest

    def changed(self, name: str, scram: Mapping[str, ScramCredential]) -> User:
        """Return the next version of a user, with these credentials; `merge` stores it."""
        known = self._users.get(name)
        version = 1 if known is None else known.version + 1
        return User(name, version, {each: scram[each] for each in sorted(scram)})

    def has_room(self, name: str) -> bool:
        """Return whether a user of this name can be created, or exists."""
        return self.get(name) is not None or len(self.names()) < USERS_MAX

    def merge(self, users: Iterable[User]) -> list[User]:
        """Take in versions of users that are newer than the known ones; return those."""
        newer: dict[str, User] = {}
        for user in users:
            known = newer.get(user.name) or self._users.get(user.name)
            if known is None or _rank(known) < _rank(user):
                newer[user.name] = user
        if not newer:
            return []
        dropped = self._forgotten(newer)
        pairs: list[tuple[str, bytes | None]] = [
            (name, _encoded(user)) for name, user in newer.items()
        ]
        self._table.put_many([*pairs, *((name, None) for name in dropped)])
        self._users.update(newer)
        for name in dropped:
            del self._users[name]
        self._digest = ""
        self.changes += 1
        return list(newer.values())

    def _forgotten(self, newer: Mapping[str, User]) -> list[str]:
        """Return the deleted users to forget, because there are too many with these."""
        deleted = [
            name for name, user in self._users.items() if user.is_deleted and name not in newer
        ]
        count = len(deleted) + sum(user.is_deleted for user in newer.values())
        return deleted[: max(0, count - USERS_MAX)]

    def check(self) -> None:
        for name, user in self._users.items():
            assert user.name == name
            assert self._table.get(name) is not None


def _encoded(user: User) -> bytes:
    return msgspec.json.encode(user, order="sorted")


def _rank(user: User) -> tuple[int, bytes]:
    return user.version, _encoded(user)
