"""Access rules as data, with Kafka's names and numbers, and the filters that select them.

Source: clients/common/acl/, clients/common/resource/, security/authorizer/AclEntry.java.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from steelyard.errors import ConfigError

ANY_NAME = "*"
"""As a literal name: all resources of the type. As a host: all hosts."""
ANYBODY = "User:*"
"""The principal that stands for everybody."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

TEXT_CHARACTERS_MAX = 1_000
"""Most characters of a principal, a host and a resource's name."""


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a name selects resources. ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation

OPERATIONS = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DESCRIBE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _O.READ,
        _O.DESCRIBE,
        _O.DELETE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
        _O.ALTER,
        _O.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that exist for each type of resource."""


class AclBinding(msgspec.Struct, frozen=True, order=True):
    """One rule: a principal, at a host, is allowed or denied an operation on some resources."""

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        verb = "may" if self.permission is Permission.ALLOW else "may not"
        at = "" if self.host == ANY_NAME else f" at {self.host}"
        star = "*" if self.pattern_type is PatternType.PREFIXED else ""
        kind = self.resource_type.name.lower()
        return (
            f"{self.principal}{at} {verb} {self.operation.name} {kind} {self.resource_name}{star}"
        )


class AclFilter(msgspec.Struct, frozen=True):
    """Selects rules. None and ANY select all.

    `pattern_type`: MATCH selects the rules that concern the resource called `resource_name`: those
    of that literal name, of prefixes of it, and of all resources.
    """

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        """Return whether it has a value that this version does not know."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
            and self._selects(binding)
        )

    def _selects(self, binding: AclBinding) -> bool:
        kind, name = self.pattern_type, self.resource_name
        if kind is not PatternType.MATCH:
            is_kind = kind in (PatternType.ANY, binding.pattern_type)
            return is_kind and name in (None, binding.resource_name)
        if name is None:
            return True
        if binding.pattern_type is PatternType.PREFIXED:
            return name.startswith(binding.resource_name)
        return binding.resource_name in (name, ANY_NAME)


def check_principal(principal: str) -> None:
    """Raise ConfigError if nobody can be called so: `User:` and a name are expected."""
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name) or len(principal) > TEXT_CHARACTERS_MAX:
        raise ConfigError(
            f"{principal[:100]!r} is not a principal; write its type, a colon and a name of at most"
            f" {TEXT_CHARACTERS_MAX} characters in all, such as 'User:alice'"
        )


def check_binding(binding: AclBinding) -> None:
    """Raise ConfigError for a rule that cannot be stored, in Kafka's words where it has some."""
    kind = binding.resource_type
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise ConfigError(f"Invalid resourceType {kind.name}")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ConfigError(f"Invalid patternType {binding.pattern_type.name}")
    if binding.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise ConfigError(f"Invalid operation {binding.operation.name}")
    if binding.permission not in (Permission.ALLOW, Permission.DENY):
        raise ConfigError(f"Invalid permissionType {binding.permission.name}")
    if not binding.resource_name:
        raise ConfigError("Invalid empty resource name")
    if kind is ResourceType.CLUSTER and binding.resource_name not in (CLUSTER_NAME, ANY_NAME):
        raise ConfigError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    check_principal(binding.principal)
    if not binding.host:
        raise ConfigError("Invalid empty host; '*' stands for all")
    for text in (binding.resource_name, binding.host):
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ConfigError(f"{text[:50]!r}... has more than {TEXT_CHARACTERS_MAX} characters")
