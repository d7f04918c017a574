"""Frames of the remoting protocol: commands to bytes, and bytes back to commands.

    int32  size of the rest
    int32  serialization of the header (8 bits), size of the header (24 bits)
    header
    body

Big-endian. The header is JSON (0) or RocketMQ's own binary form (1); each frame says which, and a
response may use another form than its request. Source: remoting/protocol/RemotingCommand.java,
RocketMQSerializable.java, remoting/netty/NettyDecoder.java.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ProtocolError
from steelyard.types import Sendable
from steelyard.wire.remoting import casts, values
from steelyard.wire.remoting.command import Command, Serialize
from steelyard.wire.remoting.dialect import loads

FRAME_BYTES_MAX = 16_777_216
"""Limit of a whole frame (NettySystemConfig: com.rocketmq.remoting.frameMaxLength)."""

ANSWER_BYTES_MAX = FRAME_BYTES_MAX - 64 * 1024
"""Maximum bytes of messages in an answer: a frame less the space for its header."""

HEADER_BYTES_MAX = 1024 * 1024
"""Limit of a request's header.

The format allows 16 MiB, but the largest header that peers have reason to write, 32,767 bytes of
properties with each byte escaped, has 200 KB; decoding a larger one takes 20 times its size in
memory.
"""

REPLY_HEADER_BYTES_MAX = 8 * 1024 * 1024
"""Limit of a response's header.

