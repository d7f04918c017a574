"""What a client speaks that knocked at the wrong port, told from the first bytes it sent.

| first bytes | it speaks |
|---|---|
| `PRI * HTTP/2.0` | HTTP/2: gRPC, the clients of RocketMQ 5.x proxies |
| a method, a space and a path | HTTP/1 |
| `16 03` | TLS, on a port that is not encrypted |
| a size, an API key and version of Kafka's, a client id | Kafka |
| a size, a serialization type and the size of a header, `{` or a request code | RocketMQ's remoting protocol |

Called once a decoder has refused the bytes of a connection that never sent a whole message, so that it costs good clients nothing.

The other way round, for clients at a wrong port, `answerer` tells from what came back, and `unanswered` where nothing did; then the server is asked a `question`
of the other protocol, whose answer is `named`.
Source: RFC 9113 section 3.4; RFC 8446 section 5.1; RequestHeader.json; remoting/protocol/RemotingCommand.java.
"""

from __future__ import annotations

import re
import struct
from enum import Enum
from typing import assert_never

import msgspec

HEAD_BYTES = 64
"""So many bytes are enough to tell."""

API_KEY_MAX, VERSION_MAX = 100, 25
"""Beyond those of Kafka 4."""


class Stranger(Enum):
    """What it speaks, in words."""

    HTTP_2 = "HTTP/2 (gRPC, as clients of RocketMQ 5.x proxies do)"
    HTTP_1 = "HTTP"
    TLS = "TLS"
    KAFKA = "Kafka's protocol"
    REMOTING = "RocketMQ's remoting protocol"


_HTTP_1 = re.compile(rb"(GET|POST|PUT|HEAD|DELETE|OPTIONS|PATCH|CONNECT|TRACE) [/*!-~]")
_KAFKA = struct.Struct(">ihhih")
_REMOTING = struct.Struct(">iI")


def recognise(head: bytes) -> Stranger | None:
    """What the sender of these first bytes of a connection speaks; None where it cannot be told."""
    if head.startswith(b"PRI * HTTP/2.0"):
        return Stranger.HTTP_2
    if _HTTP_1.match(head) is not None:
        return Stranger.HTTP_1
    if head[:2] == b"\x16\x03":
        return Stranger.TLS
    if _is_remoting(head):
        return Stranger.REMOTING
    if _is_kafka(head):
        return Stranger.KAFKA
    return None


def _is_kafka(head: bytes) -> bool:
    if len(head) < _KAFKA.size:
        return False
    size, key, version, _, client_id_size = _KAFKA.unpack_from(head)
    return bool(
        _KAFKA.size - 4 <= size
        and 0 <= key <= API_KEY_MAX
        and 0 <= version <= VERSION_MAX
        and -1 <= client_id_size <= size - (_KAFKA.size - 4)
    )


def _is_remoting(head: bytes) -> bool:
    """Its header is JSON, or binary: both types are small numbers in the byte where Kafka has the API key."""
    if len(head) < 10:
        return False
    size, word = _REMOTING.unpack_from(head)
    header_size = word & 0xFFFFFF
    if not 4 + header_size <= size or header_size < 2:
        return False
    return (word >> 24 == 0 and head[8:9] == b"{") or (word >> 24 == 1 and header_size >= 21)


_HTTP_2_SETTINGS = re.compile(rb"\0..\x04\0\0\0\0\0", re.DOTALL)
_TEXT = re.compile(rb"[ -~]{4,}")
"""As a size it would be 512 MB or more, above what either protocol sends."""


def answerer(head: bytes) -> str:
    """What a server is that answers a client with these first bytes; empty where it may be one that the client wants."""
    if head.startswith(b"HTTP/"):
        return "an HTTP server"
    if head[:2] == b"\x15\x03":
        return "a TLS server (connect with tls=True)"
    if _HTTP_2_SETTINGS.match(head) is not None:
        return "an HTTP/2 server (gRPC, such as a RocketMQ 5.x proxy)"
    text = _TEXT.match(head)
    return "" if text is None else f"a server that says {text[0][:40].decode('ascii')!r}"


