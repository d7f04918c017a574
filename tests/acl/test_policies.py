"""Policies of RocketMQ 5.x: which entry decides, and what is no entry."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.acl.accounts import AccountGrant, ResourceKind
from steelyard.acl.policies import (
    ACTIONS,
    ENTRIES_MAX,
    AclUser,
    PolicyAccount,
    PolicyDecision,
    PolicyEntry,
    PolicyType,
    UserStatus,
    UserType,
    check_entry,
    read_users,
)
from steelyard.errors import ConfigError, ProtocolError

PUB, SUB = AccountGrant.PUB, AccountGrant.SUB
ALLOW, DENY = PolicyDecision.ALLOW, PolicyDecision.DENY


def entry(
    resource: str,
    *actions: str,
    decision: PolicyDecision = ALLOW,
    ips: tuple[str, ...] = (),
    policy_type: PolicyType = PolicyType.CUSTOM,
) -> PolicyEntry:
    return PolicyEntry(policy_type, resource, actions or ("All",), ips, decision)


def account(*entries: PolicyEntry, user_type: UserType = UserType.NORMAL) -> PolicyAccount:
    made = AclUser("clerk", "secret", user_type, entries=entries).account()
    assert made is not None
    return made


def test_the_most_exact_resource_decides() -> None:
    """The table of AclAuthorizationHandler.comparePolicyEntries, from the least exact on."""
    resources = ("*", "Topic:*", "Topic:o*", "Topic:ord*", "Topic:orders")
    for number in range(1, len(resources) + 1):
        for decision in PolicyDecision:
            other = DENY if decision is ALLOW else ALLOW
            less = [entry(each, "Pub", decision=other) for each in resources[: number - 1]]
            found = account(entry(resources[number - 1], "Pub", decision=decision), *less)
            assert found.may_use_topic("orders", PUB) == (decision is ALLOW)
            assert not found.may_use_topic("orders", SUB)


def test_what_no_entry_matches_is_denied() -> None:
    assert not account().may_use_topic("orders", PUB)
    found = account(entry("Topic:orders", "Pub"), entry("Group:billing*", "Sub"))
    assert not found.may_use_topic("orders2", PUB)
    assert not found.may_use_group("orders")
    assert found.may_use_group("billing-a")
    assert found.may_use_topic("orders", PUB | SUB | AccountGrant.GET)
    assert not found.may_administer(ResourceKind.TOPIC, "orders", AccountGrant.CREATE)
    assert not found.is_admin


def test_an_entry_about_other_actions_does_not_count() -> None:
    found = account(entry("Topic:orders", "Sub", decision=DENY), entry("Topic:*", "All"))
    assert found.may_use_topic("orders", PUB)
    assert not found.may_use_topic("orders", SUB)


def test_default_policies_count_where_no_custom_one_matches() -> None:
    found = account(
        entry("Topic:orders", policy_type=PolicyType.DEFAULT),
        entry("Topic:*", "Pub", decision=DENY),
    )
    assert not found.may_use_topic("orders", PUB)
    assert found.may_use_topic("orders", SUB)


def test_addresses() -> None:
    found = account(
        entry("Topic:a", ips=("10.1.1.1", "192.168.0.0/16")),
        entry("Topic:b"),
        entry("Topic:c", ips=("fe80::/10",)),
    )
    for ip, topics in (
        ("10.1.1.1", "ab"),
        ("10.1.1.2", "b"),
        ("192.168.3.4", "ab"),
        ("fe80::1", "bc"),
        ("[fe80::1]", "bc"),
        ("", "b"),
    ):
        seen = found.seen_from(ip)
        assert "".join(each for each in "abc" if seen.may_use_topic(each, PUB)) == topics, ip
        assert found.seen_from(ip) is seen
    assert account(entry("Topic:b")).seen_from("10.1.1.1").may_use_topic("b", PUB)


def test_topics_of_the_servers_are_named() -> None:
    wide = account(entry("*"), entry("Topic:*"))
    assert not wide.may_use_topic("SCHEDULE_TOPIC_XXXX", SUB, is_internal=True)
    assert wide.may_use_topic("SCHEDULE_TOPIC_XXXX", SUB)
    named = account(entry("Topic:SCHEDULE_*", "Sub"))
    assert named.may_use_topic("SCHEDULE_TOPIC_XXXX", SUB, is_internal=True)


def test_super_and_disabled_users() -> None:
    found = account(user_type=UserType.SUPER)
    assert found.is_unlimited
    assert found.may_administer(ResourceKind.CLUSTER, "c", AccountGrant.UPDATE)
    assert found.seen_from("10.1.1.1").is_unlimited
    assert AclUser("clerk", "secret", status=UserStatus.DISABLE).account() is None


def test_a_cluster_without_a_name_is_any() -> None:
    found = account(entry("Cluster:DefaultCluster", "Get"))
    for name, allowed in (("DefaultCluster", True), ("", True), ("other", False)):
        assert found.may_administer(ResourceKind.CLUSTER, name, AccountGrant.GET) == allowed


def test_entries_about_one_resource_replace_each_other() -> None:
    user = AclUser("clerk", "secret").with_entries((entry("Topic:a", "Pub"), entry("Topic:b")))
    user = user.with_entries((entry("Topic:a", "Sub"),))
    assert [(each.resource, each.actions) for each in user.entries] == [
        ("Topic:a", ("Sub",)),
        ("Topic:b", ("All",)),
    ]
    assert user.without_entry(PolicyType.DEFAULT, "Topic:a") == user
    left = user.without_entry(PolicyType.CUSTOM, "Topic:a").entries
    assert [each.resource for each in left] == ["Topic:b"]
    with pytest.raises(ConfigError, match="at most 1000"):
        user.with_entries(tuple(entry(f"Topic:{n}") for n in range(ENTRIES_MAX)))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (entry("orders"), "not a resource"),
        (entry("Queue:orders"), "not a resource"),
        (entry("Topic:"), "a name has 1 to"),
        (entry("Topic:a*b"), "only the last one may be"),
        (entry("Topic:" + "a" * 256), "a name has 1 to"),
        (entry("Topic:a", "Any"), "'Any' is not an action; expected All, Pub"),
        (PolicyEntry(PolicyType.CUSTOM, "Topic:a", (), (), ALLOW), "has no actions"),
        (entry("Topic:a", ips=("10.1.1",)), "neither an IP address nor a network"),
        (entry("Topic:a", ips=("10.1.1.1",) * 101), "more than 100 addresses"),
    ],
)
def test_what_is_no_entry(wrong: PolicyEntry, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_entry(wrong)
    users = [AclUser("clerk", "secret", entries=(wrong,))]
    with pytest.raises(ProtocolError, match="the body has no users"):
        read_users(msgspec.json.encode(users))


def test_users_pass_between_servers_and_show_no_secret() -> None:
    users = [AclUser("clerk", "secret", entries=(entry("Topic:a", ips=("::1",)),))]
    assert read_users(msgspec.json.encode(users)) == users
    assert "secret" not in repr(users) + repr(users[0].account())
    with pytest.raises(ProtocolError):
        read_users(b'[{"name": 3}]')


NAMES = st.sampled_from(("a", "ab", "abc", "b"))
RESOURCES = st.one_of(
    st.just("*"),
    st.builds(
        "{}:{}{}".format,
        st.sampled_from(("Topic", "Group")),
        st.sampled_from(("", "a", "ab", "b")),
        st.sampled_from(("", "*")),
    ).filter(lambda text: not text.endswith(":")),
)
ENTRIES = st.lists(
    st.builds(
        PolicyEntry,
        st.sampled_from(PolicyType),
        RESOURCES,
        st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=2).map(tuple),
        st.just(()),
        st.sampled_from(PolicyDecision),
    ),
    max_size=6,
    unique_by=lambda each: each.key,
)


@given(ENTRIES, NAMES, st.sampled_from(("Pub", "Sub", "Get")))
def test_by_the_words_of_the_reference(entries: list[PolicyEntry], name: str, action: str) -> None:
    """A model that sorts as AclAuthorizationHandler does; it has no kinds of exactness."""

    def order(each: PolicyEntry) -> int:
        if each.resource == "*":
            return 0
        pattern = each.resource.partition(":")[2]
        if pattern == "*":
            return 1
        return 2 + len(pattern) if pattern.endswith("*") else 1_000

    def matches(each: PolicyEntry) -> bool:
        kind, _, pattern = each.resource.partition(":")
        if each.resource != "*" and kind != "Topic":
            return False
        if pattern.endswith("*") or each.resource == "*":
            named = name.startswith(pattern.rstrip("*"))
        else:
            named = name == pattern
        return named and ("All" in each.actions or action in each.actions)

    expected = False
    for policy_type in PolicyType:
        found = [each for each in entries if each.policy_type is policy_type and matches(each)]
        if found:
            expected = max(found, key=order).decision is ALLOW
            break
    assert account(*entries).may_use_topic(name, ACTIONS[action]) == expected
