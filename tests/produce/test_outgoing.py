from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import ProducerConfig
from steelyard.errors import MessageError
from steelyard.produce import outgoing
from steelyard.types import Message, MessageQueue
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.ids import UniqueIds
from steelyard.wire.remoting.message import decode_batch
from steelyard.wire.remoting.properties import decode_properties

NOW = 1_700_000_000_000
CONFIG = ProducerConfig(group="pg", message_bytes_max=10_000)
QUEUE = MessageQueue("T", "a", 6)


def ids() -> UniqueIds:
    return UniqueIds(b"\x7f\0\0\1", 1, 2)


def test_a_single_message_becomes_the_request_that_java_sends() -> None:
    """The header of the capture in facts b.2, but for names and ids."""
    prepared = outgoing.prepare([Message("T", b"hello", "tag", ("k1", "k2"))], ids(), CONFIG, NOW)
    command = outgoing.request(prepared, QUEUE, CONFIG)
    assert (command.code, command.body) == (RequestCode.SEND_MESSAGE_V2, b"hello")
    properties = decode_properties(command.ext["i"])
    assert properties == {
        "KEYS": "k1 k2",
        "TAGS": "tag",
        "UNIQ_KEY": prepared.message_id,
        "WAIT": "true",
    }
    assert {name: value for name, value in command.ext.items() if name != "i"} == {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "6",
        "f": "0",
        "g": str(NOW),
        "h": "0",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "a",
    }
    assert prepared.message_id == ids().next(NOW)


def test_a_long_body_is_compressed_and_says_so() -> None:
    body = b"x" * 5_000
    prepared = outgoing.prepare([Message("T", body)], ids(), CONFIG, NOW)
    assert prepared.sys_flag == 0x301
    assert zlib.decompress(prepared.body) == body
    limit = CONFIG.compress_above_bytes
    assert outgoing.prepare([Message("T", b"x" * limit)], ids(), CONFIG, NOW).sys_flag == 0
    never = ProducerConfig(compress_above_bytes=0)
    assert outgoing.prepare([Message("T", body)], ids(), never, NOW).body == body


def test_several_messages_become_one_batch() -> None:
    messages = [Message("T", b"x" * 5_000, keys="k", flag=7), Message("T", b"y", tags="t")]
    prepared = outgoing.prepare(messages, ids(), CONFIG, NOW)
    command = outgoing.request(prepared, QUEUE, CONFIG)
    assert (command.code, command.ext["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")
    assert (command.ext["f"], command.ext["i"]) == ("0", "WAIT\x01true\x02")
    first, second = decode_batch(command.body)
    assert (first.flag, first.body, second.body) == (7, messages[0].body, b"y")
    unique = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in (first, second)]
    assert prepared.message_id == ",".join(unique)
    assert unique[0] != unique[1]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([Message("T", b"x", properties={"a": "x" * 32_767})], "at most 32767"),
        ([Message("T", b"x", properties={"a": "ä" * 16_380})], "at most 32767"),
        ([Message("T", b"x", properties={"a": "\ud800"})], "no text"),
        ([Message("T", b"x" * 6_000), Message("T", b"x" * 6_000)], "the batch has"),
    ],
)
def test_what_does_not_fit_is_refused(messages: list[Message], words: str) -> None:
    with pytest.raises(MessageError, match=words):
        outgoing.prepare(messages, ids(), CONFIG, NOW)


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(TEXT.map(lambda name: "x" + name), TEXT, max_size=4), st.integers(0, 18))
def test_properties_arrive_as_they_were_given(properties: dict[str, str], delay_level: int) -> None:
    message = Message("T", b"x", properties=properties, delay_level=delay_level)
    found = decode_properties(outgoing.prepare([message], ids(), CONFIG, NOW).properties)
    assert {name: found.get(name) for name in properties} == properties
    assert found.get("DELAY") == (str(delay_level) if delay_level else None)
