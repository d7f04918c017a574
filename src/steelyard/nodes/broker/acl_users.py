"""The users of RocketMQ 5.x, and their policies, on this broker's disk.

The table `acl_users` has a JSON object for each user. As in Apache RocketMQ every broker has its
own users: mqadmin sends a change to each of them. Passwords are stored as they are, because it
takes the password itself to verify a signature.
Source: auth/authentication/provider/LocalAuthenticationMetadataProvider.java.
"""

from __future__ import annotations

import msgspec

from steelyard.acl.policies import AclUser
from steelyard.decoding import prepared
from steelyard.nodes.broker.users import USERS_MAX
from steelyard.store.tables import Table


class AclUserStore:
    """The users on this disk. Methods that write raise StorageError."""

    def __init__(self, table: Table) -> None:
        """Read the table; what cannot be read is left out."""
        self._table = table
        self._users: dict[str, AclUser] = {}
        for name, data in table.items():
            try:
                self._users[name] = msgspec.json.decode(data, type=prepared(AclUser))
            except msgspec.DecodeError:
                continue
        self.were_any = bool(self._users)
        """Whether there are users, or were some since the start, whom nameservers may know."""

    def get(self, name: str) -> AclUser | None:
        return self._users.get(name)

    def all(self) -> list[AclUser]:
        """Return all users, by name."""
        return [self._users[name] for name in sorted(self._users)]

    @property
    def has_room(self) -> bool:
        """Whether another user can be created."""
        return len(self._users) < USERS_MAX

    def put(self, user: AclUser) -> None:
        """Store a user, in place of the one of this name."""
        self._table.put(user.name, msgspec.json.encode(user))
        self._users[user.name] = user
        self.were_any = True

    def delete(self, name: str) -> None:
        self._table.delete(name)
        self._users.pop(name, None)
