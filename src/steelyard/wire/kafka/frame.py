"""Frames of Kafka's protocol: requests and responses to bytes, and back.

    request   int32 size, int16 API key, int16 version, int32 correlation id, nullable string client
              id, tagged fields if the version is flexible; then the message
    response  int32 size, int32 correlation id, tagged fields if the version is flexible (but never
              for ApiVersions, whose reader cannot know yet); then the message

    token     int32 size, then a token of SASL: after version 0 of SaslHandshake, as many frames in
              either direction as the mechanism has messages (KIP-43)

A server answers the requests of a connection in order. A response does not name its API and
version: the requester knows them (`read_reply`). A request for an unsupported API or version breaks
the protocol, except for ApiVersions, by which clients discover the supported ones: then
`Request.message` is None. Source: RequestHeader.json, ResponseHeader.json,
clients/common/requests/RequestContext.java, KIP-482, KIP-511.
"""

from __future__ import annotations

import struct

import msgspec

from steelyard.errors import ProtocolError
from steelyard.types import Sendable, joined
from steelyard.wire.kafka import primitives, schema
from steelyard.wire.kafka.apis import API_VERSIONS_KEY, APIS
from steelyard.wire.kafka.messages.logins import SASL_HANDSHAKE, SaslHandshakeRequest
from steelyard.wire.kafka.schema import Api, ApiMessage

FRAME_BYTES_MAX = 100 * 1024 * 1024
"""Largest request (socket.request.max.bytes); clients accept any response that they requested."""

LOGIN_BYTES_MAX = 512 * 1024
"""Largest request of a client that has not logged in (sasl.server.max.receive.size)."""

AT_ONCE_BYTES = 16 * 1024
"""Size up to which a request is read in one step: it names too little to take long."""

APART_MIN = 32 * 1024
"""Pieces of this size are not copied into their frame; a range of a file is at least as large."""

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")


class Request(msgspec.Struct, frozen=True, gc=False):
    """A client's request. `message` is None for ApiVersions in an unsupported version."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: ApiMessage | None


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A server's response, in the API and version of the request."""

    api: Api
    version: int
    correlation_id: int
    message: ApiMessage


class RawReply(msgspec.Struct, frozen=True, gc=False):
    """A response as received by a client; see `read_reply`."""

    correlation_id: int
    data: bytes


class SaslToken(msgspec.Struct, frozen=True, gc=False):
    """A token of a login, of a client or for it, in a frame of its own."""

    data: bytes

    def __repr__(self) -> str:
        return f"SaslToken({len(self.data)} bytes)"


def encode(message: Request | Reply | SaslToken) -> bytes:
    """Encode the frame of a message. Raises ProtocolError if a value does not fit its field."""
    out: list[Sendable] = []
    write(out, message)
    return joined(out)


def write(out: list[Sendable], message: Request | Reply | SaslToken) -> int:
    """Append the frame of a message; return its size. Raises as `encode`."""
    if isinstance(message, Reply):
        pieces = _reply_pieces(message)
    elif isinstance(message, Request):
        pieces = _request_pieces(message)
    else:
        pieces = [message.data]
    size = sum(map(len, pieces))
    small: list[Sendable] = [_SIZE.pack(size)]
    if size < APART_MIN:
        small += pieces
    else:
        for piece in pieces:
            if len(piece) < APART_MIN:
                small.append(piece)
            else:
                out += (joined(small), piece)
                small.clear()
    out.append(joined(small))
    return _SIZE.size + size


def _reply_pieces(reply: Reply) -> list[Sendable]:
    flexible = reply.api.is_flexible(reply.version)
    header = _CORRELATION.pack(reply.correlation_id)
    if flexible and reply.api.key != API_VERSIONS_KEY:
        header += b"\0"
    return [header, *schema.write(reply.message, reply.version, flexible=flexible)]


def _request_pieces(request: Request) -> list[Sendable]:
    assert request.message is not None
    flexible = request.api.is_flexible(request.version)
    header: list[Sendable] = [
        _REQUEST.pack(request.api.key, request.version, request.correlation_id)
    ]
    primitives.write_string(header, request.client_id)
    if flexible:
        header.append(b"\0")
    return [*header, *schema.write(request.message, request.version, flexible=flexible)]


