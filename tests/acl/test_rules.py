"""Kafka's rules of access: what is allowed, denied, implied, and what nobody has said."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.acl import rules as module
from steelyard.acl.bindings import (
    OPERATIONS,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from steelyard.acl.rules import Rules
from steelyard.errors import ConfigError

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def rule(
    name: str = "orders",
    operation: AclOperation = READ,
    permission: Permission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(kind, pattern, name, principal, host, operation, permission)


def may(
    rules: Sequence[AclBinding],
    operation: AclOperation = READ,
    name: str = "orders",
    principal: str = "User:alice",
    host: str = "10.0.0.1",
) -> bool:
    return Rules(rules).allows(principal, host, operation, TOPIC, name)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule()], True),
        ([rule("order", pattern=PREFIXED)], True),
        ([rule("orders", pattern=PREFIXED)], True),
        ([rule("orders2", pattern=PREFIXED)], False),
        ([rule("order")], False),
        ([rule("*")], True),
        ([rule("*", pattern=PREFIXED)], False),
        ([rule(principal="User:*")], True),
        ([rule(principal="User:bob")], False),
        ([rule(principal="Group:alice")], False),
        ([rule(host="10.0.0.1")], True),
        ([rule(host="10.0.0.2")], False),
        ([rule(operation=WRITE)], False),
        ([rule(operation=AclOperation.ALL)], True),
        ([rule(kind=GROUP)], False),
        ([rule(), rule("*", permission=DENY)], False),
        ([rule("*"), rule("o", permission=DENY, pattern=PREFIXED)], False),
        ([rule(), rule(permission=DENY, principal="User:*")], False),
        ([rule(), rule(permission=DENY, principal="User:bob")], True),
        ([rule(), rule(permission=DENY, host="10.0.0.2")], True),
        ([rule(), rule(permission=DENY, operation=WRITE)], True),
        ([rule(), rule(permission=DENY, operation=DESCRIBE)], True),
        ([rule(), rule(permission=DENY, operation=AclOperation.ALL)], False),
    ],
)
def test_who_may_read(rules: list[AclBinding], expected: bool) -> None:
    assert may(rules) is expected


@pytest.mark.parametrize("given_", list(AclOperation)[3:])
@pytest.mark.parametrize("asked", list(AclOperation)[3:])
def test_what_an_operation_implies(given_: AclOperation, asked: AclOperation) -> None:
    implied = given_ is asked
    if asked is DESCRIBE:
        implied |= given_ in (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER)
    if asked is AclOperation.DESCRIBE_CONFIGS:
        implied |= given_ is AclOperation.ALTER_CONFIGS
    assert may([rule(operation=given_)], asked) is implied
    denied = [rule(operation=AclOperation.ALL), rule(operation=given_, permission=DENY)]
    assert may(denied, asked) is (given_ is not asked)


def test_super_users_may_do_everything() -> None:
    rules = Rules([rule("*", AclOperation.ALL, DENY, principal="User:*")], ["User:root"])
    assert rules.allows("User:root", "h", READ, TOPIC, "orders")
    assert rules.allows_some("User:root", "h", WRITE, TOPIC)
    assert not rules.allows("User:alice", "h", READ, TOPIC, "orders")


def test_everybody_is_allowed_what_no_rule_concerns_if_so_set() -> None:
    rules = Rules([rule(), rule("log-", pattern=PREFIXED)], allow_unmatched=True)
    assert rules.allows("User:bob", "h", READ, TOPIC, "free")
    assert not rules.allows("User:bob", "h", READ, TOPIC, "orders")
    assert not rules.allows("User:bob", "h", READ, TOPIC, "log-1")
    assert rules.allows("User:bob", "h", READ, GROUP, "orders")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([rule(operation=WRITE)], True),
        ([rule(operation=READ)], False),
        ([rule(operation=AclOperation.ALL)], True),
        ([rule("*", WRITE)], True),
        ([rule("*", WRITE), rule("*", WRITE, DENY)], False),
        ([rule("*", WRITE), rule("orders", WRITE, DENY)], True),
        ([rule(operation=WRITE), rule(operation=WRITE, permission=DENY)], False),
        ([rule(operation=WRITE), rule("ord", WRITE, DENY, pattern=PREFIXED)], False),
        ([rule("ord", WRITE, pattern=PREFIXED), rule("ord", WRITE, DENY)], True),
        (
            [rule("ord", WRITE, pattern=PREFIXED), rule("o", WRITE, DENY, pattern=PREFIXED)],
            False,
        ),
        (
            [rule("o", WRITE, pattern=PREFIXED), rule("ord", WRITE, DENY, pattern=PREFIXED)],
            True,
        ),
    ],
)
def test_who_may_write_some_topic(rules: list[AclBinding], expected: bool) -> None:
    assert Rules(rules).allows_some("User:alice", "h", WRITE, TOPIC) is expected


def test_operations_of_a_resource() -> None:
    rules = Rules([rule(operation=WRITE), rule(operation=AclOperation.ALTER_CONFIGS)])
    assert set(rules.operations("User:alice", "h", TOPIC, "orders")) == {
        WRITE,
        DESCRIBE,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    }


def test_decisions_are_remembered_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 3)
    rules = Rules([rule()])
    for _ in range(2):
        for number in range(5):
            assert not rules.allows("User:alice", "h", READ, TOPIC, f"other-{number}")
            assert rules.allows("User:alice", "h", READ, TOPIC, "orders")
            assert len(rules._decided) <= 3


# -- laws ----------------------------------------------------------------------------------------

names = st.sampled_from(["a", "ab", "abc", "b", "*", "ba"])
principals = st.sampled_from(["User:a", "User:b", "User:*"])
hosts = st.sampled_from(["h1", "h2", "*"])
operations = st.sampled_from(list(AclOperation)[2:])
bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([LITERAL, PREFIXED]),
    names,
    principals,
    hosts,
    operations,
    st.sampled_from([ALLOW, DENY]),
)


def naive(
    rules: list[AclBinding],
    principal: str,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    allow_unmatched: bool,
) -> bool:
    """One rule after the other, in the words of Kafka's documentation."""
    concerned = [each for each in rules if AclFilter(kind, PatternType.MATCH, name).matches(each)]
    mine = [
        each
        for each in concerned
        if each.principal in (principal, "User:*") and each.host in (host, "*")
    ]
    implying = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }.get(operation, set())
    if any(e.permission is DENY and e.operation in (operation, AclOperation.ALL) for e in mine):
        return False
    if any(
        e.permission is ALLOW and e.operation in {operation, AclOperation.ALL, *implying}
        for e in mine
    ):
        return True
    return allow_unmatched and not concerned


