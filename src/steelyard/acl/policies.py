"""Users and policies of RocketMQ 5.x: what each user may do with which resource, from where.

A policy entry names a resource, actions, addresses, and whether they are allowed:

| resource | which |
|---|---|
| `*` | everything |
| `Topic:*`, `Group:*`, `Cluster:*` | all of a type |
| `Topic:orders*` | those whose names begin so |
| `Topic:orders`, `Group:billing`, `Cluster:DefaultCluster` | one |

Of the entries that match a request, the one with the most exact resource decides: a name before a
prefix, a long prefix before a short one, then all of a type, then everything. If none matches, the
request is denied. Entries of the DEFAULT policy count only if none of the CUSTOM policy matches.
Source: auth/authorization/chain/AclAuthorizationHandler.java, auth/authorization/model/*.java,
auth/authentication/model/User.java.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from enum import Enum

import msgspec
from msgspec.structs import replace

from steelyard.acl.accounts import ADDRESSES_MAX, Account, AccountGrant, ResourceKind
from steelyard.decoding import prepared
from steelyard.errors import ConfigError, ProtocolError

ANY = "*"
SUBJECT = "User:"
"""What the name of a user begins with where policies name their subject."""
ENTRIES_MAX = 1_000
"""Most entries of one user's policies."""
ITEMS_MAX = 100
"""Most addresses of one entry."""
NAME_CHARACTERS_MAX = 255
DECISIONS_MAX = 10_000
"""Most decisions that are remembered for a user; then all are forgotten."""

ACTIONS = {
    "All": AccountGrant.ALL,
    "Pub": AccountGrant.PUB,
    "Sub": AccountGrant.SUB,
    "Create": AccountGrant.CREATE,
    "Update": AccountGrant.UPDATE,
    "Delete": AccountGrant.DELETE,
    "Get": AccountGrant.GET,
    "List": AccountGrant.LIST,
}
"""By their names in policies; upper and lower case do not matter."""


class UserType(Enum):
    """A super user may do everything; a normal one, what its policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """A disabled user may do nothing."""

    ENABLE = "enable"
    DISABLE = "disable"


class PolicyType(Enum):
    """Entries of the default policy count where no custom one matches."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class PolicyDecision(Enum):
    """What an entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyEntry(msgspec.Struct, frozen=True):
    """An entry of a policy; see the module docstring.

    `source_ips`: addresses or networks from which it counts; none: from everywhere.
    """

    policy_type: PolicyType
    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: PolicyDecision

    @property
    def key(self) -> tuple[PolicyType, str]:
        """What another entry must differ in; otherwise it replaces this one."""
        return self.policy_type, self.resource

    @property
    def grants(self) -> AccountGrant:
        """The actions that it is about."""
        found = AccountGrant.DENY
        for name in self.actions:
            found |= ACTIONS[name]
        return found

    def concerns(self, kind: ResourceKind, name: str) -> tuple[int, int] | None:
        """Return how exactly its resource names this one: greater is more exact; None: not at all.

        An empty `name` stands for any of the kind, which every entry about some of them concerns.
        """
        if self.resource == ANY:
            return 0, 0
        own_kind, _, own_name = self.resource.partition(":")
        if own_kind != kind.value:
            return None
        if own_name == ANY:
            return 1, 0
        if own_name.endswith(ANY):
            prefix = own_name[:-1]
            return (2, len(prefix)) if not name or name.startswith(prefix) else None
        return (3, 0) if name in ("", own_name) else None

    def counts_from(self, ip: str) -> bool:
        """Return whether it counts for requests from an address."""
        if not self.source_ips:
            return True
        try:
            address = ipaddress.ip_address(ip.strip("[]"))
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(each, strict=False) for each in self.source_ips)


class AclUser(msgspec.Struct, frozen=True):
    """A user, and its policies. Its text has no secret."""

    name: str
    password: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE
    entries: tuple[PolicyEntry, ...] = ()

    def __repr__(self) -> str:
        return f"<AclUser {self.name!r}>"

    def with_entries(self, changed: tuple[PolicyEntry, ...]) -> AclUser:
        """Return it with these entries, which replace those about the same resources.

        Raises ConfigError if there are too many.
        """
        found = {entry.key: entry for entry in (*self.entries, *changed)}
        if len(found) > ENTRIES_MAX:
            raise ConfigError(
                f"user {self.name!r} would have {len(found)} policy entries; at most {ENTRIES_MAX}"
                " are possible"
            )
        return replace(self, entries=tuple(found.values()))

    def without_entry(self, policy_type: PolicyType, resource: str) -> AclUser:
        """Return it without the entry about a resource."""
        key = policy_type, resource
        return replace(self, entries=tuple(each for each in self.entries if each.key != key))

    def account(self) -> PolicyAccount | None:
        """Return the account that signs with its name and password; None if it is disabled."""
        if self.status is UserStatus.DISABLE:
            return None
        is_super = self.type is UserType.SUPER
        return PolicyAccount(
            self.name,
            self.password.encode(),
            is_super,
            entries=self.entries,
            has_addresses=any(entry.source_ips for entry in self.entries),
        )


def check_resource(resource: str) -> None:
    """Raise ConfigError if this is no resource of a policy."""
    if resource == ANY:
        return
    kind, colon, name = resource.partition(":")
    if not colon or kind not in {each.value for each in ResourceKind}:
        kinds = ", ".join(f"{each.value}:NAME" for each in ResourceKind)
        raise ConfigError(
            f"{resource[:100]!r} is not a resource; expected *, or one of {kinds}, where NAME may"
            " be *, or end with it"
        )
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or ANY in name[:-1]:
        raise ConfigError(
            f"{resource[:100]!r}: a name has 1 to {NAME_CHARACTERS_MAX} characters, and only the"
            " last one may be *"
        )


def check_entry(entry: PolicyEntry) -> None:
    """Raise ConfigError if an entry's resource, actions or addresses are none."""
    check_resource(entry.resource)
    if not entry.actions:
        raise ConfigError(f"the entry about {entry.resource} has no actions")
    for action in entry.actions:
        if action not in ACTIONS:
            raise ConfigError(f"{action[:50]!r} is not an action; expected {', '.join(ACTIONS)}")
    if len(entry.source_ips) > ITEMS_MAX:
        raise ConfigError(f"the entry about {entry.resource} has more than {ITEMS_MAX} addresses")
    for text in entry.source_ips:
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise ConfigError(
                f"{text[:50]!r} is neither an IP address nor a network such as 10.1.0.0/16"
            ) from None