def question(wants: Stranger) -> bytes:
    """What to ask a server that said nothing to a client who wants that: a request of the other protocol."""
    if wants is Stranger.KAFKA:
        return _PROBE_SIZES.pack(4 + len(_CLUSTERS), len(_CLUSTERS)) + _CLUSTERS
    return _PROBE.pack(8 + 2 + len(_NAME), 18, 0, PROBE_NUMBER, len(_NAME)) + _NAME


def named(wants: Stranger, head: bytes) -> str:
    """What a server is that answers the `question` with these first bytes, and what to do; empty where it cannot be told."""
    if wants is Stranger.KAFKA:
        code = _CODE.search(head) if _is_remoting(head) else None
        if code is None:
            return ""
        found = "a RocketMQ nameserver" if code[1] == b"0" else "a RocketMQ broker"
    elif len(head) >= 8 and head[4:8] == PROBE_NUMBER.to_bytes(4, "big"):
        found = "a Kafka broker"
    else:
        return ""
    return f"{found} answers at this address, not {expected(wants)}: {_ADVICE[wants]}"


def not_a_nameserver(address: str) -> str:
    """What to tell a client whose question the server at a nameserver's address does not know."""
    advice = _ADVICE[Stranger.REMOTING]
    return f"{address} is the port of a RocketMQ broker, not of a nameserver: {advice}"


PROBE_NUMBER = 0x73746C79
"""By which the answer to our question is known."""
_PROBE = struct.Struct(">ihhih")
_PROBE_SIZES = struct.Struct(">iI")
_NAME = b"steelyard"
_CLUSTERS = b'{"code":106,"flag":0,"language":"OTHER","opaque":1,"serializeTypeCurrentRPC":"JSON","version":0}'
_CODE = re.compile(rb'"code":(\d+)')
_ADVICE = {
    Stranger.REMOTING: "give a nameserver's address (port 9876 unless it was changed)",
    Stranger.KAFKA: "give a Kafka broker's address (port 9092 unless it was changed)",
}


def expected(wants: Stranger) -> str:
    """What a client wants to find at an address, by what it speaks."""
    if wants is Stranger.KAFKA:
        return "a Kafka broker"
    return "a RocketMQ nameserver or broker"


def unanswered(wants: Stranger) -> str:
    """What to check where a server closed the connection before it answered anything."""
    return (
        f"before it answered: it has too many connections, is stopping, or is not {expected(wants)};"
        " check host and port"
    )


class Signs(msgspec.Struct, frozen=True):
    """What a listening port says of itself and of its neighbours. `here`: what it is; the addresses are empty where there is none."""

    here: str = "a port of Steelyard"
    kafka: str = ""
    remoting: str = ""

    def advice(self, stranger: Stranger) -> str:
        """Where one who speaks that should go."""
        match stranger:
            case Stranger.KAFKA if self.kafka:
                return f"Kafka clients connect to {self.kafka}"
            case Stranger.KAFKA:
                return "Kafka clients connect to the Kafka port of a broker (--kafka-port)"
            case Stranger.REMOTING if self.remoting:
                return (
                    "RocketMQ clients connect to a nameserver, which sends them to this broker's RocketMQ port,"
                    f" {self.remoting}"
                )
            case Stranger.REMOTING:
                return "RocketMQ clients connect to a nameserver"
            case Stranger.TLS:
                return "this port is not encrypted: connect without TLS"
            case Stranger.HTTP_2:
                return (
                    "gRPC is not served: use a client of the remoting protocol (any 4.x client; of 5.x the one"
                    " that takes a nameserver's address)"
                )
            case Stranger.HTTP_1:
                return "HTTP is not served here"
            case _:
                assert_never(stranger)


def refusal(stranger: Stranger, signs: Signs) -> bytes:
    """What to answer before the connection is closed, in the stranger's protocol; empty where it has nothing for that."""
    if stranger is Stranger.HTTP_1:
        text = f"This is {signs.here}: {signs.advice(stranger)}.\n".encode()
        return (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(text), text)
        )
    if stranger is Stranger.TLS:
        return b"\x15\x03\x01\x00\x02\x02\x46"  # a fatal alert: protocol_version
    return b""