class _Frames:
    """Decoder of bytes to frames without their sizes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 4

    def feed(self, data: bytes) -> list[bytes]:
        self._have += len(data)
        self._parts.append(data)
        if self._have < self._need:
            return []
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        frames: list[bytes] = []
        at, end = 0, len(data)
        while True:
            self._need = 4
            if end - at < 4:
                break
            (size,) = _SIZE.unpack_from(data, at)
            if not 4 <= size <= self.bytes_max:
                raise ProtocolError(f"a frame of {size} bytes; 4 to {self.bytes_max} are allowed")
            self._need = 4 + size
            if end - at < self._need:
                break
            frames.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        rest = data[at:]
        self._parts = [rest] if rest else []
        self._have = len(rest)
        return frames


class RequestDecoder:
    """Decoder of a connection's bytes to requests, for servers.

    The message of a request larger than `at_once_max` is `Unread`.
    """

    def __init__(self, at_once_max: int = FRAME_BYTES_MAX) -> None:
        self._frames = _Frames(FRAME_BYTES_MAX)
        self._at_once_max = at_once_max

    def feed(self, data: bytes) -> list[Request]:
        """Return the requests completed by `data`. Raises ProtocolError."""
        return [_read_request(frame, self._at_once_max) for frame in self._frames.feed(data)]


def server_decoder() -> RequestDecoder:
    """Create a decoder for servers, which read large requests in steps."""
    return RequestDecoder(AT_ONCE_BYTES)


class LoginDecoder:
    """Decoder of a connection's bytes to requests and tokens, for servers whose clients log in.

    Until `admit`, frames are small. Frames after version 0 of SaslHandshake are `SaslToken`s, one
    or two by the mechanism.
    """

    def __init__(self) -> None:
        self._frames = _Frames(LOGIN_BYTES_MAX)
        self._tokens = 0
        """How many tokens follow."""

    def admit(self) -> None:
        """Allow large frames: the client has logged in."""
        self._frames.bytes_max = FRAME_BYTES_MAX

    def feed(self, data: bytes) -> list[Request | SaslToken]:
        """Return the requests and tokens completed by `data`. Raises ProtocolError."""
        found: list[Request | SaslToken] = []
        for frame in self._frames.feed(data):
            if self._tokens:
                self._tokens -= 1
                found.append(SaslToken(frame))
                continue
            request = _read_request(frame, AT_ONCE_BYTES)
            found.append(request)
            if request.api is SASL_HANDSHAKE and request.version == 0:
                assert isinstance(request.message, SaslHandshakeRequest)
                is_scram = request.message.mechanism.startswith("SCRAM-")
                self._tokens = 2 if is_scram else 1
        return found


class ReplyDecoder:
    """Decoder of a connection's bytes to responses, for clients."""

    def __init__(self) -> None:
        self._frames = _Frames(0x7FFFFFFF)

    def feed(self, data: bytes) -> list[RawReply]:
        """Return the responses completed by `data`. Raises ProtocolError."""
        return [
            RawReply(_CORRELATION.unpack_from(frame)[0], frame) for frame in self._frames.feed(data)
        ]


def _read_request(data: bytes, at_once_max: int) -> Request:
    if len(data) < _REQUEST.size:
        raise ProtocolError(f"a request of {len(data)} bytes")
    key, version, correlation_id = _REQUEST.unpack_from(data)
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"API key {key} is not supported")
    client_id, at = primitives.read_string(data, _REQUEST.size)
    first, last = api.versions
    if not first <= version <= last:
        if key == API_VERSIONS_KEY:
            return Request(api, version, correlation_id, client_id, None)
        raise ProtocolError(
            f"{api.name} version {version} is not supported; versions {first} to {last} are"
        )
    flexible = api.is_flexible(version)
    if flexible:
        _, at = primitives.read_tags(data, at)
    if len(data) > at_once_max and key != API_VERSIONS_KEY:  # which has no arrays
        unread = schema.Unread(api.request, data, version, flexible, at)
        return Request(api, version, correlation_id, client_id, unread)
    # librdkafka 2.16 sends 3 extra bytes in Metadata 13, which Kafka accepts.
    message = schema.read(api.request, data, version, flexible=flexible, at=at, more_allowed=True)
    return Request(api, version, correlation_id, client_id, message)


def read_reply(api: Api, version: int, reply: RawReply) -> ApiMessage:
    """The message of a response to a request of this API and version. Raises ProtocolError."""
    flexible = api.is_flexible(version)
    at = 4
    if flexible and api.key != API_VERSIONS_KEY:
        _, at = primitives.read_tags(reply.data, at)
    return schema.read(api.response, reply.data, version, flexible=flexible, at=at)