@given(
    st.lists(bindings, max_size=8),
    st.sampled_from(["User:a", "User:b", "User:c"]),
    st.sampled_from(["h1", "h3"]),
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.booleans(),
)
def test_the_index_decides_as_a_naive_model(
    rules: list[AclBinding],
    principal: str,
    host: str,
    kind: ResourceType,
    name: str,
    allow_unmatched: bool,
) -> None:
    indexed = Rules(rules, allow_unmatched=allow_unmatched)
    for operation in OPERATIONS[kind]:
        expected = naive(rules, principal, host, operation, kind, name, allow_unmatched)
        for _ in range(2):  # the second time from memory
            assert indexed.allows(principal, host, operation, kind, name) is expected


# -- filters and checks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(), True),
        (AclFilter(GROUP), False),
        (AclFilter(pattern_type=LITERAL), False),
        (AclFilter(pattern_type=PREFIXED), True),
        (AclFilter(resource_name="ord"), True),
        (AclFilter(resource_name="orders"), False),
        (AclFilter(pattern_type=PatternType.MATCH, resource_name="orders"), True),
        (AclFilter(pattern_type=PatternType.MATCH, resource_name="or"), False),
        (AclFilter(pattern_type=PatternType.MATCH), True),
        (AclFilter(principal="User:alice"), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="h"), False),
        (AclFilter(operation=READ), True),
        (AclFilter(operation=WRITE), False),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission=DENY), False),
    ],
)
def test_what_a_filter_selects(wanted: AclFilter, expected: bool) -> None:
    assert wanted.matches(rule("ord", pattern=PREFIXED)) is expected
    assert not wanted.is_unknown


def test_a_filter_of_another_version_is_recognised() -> None:
    assert AclFilter(ResourceType.UNKNOWN).is_unknown
    assert AclFilter(operation=AclOperation.UNKNOWN).is_unknown


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (rule(kind=ResourceType.ANY), "Invalid resourceType ANY"),
        (rule(pattern=PatternType.MATCH), "Invalid patternType MATCH"),
        (rule(operation=AclOperation.ANY), "Invalid operation ANY"),
        (rule(permission=Permission.ANY), "Invalid permissionType ANY"),
        (rule(""), "Invalid empty resource name"),
        (rule("other", kind=CLUSTER), "kafka-cluster"),
        (rule(principal="alice"), "is not a principal"),
        (rule(principal="User:"), "is not a principal"),
        (rule(host=""), "empty host"),
        (rule("x" * 1001), "1000 characters"),
    ],
)
def test_what_cannot_be_a_rule(wrong: AclBinding, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check_binding(wrong)


def test_a_rule_in_words() -> None:
    assert str(rule()) == "User:alice may READ topic orders"
    wide = rule("ord", permission=DENY, pattern=PREFIXED, host="10.0.0.1")
    assert str(wide) == "User:alice at 10.0.0.1 may not READ topic ord*"
