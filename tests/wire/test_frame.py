from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from steelyard.errors import ProtocolError
from steelyard.wire.remoting import frame, headers
from steelyard.wire.remoting.command import Command, Serialize, is_oneway, is_response

INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
COMMANDS = st.builds(
    Command,
    code=INT16,
    opaque=INT32,
    flag=INT32,
    ext=st.dictionaries(st.text(), st.text(), max_size=5),
    body=st.binary(max_size=50),
    remark=st.text(),
    language=st.sampled_from(frame.LANGUAGES),
    version=INT16,
)

ROUTE_REQUEST = Command(code=105, opaque=7, ext={"topic": "TopicA"}, language="JAVA", version=479)


# -- golden bytes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("serialize", list(Serialize))
def test_golden_frame_both_ways(golden: dict[str, str], serialize: Serialize) -> None:
    data = bytes.fromhex(golden[f"frame {serialize.name} GET_ROUTEINFO_BY_TOPIC"])
    assert frame.Decoder().feed(data) == [ROUTE_REQUEST]
    assert frame.encode(ROUTE_REQUEST, serialize) == data


def test_golden_response_header_both_ways(golden: dict[str, str]) -> None:
    header = golden["resp JSON"].encode()
    response = Command(code=0, opaque=7, flag=1, language="JAVA", version=479)
    assert frame.decode_header(header, 0) == response
    assert frame.encode_json_header(response) == header
    assert is_response(response)
    assert not is_oneway(response)


def test_golden_send_header_both_ways(golden: dict[str, str]) -> None:
    header = golden["SEND_MESSAGE_V2 json header"].encode()
    command = frame.decode_header(header, 0)
    assert frame.encode_json_header(command) == header
    typed = headers.read(headers.SendMessageRequestHeaderV2, command.ext)
    assert typed == headers.SendMessageRequestHeaderV2(
        producer_group="pg",
        topic="TopicA",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=0,
        properties="p\x01v\x02KEYS\x01k1 k2\x02UNIQ_KEY\x017F0000010001000000000000000000AA\x02WAIT\x01true\x02TAGS\x01TagA\x02",
        broker_name="broker-a",
    )
    assert headers.write(typed) == command.ext


# -- laws ------------------------------------------------------------------------------------------


@given(COMMANDS, st.sampled_from(Serialize))
def test_round_trip(command: Command, serialize: Serialize) -> None:
    assert frame.Decoder().feed(frame.encode(command, serialize)) == [command]


