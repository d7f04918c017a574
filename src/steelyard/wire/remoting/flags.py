"""Bits of `sysFlag`, in messages and in pulls, and what hangs on them: body compression and tag hashes.

Source: common/sysflag/MessageSysFlag.java, PullSysFlag.java, common/compression/*.java.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache

from steelyard.errors import ProtocolError

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Largest body that `decompress` makes: 16 times the default maxMessageSize, which a producer checks before it compresses."""

ZLIB_LEVEL = 5
"""rocketmq.message.compressLevel."""


class SysFlag(IntEnum):
    """Bits of a message's system flag; the two-bit and three-bit fields are given by their values."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    """Also the mask of the transaction bits."""
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300
    COMPRESSION_MASK = 0x700
    """Which compression, where COMPRESSED is set; 0 means ZLIB, as clients before 5.0 write it."""


TRANSACTION_BITS = int(SysFlag.TRANSACTION_ROLLBACK)


class PullFlag(IntEnum):
    """Bits of the `sysFlag` of PULL_MESSAGE."""

    COMMIT_OFFSET = 0x1
    """`commitOffset` of the header is to be stored."""
    SUSPEND = 0x2
    """The broker may hold the pull until there is a message."""
    SUBSCRIPTION = 0x4
    """`subscription` of the header counts, not the one of the heartbeat."""
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10


def compress(body: bytes, sys_flag: int, level: int = ZLIB_LEVEL) -> bytes:
    """`body` as `sys_flag` says it is to be stored; unchanged where COMPRESSED is not set.

    `level`: of ZLIB (0 to 9) and ZSTD; LZ4 has its own, as in Java.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    match sys_flag & SysFlag.COMPRESSION_MASK:
        case 0 | SysFlag.ZLIB:
            return zlib.compress(body, level)
        case SysFlag.LZ4:
            import lz4.frame  # here, for most programs never meet such a body

            lz4_body: bytes = lz4.frame.compress(body)
            return lz4_body
        case SysFlag.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor(level).compress(body)
    raise ProtocolError(f"unknown compression in system flag {sys_flag:#x}")


def decompress(body: bytes, sys_flag: int, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The body that the producer meant; unchanged where COMPRESSED is not set.

    Raises ProtocolError where the bytes are damaged or would grow beyond `bytes_max`.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    match sys_flag & SysFlag.COMPRESSION_MASK:
        case 0 | SysFlag.ZLIB:
            plain, complete = _inflate(body, bytes_max + 1)
        case SysFlag.LZ4:
            plain, complete = _unpack_lz4(body, bytes_max + 1)
        case SysFlag.ZSTD:
            plain, complete = _unpack_zstd(body, bytes_max + 1)
        case _:
            raise ProtocolError(f"unknown compression in system flag {sys_flag:#x}")
    if len(plain) > bytes_max:
        raise ProtocolError(f"compressed body of {len(body)} bytes grows beyond {bytes_max} bytes")
    if not complete:
        raise ProtocolError(f"compressed body of {len(body)} bytes ends too early")
    return plain


def _inflate(body: bytes, size_max: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    try:
        return inflater.decompress(body, size_max), inflater.eof
    except zlib.error as error:
        raise ProtocolError(f"body is not a zlib stream: {error}") from None


def _unpack_lz4(body: bytes, size_max: int) -> tuple[bytes, bool]:
    """Java writes the frame format (LZ4FrameOutputStream), not bare blocks."""
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        return unpacker.decompress(body, size_max), unpacker.eof
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"body is not an LZ4 frame: {error}") from None


def _unpack_zstd(body: bytes, size_max: int) -> tuple[bytes, bool]:
    """The library has no limit for the output of a stream, hence small pieces: a piece of 1 KiB makes 32 MiB at most."""
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=DECOMPRESSED_BYTES_MAX).decompressobj()
    parts: list[bytes] = []
    size = position = 0
    try:
        while position < len(body) and size < size_max and not unpacker.eof:
            parts.append(unpacker.decompress(body[position : position + 1024]))
            size += len(parts[-1])
            position += 1024
    except zstandard.ZstdError as error:
        raise ProtocolError(f"body is not a Zstandard frame: {error}") from None
    return b"".join(parts), unpacker.eof


@lru_cache(maxsize=4096)
def tag_code(tag: str) -> int:
    """Java's `String.hashCode`: what consume queues and subscriptions hold instead of a tag. 0 for no tag."""
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


def java_string_key(text: str) -> bytes:
    """Sort key that orders strings as Java does, by UTF-16 units: `sorted(names, key=java_string_key)`."""
    return text.encode("utf-16-be", "surrogatepass")
