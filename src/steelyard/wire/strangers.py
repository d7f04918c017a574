"""Recognition of clients at the wrong port by the first bytes that they send.

| first bytes | protocol |
|---|---|
| `PRI * HTTP/2.0` | HTTP/2: gRPC, the clients of RocketMQ 5.x proxies |
| a method, a space and a path | HTTP/1 |
| `16 03` | TLS, on a port that is not encrypted |
| a size, an API key and version of Kafka's, a client id | Kafka |
| a size, a serialization type, a header size, `{` or a request code | RocketMQ's remoting |

Called once a decoder has refused the bytes of a connection that never sent a whole message, so that
it costs valid clients nothing.

For our own clients at a wrong port, `answerer` recognises the server by its response, and
`unanswered` handles the lack of one; the server is then sent a `question` of the other protocol, by
whose response it is `recognised`: a nameserver lists its clusters (106), a RocketMQ broker rejects
that request as unknown, and a Kafka broker lists its versions (18). Source: RFC 9113 section 3.4;
RFC 8446 section 5.1; RequestHeader.json; remoting/protocol/RemotingCommand.java.
"""

from __future__ import annotations

import re
import struct
from enum import Enum
from typing import assert_never

import msgspec

HEAD_BYTES = 64
"""Number of bytes that are enough for recognition."""

API_KEY_MAX, VERSION_MAX = 100, 25
"""Above those of Kafka 4."""


class Stranger(Enum):
    """Protocols by their names in error texts."""

    HTTP_2 = "HTTP/2 (gRPC, as clients of RocketMQ 5.x proxies do)"
    HTTP_1 = "HTTP"
    TLS = "TLS"
    KAFKA = "Kafka's protocol"
    REMOTING = "RocketMQ's remoting protocol"


_HTTP_1 = re.compile(rb"(GET|POST|PUT|HEAD|DELETE|OPTIONS|PATCH|CONNECT|TRACE) [/*!-~]")
_KAFKA = struct.Struct(">ihhih")
_REMOTING = struct.Struct(">iI")


def recognise(head: bytes) -> Stranger | None:
    """Return the protocol of a connection's first bytes; None if unknown."""
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
    """Return whether it is remoting: JSON or binary header type at the byte of Kafka's API key."""
    if len(head) < 10:
        return False
    size, word = _REMOTING.unpack_from(head)
    header_size = word & 0xFFFFFF
    if not 4 + header_size <= size or header_size < 2:
        return False
    return (word >> 24 == 0 and head[8:9] == b"{") or (word >> 24 == 1 and header_size >= 21)


_HTTP_2_SETTINGS = re.compile(rb"\0..\x04\0\0\0\0\0", re.DOTALL)
_TEXT = re.compile(rb"[ -~]{4,}")
"""Printable text; as a size it would be 512 MB or more, above either protocol's limit."""


def answerer(head: bytes) -> str:
    """Describe a server by its first bytes; empty if it may be the one that the client wants."""
    if head.startswith(b"HTTP/"):
        return "an HTTP server"
    if head[:2] == b"\x15\x03":
        return "a TLS server (connect with tls=True)"
    if _HTTP_2_SETTINGS.match(head) is not None:
        return "an HTTP/2 server (gRPC, such as a RocketMQ 5.x proxy)"
    text = _TEXT.match(head)
    return "" if text is None else f"a server that says {text[0][:40].decode('ascii')!r}"


def question(wants: Stranger) -> bytes:
    """Return a request of the other protocol, for a server that did not respond."""
    if wants is Stranger.KAFKA:
        return _PROBE_SIZES.pack(4 + len(_CLUSTERS), len(_CLUSTERS)) + _CLUSTERS
    return _PROBE.pack(8 + 2 + len(_NAME), 18, 0, PROBE_NUMBER, len(_NAME)) + _NAME


class ServerKind(Enum):
    """A server of either protocol, in words."""

    NAMESERVER = "a RocketMQ nameserver"
    BROKER = "a RocketMQ broker"
    GUARDED = "a RocketMQ server that asks for credentials"
    KAFKA = "a Kafka broker"

    def may_be(self, wanted: ServerKind) -> bool:
        """Return whether it is what is wanted, as far as is known."""
        return self is wanted or (self is ServerKind.GUARDED and wanted is not ServerKind.KAFKA)