@given(st.lists(st.tuples(COMMANDS, st.sampled_from(Serialize)), max_size=4), st.data())
@settings(max_examples=examples(50))
def test_how_the_bytes_are_cut_does_not_matter(
    commands: list[tuple[Command, Serialize]], data: st.DataObject
) -> None:
    stream = b"".join(frame.encode(command, serialize) for command, serialize in commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = frame.Decoder()
    decoded = [
        command
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for command in decoder.feed(memoryview(stream)[start:stop])
    ]
    assert decoded == [command for command, _ in commands]


@pytest.mark.parametrize("serialize", list(Serialize))
def test_byte_at_a_time_and_cut_at_every_length(serialize: Serialize) -> None:
    command = Command(code=310, opaque=9, ext={"a": "pg", "i": "x\x01y\x02"}, body=b"hello")
    data = frame.encode(command, serialize)
    slow = frame.Decoder()
    for size in range(len(data)):
        assert slow.feed(data[size : size + 1]) == ([command] if size == len(data) - 1 else [])
        decoder = frame.Decoder()
        assert decoder.feed(data[:size]) == []
        assert decoder.feed(data[size:] + data) == [command, command]


# -- buffers ---------------------------------------------------------------------------------------


def test_bodies_do_not_change_with_the_callers_buffer() -> None:
    buffer = bytearray(frame.encode(Command(code=1, body=b"kept")) * 2)
    decoder = frame.Decoder()
    first = decoder.feed(memoryview(buffer)[:-1])
    second = decoder.feed(memoryview(buffer)[-1:])
    buffer[:] = bytes(len(buffer))
    assert [command.body for command in first + second] == [b"kept", b"kept"]
    assert all(type(command.body) is bytes for command in first + second)


def test_a_large_frame_byte_by_byte_takes_linear_time() -> None:
    """A decoder that copies what it has at every byte would move 45 GB here."""
    command = Command(code=1, body=bytes(300_000))
    decoder = frame.Decoder()
    decoded: list[Command] = []
    for byte in frame.encode(command):
        decoded += decoder.feed(byte.to_bytes(1, "big"))
    assert decoded == [command]


def test_a_claimed_size_takes_no_memory() -> None:
    decoder = frame.Decoder()
    tracemalloc.start()
    try:
        decoder.feed(frame.encode(Command(code=1, body=bytes(16_000_000)))[:10])
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        decoder.feed(b"xx")
        assert tracemalloc.get_traced_memory()[1] - before < 10_000
    finally:
        tracemalloc.stop()


# -- what is not a frame ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (bytes.fromhex("7FFFFFFF"), "claims 2147483647 bytes"),
        (bytes.fromhex("FFFFFFFF00000000"), "claims -1 bytes"),
        (bytes.fromhex("00000003000000"), "claims 3 bytes"),
        (bytes.fromhex("0000000400000001"), "1 of header"),
        (bytes.fromhex("00000004FF000000"), "unknown serialize type 255"),
        (b"GET / HTTP/1.1\r\n", "not a frame"),
        (bytes.fromhex("160301020001"), "not a frame"),  # a TLS client hello
    ],
)
def test_refused_by_the_first_bytes(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        frame.Decoder().feed(data)


def test_the_limit_counts_the_whole_frame() -> None:
    data = frame.encode(Command(code=1, body=b"x" * 100))
    assert len(frame.Decoder(len(data)).feed(data)) == 1
    with pytest.raises(ProtocolError, match="the limit is"):
        frame.Decoder(len(data) - 1).feed(data)


def test_the_header_has_a_limit_of_its_own() -> None:
    overhead = len(frame.encode_json_header(Command(code=1, remark="x"))) - 1
    largest = Command(code=1, remark="x" * (frame.HEADER_BYTES_MAX - overhead))
    assert frame.Decoder().feed(frame.encode(largest)) == [largest]
    larger = Command(code=1, remark=largest.remark + "x")
    with pytest.raises(ProtocolError, match="header of 1048577 bytes"):
        frame.Decoder().feed(frame.encode(larger)[:8])


def test_after_an_error_the_decoder_stays_dead() -> None:
    decoder = frame.Decoder()
    good = frame.encode(Command(code=1))
    for data in (bytes.fromhex("7FFFFFFF"), good):
        with pytest.raises(ProtocolError):
            decoder.feed(data)


# -- JSON headers of other peers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "command"),
    [
        ('{"code":1}', Command(code=1, language="OTHER", version=0)),
        ('{"code":1,"language":"COBOL"}', Command(code=1, language="OTHER", version=0)),
        ('{"code":1,"language":9}', Command(code=1, language="GO", version=0)),
        ('{"code":1,"language":99}', Command(code=1, language="OTHER", version=0)),
        ('{"code":1,"language":null,"extFields":null,"remark":null}', Command(code=1, language="OTHER", version=0)),
        ('{"code":"10","opaque":"3"}', Command(code=10, opaque=3, language="OTHER", version=0)),
        ("{code:1,'remark':'r',}", Command(code=1, remark="r", language="OTHER", version=0)),
        ('{"code":1,"language":"cpp"}', Command(code=1, language="CPP", version=0)),
        ('{"code":34.7,"flag":null,"version":"63"}', Command(code=34, language="OTHER", version=63)),
        (
            '{"code":11,"extFields":{"queueId":3,"order":true,"rate":1.5,"none":null,7:"x"},"unknown":[{}]}',
            Command(code=11, ext={"queueId": "3", "order": "true", "rate": "1.5", "7": "x"}, language="OTHER", version=0),
        ),
        (
            '{"code":11,"extFields":{"brokerName":"b","queueId":3,"topic":"t"}}',
            Command(code=11, ext={"brokerName": "b", "queueId": "3", "topic": "t"}, language="OTHER", version=0),
        ),
        ('{"code":2147483648}', None),
        ('{"code":true}', Command(code=1, language="OTHER", version=0)),
        ('{"opaque":1}', Command(code=0, opaque=1, language="OTHER", version=0)),
        ('{"code":1,"extFields":[]}', Command(code=1, language="OTHER", version=0)),  # PHP's empty table
        ('{"code":1,"extFields":[1]}', None),
        ('{"code":1,"extFields":"a"}', None),
        ('{"code":1,"extFields":{"a":{"b":1.50}}}', Command(code=1, ext={"a": '{"b":1.50}'}, language="OTHER", version=0)),
        ('{"code":1,"remark":{}}', Command(code=1, remark="{}", language="OTHER", version=0)),
        ("[1]", None),
        ("", None),
        ("[" * 100_000, None),
        ('{"code":1,"remark":"\\ud800"}', Command(code=1, remark="\ufffd", language="OTHER", version=0)),
    ],
)  # fmt: skip
def test_json_header(header: str, command: Command | None) -> None:
    """None: refused."""
    if command is None:
        with pytest.raises(ProtocolError):
            frame.decode_header(header.encode(), 0)
    else:
        assert frame.decode_header(header.encode(), 0) == command


