"""Accounts of RocketMQ's ACL: who signs requests, and what they may do with topics and groups.

An account of RocketMQ 4.x has a permission of each topic and group: one of its own, or a default.
A group's is also that of its retry topic. An administrator may do everything; one that has
permissions of single topics or groups is bound by them and its defaults, as in Apache RocketMQ.
Accounts of 5.x are in `policies`.
Source: acl/plain/PlainPermissionManager.java (checkPerm), acl/common/Permission.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntFlag
from typing import ClassVar

import msgspec

from steelyard.acl.address_patterns import AddressPattern, numbers_of

ADDRESSES_MAX = 10_000
"""Most clients' addresses that are remembered with what white lists say of them."""


class AccountGrant(IntFlag):
    """What an account may do with a topic or group; of needed ones, any will do.

    Accounts of 4.x have PUB and SUB only; all others are actions of 5.x.
    """

    DENY = 0
    PUB = 4
    SUB = 8
    PUB_OR_SUB = 12
    CREATE = 16
    UPDATE = 32
    DELETE = 64
    GET = 128
    LIST = 256
    ALL = 508


class ResourceKind(Enum):
    """What the policies of 5.x are about."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Account(msgspec.Struct, frozen=True):
    """An account. Its text has no secret.

    `white`: from where its requests need neither a signature nor a permission.
    """

    access_key: str
    secret: bytes
    is_admin: bool = False
    default_topic: AccountGrant = AccountGrant.DENY
    default_group: AccountGrant = AccountGrant.DENY
    topics: Mapping[str, AccountGrant] = {}
    groups: Mapping[str, AccountGrant] = {}
    white: AddressPattern | None = None

    GRANTABLE: ClassVar[AccountGrant] = AccountGrant.PUB_OR_SUB
    """What accounts of this kind can have."""

    def __repr__(self) -> str:
        return f"<Account {self.access_key!r}>"

    @property
    def is_unlimited(self) -> bool:
        """Return whether it may do everything."""
        return self.is_admin and not self.topics and not self.groups

    def seen_from(self, ip: str) -> Account:
        """Return the account as it is for requests from an address."""
        del ip
        return self

    def may_administer(self, kind: ResourceKind, name: str, needed: AccountGrant) -> bool:
        """Return whether it may send an operator's request about a resource."""
        del kind, name, needed
        return self.is_admin

    def may_use_topic(self, topic: str, needed: AccountGrant, *, is_internal: bool = False) -> bool:
        """Return whether it may do that with a topic.

        `is_internal`: it belongs to the servers, and no default applies to it.
        """
        default = AccountGrant.DENY if is_internal else self.default_topic
        return self.is_unlimited or bool(needed & self.topics.get(topic, default))

    def may_use_group(self, group: str, needed: AccountGrant = AccountGrant.SUB) -> bool:
        """Return whether it may do that in a group."""
        return self.is_unlimited or bool(needed & self.groups.get(group, self.default_group))


class Accounts:
    """All accounts, and the global white list."""

    def __init__(
        self, accounts: Sequence[Account] = (), white: Sequence[AddressPattern] = ()
    ) -> None:
        self._by_key = {account.access_key: account for account in accounts}
        self._white = tuple(white)
        self._numbers: dict[str, tuple[int, ...]] = {}

    def find(self, access_key: str) -> Account | None:
        return self._by_key.get(access_key)

    def is_white(self, ip: str) -> bool:
        """Return whether requests from an address need no account."""
        return bool(self._white) and any(each.matches(self._parsed(ip)) for each in self._white)

    def is_white_for(self, account: Account, ip: str) -> bool:
        """Return whether an account's requests from an address need no signature."""
        return account.white is not None and account.white.matches(self._parsed(ip))

    def _parsed(self, ip: str) -> tuple[int, ...]:
        found = self._numbers.get(ip)
        if found is None:
            if len(self._numbers) >= ADDRESSES_MAX:
                self._numbers.clear()
            found = self._numbers[ip] = numbers_of(ip)
        return found
