"""The codecs of simulated links, as at either end of a real connection.

A RocketMQ peer may write its headers in either of two encodings; a Kafka server reads requests, a
Kafka client responses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from steelyard.nodes.seam import KAFKA, REMOTING
from steelyard.wire.kafka import frame as kafka
from steelyard.wire.remoting import frame as remoting
from steelyard.wire.remoting.command import Command, Serialize


class Decoding(Protocol):
    """Decoder of the bytes of one connection."""

    def feed(self, data: bytes) -> Sequence[object]: ...


class Dialect(NamedTuple):
    """The codec of a link's messages, and the decoders for the accepting and the dialing end."""

    name: str
    encode: Callable[[object, Serialize], bytes]
    accepting: Callable[[], Decoding]
    dialing: Callable[[], Decoding]


def _encode_command(message: object, serialize: Serialize) -> bytes:
    assert isinstance(message, Command), message
    return remoting.encode(message, serialize)


def _encode_kafka(message: object, serialize: Serialize) -> bytes:
    assert isinstance(message, kafka.Request | kafka.Reply)
    return kafka.encode(message)


DIALECTS = {
    REMOTING: Dialect(REMOTING, _encode_command, remoting.Decoder, remoting.Decoder),
    KAFKA: Dialect(KAFKA, _encode_kafka, kafka.server_decoder, kafka.ReplyDecoder),
}