def read_users(data: bytes) -> list[AclUser]:
    """Return the users that a broker tells a nameserver of. Raises ProtocolError."""
    try:
        users = msgspec.json.decode(data, type=prepared(list[AclUser]))
        for user in users:
            for entry in user.entries:
                check_entry(entry)
    except (msgspec.DecodeError, ConfigError) as error:
        raise ProtocolError(f"the body has no users: {error}") from None
    return users


class PolicyAccount(Account, frozen=True):
    """The account of a user of RocketMQ 5.x: its policies are its permissions."""

    entries: tuple[PolicyEntry, ...] = ()
    has_addresses: bool = False
    """Whether some entries count from some addresses only; noted, as each request asks for it."""
    decided: dict[tuple[object, ...], bool] = msgspec.field(default_factory=dict)
    """Decisions so far."""
    seen: dict[str, PolicyAccount] = msgspec.field(default_factory=dict)
    """By address, where entries name some."""

    GRANTABLE = AccountGrant.ALL

    def seen_from(self, ip: str) -> Account:
        """Return the account as it is for requests from an address."""
        if not self.has_addresses:
            return self
        found = self.seen.get(ip)
        if found is None:
            if len(self.seen) >= ADDRESSES_MAX:
                self.seen.clear()
            entries = tuple(
                replace(entry, source_ips=()) for entry in self.entries if entry.counts_from(ip)
            )
            found = self.seen[ip] = PolicyAccount(
                self.access_key, self.secret, self.is_admin, entries=entries
            )
        return found

    def may_administer(self, kind: ResourceKind, name: str, needed: AccountGrant) -> bool:
        return self.may(kind, name, needed)

    def may_use_topic(self, topic: str, needed: AccountGrant, *, is_internal: bool = False) -> bool:
        return self.may(ResourceKind.TOPIC, topic, needed, is_named=is_internal)

    def may_use_group(self, group: str, needed: AccountGrant = AccountGrant.SUB) -> bool:
        return self.may(ResourceKind.GROUP, group, needed)

    def may(
        self, kind: ResourceKind, name: str, needed: AccountGrant, *, is_named: bool = False
    ) -> bool:
        """Return whether it may do one of these with a resource.

        `is_named`: only entries that name the resource, or begin like it, count.
        """
        if self.is_unlimited:
            return True
        key = kind, name, needed, is_named
        found = self.decided.get(key)
        if found is None:
            if len(self.decided) >= DECISIONS_MAX:
                self.decided.clear()
            found = self.decided[key] = self._decide(kind, name, needed, is_named=is_named)
        return found

    def _decide(
        self, kind: ResourceKind, name: str, needed: AccountGrant, *, is_named: bool
    ) -> bool:
        matching = [
            (exactness, entry)
            for exactness, entry in self._concerning(kind, name)
            if entry.grants & needed and (exactness[0] >= 2 or not is_named)
        ]
        for policy_type in PolicyType:
            found = [each for each in matching if each[1].policy_type is policy_type]
            if found:
                _, entry = max(found, key=lambda each: each[0])
                return entry.decision is PolicyDecision.ALLOW
        return False

    def _concerning(
        self, kind: ResourceKind, name: str
    ) -> Iterator[tuple[tuple[int, int], PolicyEntry]]:
        for entry in self.entries:
            exactness = entry.concerns(kind, name)
            if exactness is not None:
                yield exactness, entry
