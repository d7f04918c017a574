"""Files of accounts as YAML: what is a text, and what an error says."""

from __future__ import annotations

import pytest

from steelyard.acl.yaml import Yaml, read
from steelyard.errors import ConfigError

APACHES = """\
# distribution/conf/plain_acl.yml
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def test_the_file_that_apache_ships() -> None:
    assert read(APACHES) == {
        "globalWhiteRemoteAddresses": ["10.10.103.*", "192.168.0.*"],
        "accounts": [
            {
                "accessKey": "RocketMQ",
                "secretKey": "12345678",
                "whiteRemoteAddress": None,
                "admin": "false",
                "defaultTopicPerm": "DENY",
                "defaultGroupPerm": "SUB",
                "topicPerms": ["topicA=DENY", "topicB=PUB|SUB"],
                "groupPerms": ["groupA=DENY"],
            },
            {
                "accessKey": "rocketmq2",
                "secretKey": "12345678",
                "whiteRemoteAddress": "192.168.1.*",
                "admin": "true",
            },
        ],
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("# nothing\n---\n", None),
        (
            "a: 0123\nb: 1e5\nc: yes\nd: 2026-01-01\ne: 0x10",
            {"a": "0123", "b": "1e5", "c": "yes", "d": "2026-01-01", "e": "0x10"},
        ),
        ("a: ~\nb: null\nc:\nd: ''", {"a": None, "b": None, "c": None, "d": ""}),
        ("a: b#c\nd: 10.0.0.{1,2}\ne: fe80::1", {"a": "b#c", "d": "10.0.0.{1,2}", "e": "fe80::1"}),
        ("a: [b, 'c, d']", {"a": ["b", "c, d"]}),
    ],
)
def test_scalars_are_texts_as_they_are_written(text: str, found: Yaml) -> None:
    assert read(text) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b\nc: d\na: e", "line 1: a key is there twice"),
        ("a: !secret-tag b", "line 1: a key is there twice, or something is not a text"),
        ("? [a]\n: b", "something is not a text"),
        ("a:\n\t- b", "line 2: this is not YAML; put texts with special characters into quotes"),
        ("a: 'b", "this is not YAML"),
        ("a: *b", "this is not YAML"),
        ("a: \0", "this is not YAML"),
        ("{a: " * 5_000, "or too deep"),
    ],
)
def test_errors(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(text)


@pytest.mark.parametrize(
    "line", ["'clerk-secret", "*clerk-secret", "!clerk-secret", "%clerk-secret", "{clerk-secret"]
)
def test_errors_quote_nothing(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(f"accounts:\n- accessKey: clerk-one\n  secretKey: {line}\n")
    assert "secret" not in str(caught.value)
