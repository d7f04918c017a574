"""Accounts of RocketMQ's ACL: their file, their permissions, white lists."""

from __future__ import annotations

import pytest
from tests.acl.test_yaml import APACHES

from steelyard.acl.accounts import Account, AccountGrant, Accounts
from steelyard.acl.address_patterns import AddressPattern, numbers_of
from steelyard.acl.plain_acl import read_accounts
from steelyard.errors import ConfigError

DENY, PUB, SUB, BOTH = (
    AccountGrant.DENY,
    AccountGrant.PUB,
    AccountGrant.SUB,
    AccountGrant.PUB_OR_SUB,
)


def test_the_file_that_apache_ships() -> None:
    accounts = read_accounts(APACHES)
    first, second = accounts.find("RocketMQ"), accounts.find("rocketmq2")
    assert first is not None
    assert second is not None
    assert (first.secret, first.is_admin, first.white) == (b"12345678", False, None)
    assert (first.default_topic, first.default_group) == (DENY, SUB)
    assert first.topics == {"topicA": DENY, "topicB": BOTH}
    assert first.groups == {"groupA": DENY}
    assert second.is_unlimited
    assert accounts.is_white("10.10.103.7")
    assert not accounts.is_white("10.10.104.7")
    assert accounts.is_white_for(second, "192.168.1.9")
    assert not accounts.is_white_for(first, "192.168.1.9")
    assert accounts.find("nobody") is None


ACCOUNT = "accounts:\n- accessKey: clerk-one\n  secretKey: clerk-secret\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "expected the keys"),
        ("users:\n- a", "unknown key 'users'"),
        ("accounts: none", "accounts is not a list"),
        ("accounts:\n- none", "account 1 is not a table"),
        ("accounts:\n- accessKey: clerk-one\n  secretKey: short", "7 characters or more"),
        ("accounts:\n- secretKey: clerk-secret", "account 1: .*7 characters or more"),
        (f"{ACCOUNT}  topicPerm:\n  - a=PUB", "account 'clerk-one': unknown key 'topicPerm'"),
        (f"{ACCOUNT}  admin: perhaps", "expected true or false"),
        (f"{ACCOUNT}  defaultTopicPerm: ALL", "'ALL' is no permission"),
        (f"{ACCOUNT}  topicPerms:\n  - a", "expected NAME=PERMISSION"),
        (f"{ACCOUNT}  topicPerms:\n  - a=READ", "topicPerms, a: 'READ' is no permission"),
        (f"{ACCOUNT}  groupPerms: a=SUB", "groupPerms is not a list"),
        (f"{ACCOUNT}  groupPerms:\n  - - a", "something else than texts"),
        (f"{ACCOUNT}  secretKeys:\n  - a", "unknown key"),
        (f"{ACCOUNT}  whiteRemoteAddress: 10.0.0.300", "no pattern of IP addresses"),
        (f"{ACCOUNT}{ACCOUNT.partition(chr(10))[2]}", "'clerk-one' is there twice"),
        ("globalWhiteRemoteAddresses:\n- example.org", "no pattern of IP addresses"),
    ],
)
def test_wrong_files(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_accounts(text)
    assert "clerk-secret" not in str(caught.value)


def test_an_empty_file_has_no_accounts() -> None:
    assert read_accounts("# later\n").find("clerk-one") is None


def test_a_secret_is_not_printed() -> None:
    account = Account("clerk-one", b"clerk-secret")
    assert "secret" not in repr(account) + repr(Accounts([account])) + repr([account])


@pytest.mark.parametrize("owned", [DENY, PUB, SUB, BOTH])
@pytest.mark.parametrize("needed", [PUB, SUB, BOTH])
def test_permissions(owned: AccountGrant, needed: AccountGrant) -> None:
    """Permission.checkPermission: either of what is needed will do."""
    allowed = bool(owned & needed)
    by_name = Account("a", b"", topics={"t": owned}, groups={"g": owned})
    by_default = Account("a", b"", default_topic=owned, default_group=owned)
    for account in (by_name, by_default):
        assert account.may_use_topic("t", needed) == allowed
        assert account.may_use_group("g", needed) == allowed
    assert not by_name.may_use_topic("other", needed)
    assert not by_name.may_use_group("other", needed)
    assert not by_default.may_use_topic("t", needed, is_internal=True)


def test_administrators() -> None:
    """One without permissions of its own may do everything, one with them what they say."""
    free = Account("a", b"", is_admin=True)
    bound = Account("a", b"", is_admin=True, topics={"t": PUB})
    assert free.may_use_topic("t", SUB, is_internal=True)
    assert free.may_use_group("g")
    assert bound.may_use_topic("t", PUB)
    assert not bound.may_use_topic("t", SUB)
    assert not bound.may_use_topic("other", PUB)
    assert not bound.may_use_group("g")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("*", ["1.2.3.4", "::1", "a-name"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("1.2.3.4", ["1.2.3.4", "::ffff:1.2.3.4"], ["1.2.3.5", "::1", "a-name", ""]),
        ("1.2.3.{4,6}", ["1.2.3.4", "1.2.3.6"], ["1.2.3.5"]),
        ("1.2.3.4, 5.6.7.8", ["1.2.3.4", "5.6.7.8"], ["1.2.3.8"]),
        ("10.1.2-9.*", ["10.1.2.0", "10.1.9.255"], ["10.1.1.0", "10.1.10.1", "10.2.2.1"]),
        ("10.1.*", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0"]),
        ("10.1.2.3-5", ["10.1.2.3", "10.1.2.5"], ["10.1.2.6"]),
        ("10.1-5.3.4", ["10.2.3.4"], ["10.2.3.5"]),
        ("fe80::1", ["fe80::1", "[fe80::1]", "fe80::1%eth0"], ["fe80::2", "1.2.3.4"]),
        ("fe80::1:*", ["fe80::1:ffff"], ["fe80::2:1"]),
        ("fe80::1:10-20:*", ["fe80::1:15:7"], ["fe80::1:21:7", "fe80::1:f:7"]),
        ("2001:db8:*", ["2001:db8:1:2:3:4:5:6"], ["2001:db9::"]),
        ("::{1,2}", ["::1", "::2"], ["::3"]),
    ],
)
def test_patterns_of_addresses(pattern: str, inside: list[str], outside: list[str]) -> None:
    found = AddressPattern(pattern)
    assert [ip for ip in inside if not found.matches(numbers_of(ip))] == []
    assert [ip for ip in outside if found.matches(numbers_of(ip))] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.5-3.*", "1.2.3.-4", "1.2.3.{4", "x.*"),
        *("1.+2.3.4", "1.2.3.{4,x}", "1_0.2.3.4"),
        *("1:2:3", "::1::2", "1:2:3:4:5:6:7:8:9", "12345::1"),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ConfigError, match="no pattern of IP addresses"):
        AddressPattern(pattern)