def recognised(wants: Stranger, head: bytes) -> ServerKind | None:
    """The server that responds to `question` with these first bytes; None if unknown."""
    if wants is Stranger.KAFKA:
        code = _CODE.search(head) if _is_remoting(head) else None
        return None if code is None else _ANSWERERS.get(int(code[1]), ServerKind.GUARDED)
    return ServerKind.KAFKA if head[4:8] == PROBE_NUMBER.to_bytes(4, "big") else None


def named(wants: Stranger, head: bytes) -> str:
    """Describe a server by its response to `question`, with advice; empty if unknown."""
    found = recognised(wants, head)
    if found is None:
        return ""
    return f"{found.value} answers at this address, not {expected(wants)}: {_ADVICE[wants]}"


def not_a_nameserver(address: str) -> str:
    """Return the text for a client whose request a presumed nameserver does not know."""
    advice = _ADVICE[Stranger.REMOTING]
    return f"{address} is the port of a RocketMQ broker, not of a nameserver: {advice}"


PROBE_NUMBER = 0x73746C79
"""Identifies the response to our question."""
_PROBE = struct.Struct(">ihhih")
_PROBE_SIZES = struct.Struct(">iI")
_NAME = b"steelyard"
_CLUSTERS = (
    b'{"code":106,"flag":0,"language":"OTHER","opaque":1,'
    b'"serializeTypeCurrentRPC":"JSON","version":0}'
)
_ANSWERERS = {0: ServerKind.NAMESERVER, 3: ServerKind.BROKER}
"""By the code of the answer: 3 is REQUEST_CODE_NOT_SUPPORTED."""
_CODE = re.compile(rb'"code":(\d+)')
_ADVICE = {
    Stranger.REMOTING: "give a nameserver's address (port 9876 unless changed)",
    Stranger.KAFKA: "give a Kafka broker's address (port 9092 unless changed)",
}


def expected(wants: Stranger) -> str:
    """Return the kind of server that a client expects at an address."""
    if wants is Stranger.KAFKA:
        return "a Kafka broker"
    return "a RocketMQ nameserver or broker"


def unanswered(wants: Stranger) -> str:
    """Return what to check if a server closed the connection before it responded."""
    return (
        "before it answered: it accepts only TLS, has too many connections, is stopping,"
        f" or is not {expected(wants)}; check host and port"
    )


class Signs(msgspec.Struct, frozen=True):
    """How a listening port describes itself and its neighbours.

    `here`: what it is; addresses are empty if there is none. `encrypted`: the protocol that its
    clients speak within TLS; None if they speak without.
    """

    here: str = "a port of Steelyard"
    kafka: str = ""
    remoting: str = ""
    encrypted: Stranger | None = None

    def advice(self, stranger: Stranger) -> str:
        """Return where a client of that protocol should connect."""
        match stranger:
            case Stranger.KAFKA if self.encrypted is stranger:
                return (
                    "this port is encrypted: set security.protocol to SSL, or to SASL_SSL if it"
                    " asks for a login"
                )
            case Stranger.KAFKA if self.kafka:
                return f"Kafka clients connect to {self.kafka}"
            case Stranger.KAFKA:
                return "Kafka clients connect to the Kafka port of a broker (--kafka-port)"
            case Stranger.REMOTING if self.encrypted is stranger:
                return (
                    "this port is encrypted: connect with TLS (tls.enable=true in Java, tls=True or"
                    " --tls in Python)"
                )
            case Stranger.REMOTING if self.remoting:
                return (
                    "RocketMQ clients connect to a nameserver, which sends them to this broker's"
                    f" RocketMQ port, {self.remoting}"
                )
            case Stranger.REMOTING:
                return "RocketMQ clients connect to a nameserver"
            case Stranger.TLS:
                return "this port is not encrypted: connect without TLS"
            case Stranger.HTTP_2:
                return (
                    "gRPC is not served: use a client of the remoting protocol (any 4.x client;"
                    " of 5.x the one that takes a nameserver's address)"
                )
            case Stranger.HTTP_1:
                return "HTTP is not served here"
            case _:
                assert_never(stranger)


def refusal(stranger: Stranger, signs: Signs) -> bytes:
    """Return the response before closing, in the client's protocol.

    Empty if it has none for that.
    """
    if stranger is Stranger.HTTP_1:
        text = f"This is {signs.here}: {signs.advice(stranger)}.\n".encode()
        return (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)
        )
    if stranger is Stranger.TLS:
        return b"\x15\x03\x01\x00\x02\x02\x46"  # a fatal alert: protocol_version
    return b""
