from __future__ import annotations

import pytest

from steelyard.errors import MessageError
from steelyard.produce.rules import check_batch, check_message, check_topic
from steelyard.types import Message


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a-b_c|d", "x" * 127, "BenchmarkTest"])
def test_topics_that_may_be_sent_to(topic: str) -> None:
    check_topic(topic)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", "empty"),
        ("x" * 128, "longer than 127"),
        ("a b", "characters other than"),
        ("größe", "characters other than"),
        ("a\n", "characters other than"),
        ("SCHEDULE_TOPIC_XXXX", "brokers only"),
    ],
)
def test_topics_that_may_not(topic: str, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        check_topic(topic)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("T", b""), "body is empty"),
        (Message("T", b"x" * 101), "101 bytes; at most 100"),
        (Message("T", b"x", flag=1 << 31), "32 bits"),
        (Message("T", b"x", delay_level=19), "0 to 18"),
        (Message("T", b"x", delay_level=-1), "0 to 18"),
        (Message("T", b"x", delay_ms=-1), "must not be negative"),
        (Message("T", b"x", deliver_at_ms=-1), "must not be negative"),
        (Message("T", b"x", delay_level=1, delay_ms=1), "give one of delay_level, delay_ms"),
        (Message("T", b"x", tags="a\x01b"), "tag contains a separator"),
        (Message("T", b"x", keys=("a", "b\x02")), "key contains a separator"),
        (Message("T", b"x", sharding_key="a\x02"), "sharding key contains a separator"),
        (Message("T", b"x", properties={"TAGS": "x"}), "taken by the system"),
        (Message("T", b"x", properties={"": "x"}), "empty names or values"),
        (Message("T", b"x", properties={"x": ""}), "empty names or values"),
        (Message("T", b"x", properties={"a\x01": "x"}), "separator"),
        (Message("T", b"x", properties={"a": "x\x02"}), "separator"),
    ],
)
def test_a_broken_rule_is_named(message: Message, words: str) -> None:
    with pytest.raises(MessageError, match=words):
        check_message(message, 100)


def test_a_message_at_every_limit_is_fine() -> None:
    message = Message(
        "x" * 127, b"x" * 100, "tag", ("k1", "k2"), {"a": "ä"}, flag=-(1 << 31), delay_level=18
    )
    check_message(message, 100)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "without messages"),
        ([Message("T", b"x"), Message("U", b"x")], "topics T and U"),
        ([Message("T", b"x"), Message("T", b"x", delay_level=1)], "a delayed message"),
        ([Message("T", b"x"), Message("T", b"x", deliver_at_ms=1)], "a delayed message"),
        ([Message("%RETRY%g", b"x"), Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("T", b"x"), Message("T", b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message("T", b"x"), Message("T", b"")], "body is empty"),
    ],
)
def test_what_cannot_be_one_batch(messages: list[Message], words: str) -> None:
    with pytest.raises(MessageError, match=words):
        check_batch(messages, 100)


def test_a_single_message_is_no_batch() -> None:
    check_batch([Message("%RETRY%g", b"x", delay_level=3)], 100)
    check_batch([Message("T", b"x"), Message("T", b"y", tags="t")], 100)