def test_json_header_that_is_not_utf8() -> None:
    with pytest.raises(ProtocolError):
        frame.decode_header(b'{"code":1,"remark":"\xff"}', 0)


# -- binary headers of other peers -----------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        lambda header: header[:-1],
        lambda header: header + b"x",
        lambda header: header[:13] + b"\x7f\xff\xff\xff" + header[17:],  # size of the remark
        lambda header: header[:13] + b"\xff\xff\xff\xff" + header[17:],
        lambda header: header[:21] + b"\xff\xff" + header[23:],  # size of the first name
        lambda header: header.replace(b"TopicA", b"\xff\xff\xff\xff\xff\xff"),
    ],
)
def test_binary_header_refused(spoil: Callable[[bytes], bytes]) -> None:
    header = frame.encode_binary_header(ROUTE_REQUEST)
    assert frame.decode_header(header, 1) == ROUTE_REQUEST
    with pytest.raises(ProtocolError, match="binary header"):
        frame.decode_header(spoil(header), 1)


def test_binary_header_cut_at_every_length() -> None:
    header = frame.encode_binary_header(ROUTE_REQUEST)
    for size in range(len(header)):
        with pytest.raises(ProtocolError, match="binary header"):
            frame.decode_header(header[:size], 1)


def test_binary_header_of_an_unknown_language() -> None:
    header = bytearray(frame.encode_binary_header(Command(code=1, language="JAVA")))
    header[2] = 200
    assert frame.decode_header(bytes(header), 1).language == "OTHER"


def test_answers_may_have_longer_headers_than_requests() -> None:
    long = frame.encode(Command(code=0, remark="x" * (2 * frame.HEADER_BYTES_MAX)))
    assert len(frame.reply_decoder().feed(long)) == 1
    with pytest.raises(ProtocolError, match="the limit is 1048576"):
        frame.Decoder().feed(long)
    longer = Command(code=0, remark="x" * frame.REPLY_HEADER_BYTES_MAX)
    with pytest.raises(ProtocolError, match="the limit is 8388608"):
        frame.reply_decoder().feed(frame.encode(longer))