The response to a batch has an id of 33 bytes for each of up to 190,000 messages.
"""

_HEADER_SIZE_MASK = 0xFFFFFF

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
"""Languages in the order of their codes: remoting/protocol/LanguageCode.java."""

_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_OTHER = "OTHER"

_PREFIX = struct.Struct(">iI")
_BINARY = struct.Struct(">hBhiii")

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


# -- encoding --------------------------------------------------------------------------------------


class _JsonHeader(msgspec.Struct, gc=False):
    """The header with fastjson's order of keys; UNSET fields are omitted."""

    code: int
    extFields: Mapping[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


_encode_json = msgspec.json.Encoder().encode


def encode(command: Command, serialize: Serialize = Serialize.JSON) -> bytes:
    """Encode one frame. In the binary form code and version must fit into 16 bits."""
    if serialize is Serialize.JSON:
        header = encode_json_header(command)
    else:
        header = encode_binary_header(command)
    assert len(header) <= _HEADER_SIZE_MASK
    body = command.body
    return _PREFIX.pack(4 + len(header) + len(body), serialize << 24 | len(header)) + header + body


def write(out: list[Sendable], command: Command) -> int:
    """Append a frame with a JSON header; return its size."""
    data = encode(command)
    out.append(data)
    return len(data)


def encode_json_header(command: Command) -> bytes:
    """Encode the header as fastjson does; `extFields` keep the order of `ext`."""
    return _encode_json(
        _JsonHeader(
            command.code,
            command.ext or msgspec.UNSET,
            command.flag,
            command.language,
            command.opaque,
            command.remark or msgspec.UNSET,
            "JSON",
            command.version,
        )
    )


def encode_binary_header(command: Command) -> bytes:
    remark = command.remark.encode()
    entries: list[bytes] = []
    for name, value in command.ext.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        entries.append(len(name_bytes).to_bytes(2, "big") + name_bytes)
        entries.append(len(value_bytes).to_bytes(4, "big") + value_bytes)
    ext = b"".join(entries)
    language = _CODES.get(command.language, _CODES[_OTHER])
    fixed = _BINARY.pack(
        command.code, language, command.version, command.opaque, command.flag, len(remark)
    )
    return fixed + remark + len(ext).to_bytes(4, "big") + ext


def too_large(size: int) -> str:
    """Return why a message of this size, in bytes, fits into no answer."""
    return f"{size} bytes; an answer holds at most {ANSWER_BYTES_MAX}"


# -- decoding --------------------------------------------------------------------------------------


class Decoder:
    """Decoder of the bytes of one connection to commands.

    Holds at most one unfinished frame and copies bodies, so the caller may reuse its buffer. After
    a ProtocolError the connection is unusable: every later `feed` raises it again.
    """

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_BYTES_MAX,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._pending = bytearray()
        self._needed = 0
        """Number of pending bytes before which nothing can be decoded."""
        self._error: ProtocolError | None = None

    def feed(self, data: bytes | memoryview) -> list[Command]:
        """Return the commands completed by `data`, in order.

        Raises ProtocolError for anything that is not a frame, as soon as its first bytes show it;
        commands before it in the same `data` are lost with the connection.
        """
        if self._error is not None:
            raise self._error
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return []
        try:
            if pending:
                with memoryview(pending) as view:
                    commands, used = self._cut(view)
            else:
                commands, used = self._cut(data)
        except ProtocolError as error:
            self._error = error.with_traceback(None)
            self._pending = bytearray()
            raise
        if not pending:
            if used < len(data):
                pending += data[used:]
        elif used < len(pending):
            del pending[:used]
        else:
            self._pending = bytearray()
        return commands

    def _cut(self, data: bytes | memoryview) -> tuple[list[Command], int]:
        """Return the whole frames at the start of `data`, and the bytes they take."""
        commands: list[Command] = []
        position, end = 0, len(data)
        while end - position >= 8:
            size, word = _PREFIX.unpack_from(data, position)
            header_size = word & _HEADER_SIZE_MASK
            self._check(size, header_size)
            stop = position + 4 + size
            if end < stop:
                self._needed = 4 + size
                return commands, position
            split = position + 8 + header_size
            body = bytes(data[split:stop])
            commands.append(decode_header(data[position + 8 : split], word >> 24, body))
            position = stop
        if end - position >= 4:
            self._check(int.from_bytes(data[position : position + 4], "big", signed=True), 0)
        self._needed = 8 if end - position >= 4 else 4
        return commands, position

    def _check(self, size: int, header_size: int) -> None:
        if not 4 + header_size <= size <= self._frame_bytes_max - 4:
            raise ProtocolError(
                f"not a frame: it claims {size} bytes, {header_size} of header;"
                f" the limit is {self._frame_bytes_max}"
            )
        if header_size > self._header_bytes_max:
            raise ProtocolError(
                f"header of {header_size} bytes; the limit is {self._header_bytes_max}"
            )


def reply_decoder() -> Decoder:
    """Create a decoder for clients: responses may have long headers."""
    return Decoder(header_bytes_max=REPLY_HEADER_BYTES_MAX)


class _Incoming(msgspec.Struct, gc=False):
    """The header as most peers write it; others are read leniently."""

    code: _Int32 = 0
    extFields: dict[str, str] | None = None  # noqa: N815
    flag: _Int32 = 0
    language: Annotated[str, msgspec.Meta(extra={"names": LANGUAGES})] = _OTHER
    opaque: _Int32 = 0
    remark: str | None = None
    version: _Int32 = 0


class _LooseIncoming(msgspec.Struct, gc=False):
    """The header as the C++ client writes it: numbers among custom fields, language by name."""

    code: _Int32
    extFields: dict[str, str | int | bool | None]  # noqa: N815
    flag: _Int32 = 0
    language: str = _OTHER
    opaque: _Int32 = 0
    remark: str | None = None
    version: _Int32 = 0


_decode_json = msgspec.json.Decoder(prepared(_Incoming)).decode
_decode_loose = msgspec.json.Decoder(prepared(_LooseIncoming)).decode


def decode_header(header: bytes | memoryview, serialize: int, body: bytes = b"") -> Command:
    """Build the command from `header`, serialized as `serialize`, and `body`."""
    if serialize == 0:
        return _read_json(header, body)
    if serialize == Serialize.ROCKETMQ:
        return _read_binary(bytes(header), body)
    raise ProtocolError(f"unknown serialize type {serialize}")


def _read_json(header: bytes | memoryview, body: bytes) -> Command:
    try:
        found = _decode_json(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = _read_lenient(bytes(header))
    language = found.language
    return Command(
        found.code,
        found.opaque,
        found.flag,
        found.extFields or {},
        body,
        found.remark or "",
        language if language in _CODES else _in_other_case(language),
        found.version,
    )


def _in_other_case(language: str) -> str:
    upper = language.upper()
    return upper if upper in _CODES else _OTHER


def _read_lenient(header: bytes) -> _Incoming:
    """Read a JSON header with loose types."""
    try:
        found = _decode_loose(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_odd(header)
    ext = {
        name: value if isinstance(value, str) else values.text(value) or ""
        for name, value in found.extFields.items()
        if value is not None
    }
    return _Incoming(
        found.code, ext, found.flag, found.language, found.opaque, found.remark, found.version
    )


def _read_odd(header: bytes) -> _Incoming:
    """Read a JSON header with loose punctuation as well.

    Beyond fastjson this accepts PHP's empty table, and unknown languages.
    """
    try:
        tree = loads(header)
        if isinstance(tree, dict):
            if tree.get("extFields") == []:
                del tree["extFields"]
            language = tree.get("language")
            if isinstance(language, int) and language >= len(LANGUAGES):
                del tree["language"]
        return casts.cast(_Incoming, tree)
    except ProtocolError as error:
        raise ProtocolError(f"header: {error}") from None


def _read_binary(header: bytes, body: bytes) -> Command:
    """Read RocketMQSerializable; refuse lengths that do not end exactly with the header."""
    try:
        code, language, version, opaque, flag, remark_size = _BINARY.unpack_from(header)
        remark, position = _text_at(header, _BINARY.size, remark_size)
        (ext_size,) = struct.unpack_from(">i", header, position)
        position += 4
        if ext_size != len(header) - position:
            raise ProtocolError(f"binary header: extFields of {ext_size} bytes do not end it")
        ext: dict[str, str] = {}
        while position < len(header):
            (size,) = struct.unpack_from(">h", header, position)
            name, position = _text_at(header, position + 2, size)
            (size,) = struct.unpack_from(">i", header, position)
            ext[name], position = _text_at(header, position + 4, size)
    except struct.error:
        raise ProtocolError("binary header ends too early") from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else _OTHER
    return Command(code, opaque, flag, ext, body, remark, name, version)


def _text_at(header: bytes, position: int, size: int) -> tuple[str, int]:
    """Return the text of `size` bytes at `position`, and the position after it."""
    stop = position + size
    if size < 0 or stop > len(header):
        raise ProtocolError(f"binary header: a text of {size} bytes does not fit")
    try:
        return header[position:stop].decode(), stop
    except UnicodeDecodeError:
        raise ProtocolError("binary header: a text is not UTF-8") from None
