from __future__ import annotations

import pytest

from steelyard.errors import ProtocolError
from steelyard.wire.kafka import frame as kafka
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.schema import Api
from steelyard.wire.remoting import frame as remoting
from steelyard.wire.remoting.command import Command, Serialize
from steelyard.wire.strangers import (
    HEAD_BYTES,
    Signs,
    Stranger,
    named,
    not_a_nameserver,
    question,
    recognise,
    refusal,
)

API_VERSIONS = bytes.fromhex(
    "0000002400120003000000010006647269766572000b6c696272646b61666b6107322e31362e3000"
)
TLS = bytes.fromhex("160301020001000001fc0303")
REMOTING = remoting.encode(Command(code=105, ext={"topic": "t"}))


@pytest.mark.parametrize(
    ("data", "stranger"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Stranger.HTTP_2),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", Stranger.HTTP_1),
        (b"POST /topics HTTP/1.0\r\n", Stranger.HTTP_1),
        (b"CONNECT x:1 HTTP/1.1\r\n", Stranger.HTTP_1),
        (TLS, Stranger.TLS),
        (API_VERSIONS, Stranger.KAFKA),
        (REMOTING, Stranger.REMOTING),
        (remoting.encode(Command(code=34, body=b"x" * 500), Serialize.ROCKETMQ), Stranger.REMOTING),
        (b"", None),
        (b"GETTING", None),
        (bytes(64), None),
        (b"\xff" * 64, None),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None),
    ],
)  # fmt: skip
def test_recognise(data: bytes, stranger: Stranger | None) -> None:
    assert recognise(data[:HEAD_BYTES]) is stranger


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_kafka_request_is_told_from_remoting(api: Api) -> None:
    for version in range(api.versions[0], api.versions[1] + 1):
        head = (40).to_bytes(4, "big") + api.key.to_bytes(2, "big") + version.to_bytes(2, "big")
        assert recognise(head + bytes(4) + b"\x00\x04test" + bytes(20)) is Stranger.KAFKA


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n", TLS, REMOTING, API_VERSIONS]
)
@pytest.mark.parametrize("decoder", [kafka.RequestDecoder, remoting.Decoder])
def test_decoders_refuse_what_is_not_theirs_at_once(data: bytes, decoder: type) -> None:
    """So that it can be asked what it is. Each takes its own."""
    own = REMOTING if decoder is remoting.Decoder else API_VERSIONS
    if data is own:
        assert len(decoder().feed(data)) == 1
    else:
        with pytest.raises(ProtocolError):
            decoder().feed(data)


def test_what_a_stranger_hears() -> None:
    signs = Signs("the RocketMQ port of broker-a", "127.0.0.1:9092", "127.0.0.1:10911")
    answer = refusal(Stranger.HTTP_1, signs)
    head, _, text = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Length: %d" % len(text) in head
    assert b"the RocketMQ port of broker-a" in text
    assert refusal(Stranger.TLS, signs)[:2] == b"\x15\x03"
    assert [refusal(stranger, signs) for stranger in (Stranger.KAFKA, Stranger.HTTP_2)] == [
        b"",
        b"",
    ]
    assert "127.0.0.1:9092" in signs.advice(Stranger.KAFKA)
    assert "--kafka-port" in Signs().advice(Stranger.KAFKA)
    assert "127.0.0.1:10911" in signs.advice(Stranger.REMOTING)
    for stranger in Stranger:
        assert signs.advice(stranger)
        assert Signs().advice(stranger)


def test_a_server_is_asked_in_the_other_protocol() -> None:
    """The question is one that the protocol's own decoder reads, and its answer names the server."""
    (command,) = remoting.Decoder().feed(question(Stranger.KAFKA))
    assert (command.code, command.opaque, command.flag) == (106, 1, 0)
    (request,) = kafka.server_decoder().feed(question(Stranger.REMOTING))
    assert recognise(question(Stranger.REMOTING)) is Stranger.KAFKA
    assert (request.api.key, request.version) == (18, 0)


@pytest.mark.parametrize(
    ("wants", "answer", "text"),
    [
        (
            Stranger.REMOTING,
            bytes.fromhex("0000000a73746c790000"),
            "a Kafka broker answers at this address, not a RocketMQ nameserver or broker:"
            " give a nameserver's address (port 9876 unless changed)",
        ),
        (Stranger.REMOTING, bytes.fromhex("0000000a000000010000"), ""),
        (Stranger.REMOTING, b"", ""),
        (
            Stranger.KAFKA,
            remoting.encode(Command(code=0, opaque=1, flag=1)),
            "a RocketMQ nameserver answers at this address, not a Kafka broker:"
            " give a Kafka broker's address (port 9092 unless changed)",
        ),
        (
            Stranger.KAFKA,
            remoting.encode(Command(code=3, opaque=1, flag=1, remark="not supported")),
            "a RocketMQ broker answers at this address, not a Kafka broker:"
            " give a Kafka broker's address (port 9092 unless changed)",
        ),
        (
            Stranger.KAFKA,
            remoting.encode(Command(code=16, opaque=1, flag=1, remark="no credentials")),
            "a RocketMQ server that asks for credentials answers at this address, not a Kafka"
            " broker:"
            " give a Kafka broker's address (port 9092 unless changed)",
        ),
        (Stranger.KAFKA, b"HTTP/1.1 400 Bad Request", ""),
        (Stranger.KAFKA, b"", ""),
    ],
)
def test_the_answer_names_the_server(wants: Stranger, answer: bytes, text: str) -> None:
    assert named(wants, answer[:HEAD_BYTES]) == text


def test_a_brokers_port_for_a_nameservers() -> None:
    assert "n:1 is the port of a RocketMQ broker" in not_a_nameserver("n:1")
