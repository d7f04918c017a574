"""The file of accounts, `plain_acl.yml` of RocketMQ 4.x.

    globalWhiteRemoteAddresses:
    - 10.10.103.*
    accounts:
    - accessKey: clerk-one
      secretKey: clerk-secret
      whiteRemoteAddress:
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - orders=PUB|SUB
      groupPerms:
      - billing=SUB

What Apache's tools write besides (`dataVersion`) is passed over; other unknown keys are errors, as
are permissions that are none: there they count as DENY. Errors name the account, and no secret.
Source: acl/plain/PlainPermissionManager.java, acl/common/Permission.java.
"""

from __future__ import annotations

from steelyard.acl.accounts import Account, AccountGrant, Accounts
from steelyard.acl.address_patterns import AddressPattern
from steelyard.acl.yaml import Yaml, read
from steelyard.checks import unknown
from steelyard.errors import ConfigError

ACCOUNTS_MAX = 10_000
PERMISSIONS_MAX = 10_000
"""Most permissions of topics, or of groups, of one account."""
KEY_CHARACTERS_MIN = 7
"""Shortest access key and secret key (AclConstants)."""

GLOBAL_WHITE = "globalWhiteRemoteAddresses"
ACCOUNTS = "accounts"

_FILE_KEYS = (GLOBAL_WHITE, ACCOUNTS, "dataVersion")
_ACCOUNT_KEYS = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)
_TRUTHS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
_GRANTS = {
    "DENY": AccountGrant.DENY,
    "PUB": AccountGrant.PUB,
    "SUB": AccountGrant.SUB,
    "PUB|SUB": AccountGrant.PUB_OR_SUB,
    "SUB|PUB": AccountGrant.PUB_OR_SUB,
}


def read_accounts(text: str) -> Accounts:
    """Return the accounts of a file. Raises ConfigError."""
    document = read(text)
    if document is None:
        return Accounts()
    if not isinstance(document, dict):
        raise ConfigError(f"expected the keys {GLOBAL_WHITE} and {ACCOUNTS}")
    _check_keys(document, _FILE_KEYS)
    white = [AddressPattern(each) for each in _texts(document, GLOBAL_WHITE)]
    listed = document.get(ACCOUNTS) or []
    if not isinstance(listed, list):
        raise ConfigError(f"{ACCOUNTS} is not a list")
    if len(listed) > ACCOUNTS_MAX:
        raise ConfigError(f"{len(listed)} accounts; at most {ACCOUNTS_MAX} are possible")
    accounts: dict[str, Account] = {}
    for number, each in enumerate(listed, 1):
        account = _account(number, each)
        if account.access_key in accounts:
            raise ConfigError(f"account {account.access_key!r} is there twice")
        accounts[account.access_key] = account
    return Accounts(list(accounts.values()), white)


def _check_keys(table: dict[str, Yaml], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(str(unknown("key", key, known)))


def _account(number: int, table: Yaml) -> Account:
    if not isinstance(table, dict):
        raise ConfigError(f"account {number} is not a table; begin it with accessKey")
    key, secret = _text(table, "accessKey"), _text(table, "secretKey")
    name = repr(key[:50]) if key else str(number)
    try:
        _check_keys(table, _ACCOUNT_KEYS)
        if min(len(key), len(secret)) < KEY_CHARACTERS_MIN:
            raise ConfigError(
                f"accessKey and secretKey must have {KEY_CHARACTERS_MIN} characters or more"
            )
        white = _text(table, "whiteRemoteAddress")
        return Account(
            key,
            secret.encode(),
            _truth(table, "admin"),
            _grant("defaultTopicPerm", _text(table, "defaultTopicPerm") or "DENY"),
            _grant("defaultGroupPerm", _text(table, "defaultGroupPerm") or "DENY"),
            _grants(table, "topicPerms"),
            _grants(table, "groupPerms"),
            AddressPattern(white) if white else None,
        )
    except ConfigError as error:
        raise ConfigError(f"account {name}: {error}") from None


def _text(table: dict[str, Yaml], key: str) -> str:
    found = table.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise ConfigError(f"{key} is not a text")
    return found


def _texts(table: dict[str, Yaml], key: str) -> list[str]:
    found = table.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ConfigError(f"{key} is not a list")
    texts = [each for each in found if isinstance(each, str)]
    if len(texts) < len(found):
        raise ConfigError(f"{key} has something else than texts")
    return texts


def _truth(table: dict[str, Yaml], key: str) -> bool:
    text = _text(table, key) or "false"
    if text.lower() not in _TRUTHS:
        raise ConfigError(f"{key} is {text[:50]!r}; expected true or false")
    return _TRUTHS[text.lower()]


def _grant(key: str, text: str) -> AccountGrant:
    if text.strip() not in _GRANTS:
        raise ConfigError(f"{key}: {text[:50]!r} is no permission; expected {', '.join(_GRANTS)}")
    return _GRANTS[text.strip()]


def _grants(table: dict[str, Yaml], key: str) -> dict[str, AccountGrant]:
    texts = _texts(table, key)
    if len(texts) > PERMISSIONS_MAX:
        raise ConfigError(f"{key} has {len(texts)} items; at most {PERMISSIONS_MAX} are possible")
    found: dict[str, AccountGrant] = {}
    for text in texts:
        name, equals, grant = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise ConfigError(f"{key} has {text[:100]!r}; expected NAME=PERMISSION")
        found[name] = _grant(f"{key}, {name[:100]}", grant)
    return found
