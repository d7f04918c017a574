from __future__ import annotations

import pytest

from steelyard.consume.subscription import subscription, wanted
from steelyard.errors import ConfigError
from steelyard.types import Subscription
from steelyard.wire.remoting.bodies import SubscriptionData
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_everything(expression: str) -> None:
    assert subscription(Subscription("T", expression), 7) == SubscriptionData("T", "*", (), (), 7)


def test_tags_come_with_their_java_hashes() -> None:
    """The hashes are those of the golden heartbeat (facts b.2)."""
    found = subscription(Subscription("TopicA", "TagA || TagB||TagA"), 7)
    assert found.tags_set == ("TagA", "TagB")
    assert found.code_set == (2598919, 2598920)
    assert found.sub_string == "TagA || TagB||TagA"


def test_an_expression_without_tags_is_refused() -> None:
    with pytest.raises(ConfigError, match="subscription of T"):
        subscription(Subscription("T", "|| ||"), 0)


def tagged(tag: str) -> MessageView:
    data = encode_record(
        topic="T",
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=b"\0" * 8,
        store_timestamp=0,
        store_host=b"\0" * 8,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        properties=b"TAGS\x01" + tag.encode() + b"\x02" if tag else b"",
    )
    return decode_records(data)[0]


def test_tags_with_one_hash_are_told_apart() -> None:
    """Java's hash of "Aa" and "BB" is the same, so a broker lets both through."""
    messages = [tagged("Aa"), tagged("BB"), tagged("")]
    assert wanted(messages, frozenset({"Aa"})) == [messages[0]]
    assert wanted(messages, frozenset()) is messages
