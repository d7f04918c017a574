"""Decides by access rules, as Kafka's StandardAuthorizer does.

- A super user may do everything.
- Rules concern a resource by its literal name, by a prefix of it, or as `*` all of a type.
- A denial wins, whatever else is allowed. READ, WRITE, DELETE and ALTER allow DESCRIBE as well,
  ALTER_CONFIGS allows DESCRIBE_CONFIGS; a denial implies nothing.
- If rules concern a resource, what they do not allow is denied. If none does, nobody is allowed
  anything, or with `allow_unmatched` everybody everything.
Source: metadata/authorizer/StandardAuthorizerData.java (findAclRule, findResult),
clients/server/authorizer/Authorizer.java (authorizeByResourceType).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from steelyard.acl.bindings import (
    ANY_NAME,
    ANYBODY,
    OPERATIONS,
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

DECISIONS_MAX = 20_000
"""Most decisions that are remembered; then all are forgotten."""

_ALL = -1
_SOME_NAME = "hardcode"
"""Kafka's name of a resource that stands for one without rules of its own."""

_DESCRIBE, _DESCRIBE_CONFIGS = 1 << AclOperation.DESCRIBE, 1 << AclOperation.DESCRIBE_CONFIGS
_IMPLIED = {
    AclOperation.READ: _DESCRIBE,
    AclOperation.WRITE: _DESCRIBE,
    AclOperation.DELETE: _DESCRIBE,
    AclOperation.ALTER: _DESCRIBE,
    AclOperation.ALTER_CONFIGS: _DESCRIBE_CONFIGS,
}


class _Rule(NamedTuple):
    """What one binding says to one principal. `operations`: as bits."""

    host: str
    operations: int
    denies: bool


_ByPrincipal = dict[str, list[_Rule]]


class _Kind:
    """The rules for one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, _ByPrincipal] = {}
        self.prefixed: dict[str, _ByPrincipal] = {}
        self.lengths: tuple[int, ...] = ()
        """Of the prefixes."""

    def add(self, binding: AclBinding) -> None:
        is_prefix = binding.pattern_type is PatternType.PREFIXED
        names = self.prefixed if is_prefix else self.literal
        rules = names.setdefault(binding.resource_name, {})
        operation = binding.operation
        bits = _ALL if operation is AclOperation.ALL else 1 << operation
        denies = binding.permission is Permission.DENY
        if not denies:
            bits |= _IMPLIED.get(operation, 0)
        rules.setdefault(binding.principal, []).append(_Rule(binding.host, bits, denies))

    def concerning(self, name: str) -> Iterator[_ByPrincipal]:
        """Yield the rules that concern the resource of this name."""
        for each in (name, ANY_NAME) if name != ANY_NAME else (name,):
            found = self.literal.get(each)
            if found is not None:
                yield found
        for length in self.lengths:
            if length > len(name):
                break
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found


class Rules:
    """Rules that do not change; `super_users` are principals."""

    def __init__(
        self,
        bindings: Iterable[AclBinding],
        super_users: Collection[str] = (),
        *,
        allow_unmatched: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_unmatched = allow_unmatched
        self._kinds = {kind: _Kind() for kind in OPERATIONS}
        for binding in bindings:
            self._kinds[binding.resource_type].add(binding)
        for kind in self._kinds.values():
            kind.lengths = tuple(sorted({len(prefix) for prefix in kind.prefixed}))
        self._decided: dict[tuple[object, ...], bool] = {}

    def allows(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        """Return whether a principal at a host may do something with a resource."""
        key = principal, host, operation, kind, name
        found = self._decided.get(key)
        if found is None:
            found = self._decide(principal, host, operation, kind, name)
            self._note(key, allowed=found)
        return found

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Return whether a principal may do something with any resource of a type.

        As in Kafka, only rules about the operation itself or ALL count.
        """
        key = principal, host, operation, kind
        found = self._decided.get(key)
        if found is None:
            found = self._decide(principal, host, operation, kind, _SOME_NAME) or self._some(
                principal, host, operation, kind
            )
            self._note(key, allowed=found)
        return found

    def operations(
        self, principal: str, host: str, kind: ResourceType, name: str
    ) -> list[AclOperation]:
        """Return all operations that a principal may do with a resource."""
        return [
            operation
            for operation in OPERATIONS[kind]
            if self.allows(principal, host, operation, kind, name)
        ]

    def _note(self, key: tuple[object, ...], *, allowed: bool) -> None:
        if len(self._decided) >= DECISIONS_MAX:
            self._decided.clear()
        self._decided[key] = allowed

    def _decide(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        bit = 1 << operation
        is_allowed = is_concerned = False
        for rules in self._kinds[kind].concerning(name):
            is_concerned = True
            for rule in (*rules.get(principal, ()), *rules.get(ANYBODY, ())):
                if rule.operations & bit and rule.host in (host, ANY_NAME):
                    if rule.denies:
                        return False
                    is_allowed = True
        return is_allowed or (self._allow_unmatched and not is_concerned)

    def _some(self, principal: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether a name or prefix is allowed that no denial covers."""
        bit = 1 << operation
        rules = self._kinds[kind]

        def named(names: dict[str, _ByPrincipal], *, denies: bool) -> set[str]:
            return {
                name
                for name, by_principal in names.items()
                for who in (principal, ANYBODY)
                for rule in by_principal.get(who, ())
                if rule.denies is denies and rule.operations & bit and rule.host in (host, ANY_NAME)
            }

        denied, denied_prefixes = (
            named(names, denies=True) for names in (rules.literal, rules.prefixed)
        )
        if ANY_NAME in denied:
            return False
        allowed = named(rules.literal, denies=False)
        if ANY_NAME in allowed:
            return True

        def is_open(name: str) -> bool:
            return not any(name[:size] in denied_prefixes for size in range(1, len(name) + 1))

        return any(is_open(name) for name in allowed - denied) or any(
            is_open(name) for name in named(rules.prefixed, denies=False)
        )
