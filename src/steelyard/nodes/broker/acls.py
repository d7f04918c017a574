"""The access rules of a cluster, on this broker's disk.

The table `acls` has a JSON object for each rule, in versions (`versioned`). A rule that differs in
anything is another one; so versions only say that it was added or deleted.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from steelyard.acl.bindings import AclBinding, check_binding
from steelyard.acl.rules import Rules
from steelyard.errors import ConfigError, ProtocolError
from steelyard.nodes.broker.versioned import VersionedStore, check_version
from steelyard.store.tables import Table

ACLS_MAX = 10_000
"""Most rules, and most deleted ones that are remembered; the oldest of these are forgotten first.
"""


class AclEntry(msgspec.Struct, frozen=True):
    """A rule that was added, or deleted."""

    binding: AclBinding
    version: int = 0
    is_deleted: bool = False

    @property
    def name(self) -> str:
        return name_of(self.binding)


def name_of(binding: AclBinding) -> str:
    """Return the name of a rule's record, which has all that it says."""
    return msgspec.json.encode(msgspec.structs.astuple(binding)).decode()


def check_entry(entry: AclEntry) -> None:
    """Raise ProtocolError if another broker could not have sent this."""
    try:
        check_binding(entry.binding)
    except ConfigError as error:
        raise ProtocolError(str(error)) from None
    check_version(entry.version, "an access rule")


class AclStore(VersionedStore[AclEntry]):
    """The access rules on this disk. `super_users` and `allow_unmatched`: as in `Rules`."""

    def __init__(
        self, table: Table, super_users: Collection[str] = (), *, allow_unmatched: bool = False
    ) -> None:
        super().__init__(table, AclEntry)
        self._super_users = super_users
        self._allow_unmatched = allow_unmatched
        self._rules: Rules | None = None
        self._rules_of = -1

    @property
    def limit(self) -> int:
        return ACLS_MAX

    @property
    def rules(self) -> Rules:
        """Return the rules that apply now."""
        if self._rules is None or self._rules_of != self.changes:
            self._rules_of = self.changes
            self._rules = Rules(
                self.bindings(), self._super_users, allow_unmatched=self._allow_unmatched
            )
        return self._rules

    def bindings(self) -> list[AclBinding]:
        """Return all rules, sorted."""
        return sorted(entry.binding for entry in self._records.values() if not entry.is_deleted)

    def changed(self, binding: AclBinding, *, is_deleted: bool = False) -> AclEntry:
        """Return the next version of a rule; `merge` stores it."""
        return AclEntry(binding, self.next_version(name_of(binding)), is_deleted)
