"""The users of a cluster, on this broker's disk: what their passwords are verified by.

The table `users` has a JSON object for each, in versions (`versioned`), with its credentials by
mechanism; a deleted user has none. Clients of either dialect log in as these users; no password is
stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from steelyard.errors import ConfigError, ProtocolError
from steelyard.nodes.broker.versioned import VersionedStore, check_version
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
    check_version(user.version, "a user")
    for name, credential in user.scram.items():
        mechanism = SCRAM_MECHANISMS.get(name)
        if mechanism is None:
            raise ProtocolError(f"{name[:50]!r} is not a mechanism of SCRAM")
        sizes = {len(credential.stored_key), len(credential.server_key)}
        if sizes != {mechanism.key_bytes} or not 0 < len(credential.salt) <= SALT_BYTES_MAX:
            raise ProtocolError(f"a credential of {name} has a salt or keys of a wrong length")
        if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
            raise ProtocolError(f"a credential of {name} has {credential.iterations} iterations")


class UserStore(VersionedStore[User]):
    """The users on this broker's disk. Methods that write raise StorageError."""

    def __init__(self, table: Table, first: Sequence[User] = ()) -> None:
        """Read the table. `first`: users to create if they never were, from a file."""
        super().__init__(table, User)
        self.merge(user for user in first if user.name not in self._records)

    @property
    def limit(self) -> int:
        return USERS_MAX

    def credential(self, name: str, mechanism: str) -> ScramCredential | None:
        user = self._records.get(name)
        return None if user is None else user.scram.get(mechanism)

    def changed(self, name: str, scram: Mapping[str, ScramCredential]) -> User:
        """Return the next version of a user, with these credentials; `merge` stores it."""
        version = self.next_version(name)
        return User(name, version, {each: scram[each] for each in sorted(scram)})

    def has_room(self, name: str) -> bool:
        """Return whether a user of this name can be created, or exists."""
        return self.get(name) is not None or len(self.names()) < USERS_MAX
