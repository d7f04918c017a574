from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import Compression, ProducerConfig
from steelyard.errors import MessageError
from steelyard.produce import outgoing
from steelyard.types import Message, MessageQueue
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.flags import decompress
from steelyard.wire.remoting.ids import UniqueIds
from steelyard.wire.remoting.message import (
    BatchEntry,
    MessageView,
    batch_entries,
    decode_records,
    encode_record,
)
from steelyard.wire.remoting.properties import decode_properties, encode_properties

NOW = 1_700_000_000_000
CONFIG = ProducerConfig(group="pg", client_id="p1", message_bytes_max=10_000)
QUEUE = MessageQueue("T", "a", 6)
TEMPLATE = outgoing.header_template(CONFIG)


def ids() -> UniqueIds:
    return UniqueIds(b"\x7f\0\0\1", 1, 2)


def test_a_single_message_becomes_the_request_that_java_sends() -> None:
    """The header of the capture in facts b.2, but for names and ids."""
    prepared = outgoing.prepare([Message("T", b"hello", "tag", ("k1", "k2"))], ids(), CONFIG, NOW)
    command = outgoing.command(prepared, QUEUE, TEMPLATE)
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
    command = outgoing.command(prepared, QUEUE, TEMPLATE)
    assert (command.code, command.ext["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")
    assert (command.ext["f"], command.ext["i"]) == ("0", "WAIT\x01true\x02")
    first, second = (BatchEntry(*entry) for entry in batch_entries(command.body))
    assert (first.flag, first.body, second.body) == (7, messages[0].body, b"y")
    unique = [decode_properties(entry.properties)["UNIQ_KEY"] for entry in (first, second)]
    assert prepared.message_id == ",".join(unique)
    assert unique[0] != unique[1]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([Message("T", b"x", properties={"a": "x" * 32_767})], "at most 32767"),
        ([Message("T", b"x", properties={"a": "ä" * 16_380})], "at most 32767"),
        ([Message("T", b"x", properties={"a": "\ud800"})], "not text"),
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


@given(
    queue=st.builds(MessageQueue, st.just("T"), st.sampled_from(["a", "b"]), st.integers(0, 999)),
    sys_flag=st.integers(0, 0xFFF),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    born=st.integers(0, 1 << 50),
    code=st.sampled_from([RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]),
)
def test_the_header_that_is_put_together_is_the_one_that_would_be_written(
    queue: MessageQueue, sys_flag: int, flag: int, born: int, code: RequestCode
) -> None:
    prepared = outgoing.Outgoing(code, "T", b"x", "WAIT\x01true\x02", sys_flag, flag, "id", born)
    command = outgoing.command(prepared, queue, TEMPLATE)
    header = headers.SendMessageRequestHeaderV2(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=born,
        flag=flag,
        properties="WAIT\x01true\x02",
        batch=code is RequestCode.SEND_BATCH_MESSAGE,
        broker_name=queue.broker_name,
    )
    assert (command.code, command.ext, command.body) == (code, headers.write(header), b"x")


@pytest.mark.parametrize(("kind", "sys_flag"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_every_compression_is_undone_by_its_flag(kind: Compression, sys_flag: int) -> None:
    body = b"yard" * 2_000
    for level in (1, 9):
        config = replace(CONFIG, compress_type=kind, compress_level=level)
        prepared = outgoing.prepare([Message("T", body)], ids(), config, NOW)
        assert prepared.sys_flag == sys_flag
        assert len(prepared.body) < len(body)
        assert decompress(prepared.body, sys_flag) == body


def test_a_half_message_is_the_one_that_java_sends() -> None:
    """310 of the capture trans.jsonl: system flag 4, TRAN_MSG, UNIQ_KEY, WAIT, PGROUP; a delay is dropped."""
    message = Message("T", b"0", delay_level=3, properties={"colour": "blue"})
    prepared = outgoing.prepare_half(message, ids(), CONFIG, NOW)
    assert (prepared.code, prepared.sys_flag) == (RequestCode.SEND_MESSAGE_V2, 4)
    assert decode_properties(prepared.properties) == {
        "colour": "blue",
        "TRAN_MSG": "true",
        "UNIQ_KEY": prepared.message_id,
        "WAIT": "true",
        "PGROUP": "pg",
    }
    long = outgoing.prepare_half(Message("T", b"x" * 5_000), ids(), CONFIG, NOW)
    assert long.sys_flag == 0x305


def request_view(**properties: str) -> MessageView:
    """A request as its consumer gets it."""
    record = encode_record(
        topic="T",
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=NOW,
        born_host=b"\x7f\0\0\1\0\0\x10\0",
        store_timestamp=NOW,
        store_host=b"\x7f\0\0\1\0\0\x10\0",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"?",
        properties=encode_properties(properties).encode(),
    )
    return decode_records(record, "a")[0]


def test_a_request_and_its_reply() -> None:
    """prepareSendRequest and createReplyMessage."""
    request = outgoing.prepare_request(Message("T", b"?"), "c-1", 2_000, ids(), CONFIG, NOW)
    properties = decode_properties(request.properties)
    asked = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "p1", "TTL": "2000"}
    assert properties == {**asked, "UNIQ_KEY": request.message_id, "WAIT": "true"}
    assert (request.code, request.sys_flag) == (RequestCode.SEND_MESSAGE_V2, 0)

    view = request_view(CLUSTER="c", **properties)
    assert outgoing.reply_topic(view) == "c_REPLY_TOPIC"
    answer = Message("c_REPLY_TOPIC", b"!", tags="t")
    reply = outgoing.prepare_reply(answer, view, ids(), replace(CONFIG, client_id="p2"), NOW)
    assert reply.code == RequestCode.SEND_REPLY_MESSAGE_V2
    assert decode_properties(reply.properties) == {
        **asked,
        "MSG_TYPE": "reply",
        "TAGS": "t",
        "UNIQ_KEY": reply.message_id,
        "WAIT": "true",
    }


def test_a_message_that_asks_for_no_reply_gets_none() -> None:
    with pytest.raises(MessageError, match="names no cluster"):
        outgoing.reply_topic(request_view(TTL="1"))
    view = request_view(CLUSTER="c", CORRELATION_ID="c-1", TTL="1")
    with pytest.raises(MessageError, match="no REPLY_TO_CLIENT"):
        outgoing.prepare_reply(Message("c_REPLY_TOPIC", b"!"), view, ids(), CONFIG, NOW)


def test_a_sharding_key_is_a_property() -> None:
    prepared = outgoing.prepare([Message("T", b"x", sharding_key="k-7")], ids(), CONFIG, NOW)
    assert decode_properties(prepared.properties)["__SHARDINGKEY"] == "k-7"
