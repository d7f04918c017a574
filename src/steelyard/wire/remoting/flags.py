"""Bits of `sysFlag` in messages and pulls, with body compression and tag hashes.

Source: common/sysflag/MessageSysFlag.java, PullSysFlag.java, common/compression/*.java.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from functools import lru_cache

from steelyard.errors import ProtocolError
from steelyard.wire.streams import Format, pack_lz4, pack_zstd, unpack

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Largest decompressed body: 16 times the default maxMessageSize.

A producer checks the latter before it compresses.
"""

ZLIB_LEVEL = 5
"""Default compression level (rocketmq.message.compressLevel)."""


class SysFlag(IntEnum):
    """Bits of a message's system flag; fields of two and three bits are listed by value."""

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
    """The compression if COMPRESSED is set; 0 means ZLIB, as written by clients before 5.0."""


_FORMATS: dict[int, Format] = {
    0: Format.ZLIB,
    SysFlag.ZLIB: Format.ZLIB,
    SysFlag.LZ4: Format.LZ4,  # Java writes frames (LZ4FrameOutputStream), not bare blocks
    SysFlag.ZSTD: Format.ZSTD,
}

TRANSACTION_BITS = int(SysFlag.TRANSACTION_ROLLBACK)


class PullFlag(IntEnum):
    """Bits of the `sysFlag` of PULL_MESSAGE."""

    COMMIT_OFFSET = 0x1
    """The header's `commitOffset` is to be stored."""
    SUSPEND = 0x2
    """The broker may hold the pull until a message arrives."""
    SUBSCRIPTION = 0x4
    """The header's `subscription` applies instead of the heartbeat's."""
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10


def compress(body: bytes, sys_flag: int, level: int = ZLIB_LEVEL) -> bytes:
    """Compress `body` as `sys_flag` says; unchanged if COMPRESSED is not set.

    `level`: for ZLIB (0 to 9) and ZSTD; LZ4 has its own, as in Java.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    match sys_flag & SysFlag.COMPRESSION_MASK:
        case 0 | SysFlag.ZLIB:
            return zlib.compress(body, level)
        case SysFlag.LZ4:
            return pack_lz4(body)
        case SysFlag.ZSTD:
            return pack_zstd(body, level)
    raise ProtocolError(f"unknown compression in system flag {sys_flag:#x}")


def decompress(body: bytes, sys_flag: int, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the producer's original body; unchanged if COMPRESSED is not set.

    Raises ProtocolError if the bytes are damaged or would exceed `bytes_max`.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    form = _FORMATS.get(sys_flag & SysFlag.COMPRESSION_MASK)
    if form is None:
        raise ProtocolError(f"unknown compression in system flag {sys_flag:#x}")
    plain, complete = unpack(body, form, bytes_max + 1, "body is")
    if len(plain) > bytes_max:
        raise ProtocolError(f"compressed body of {len(body)} bytes grows beyond {bytes_max} bytes")
    if not complete:
        raise ProtocolError(f"compressed body of {len(body)} bytes ends too early")
    return plain


@lru_cache(maxsize=4096)
def tag_code(tag: str) -> int:
    """Return Java's `String.hashCode`, which represents a tag in queues and subscriptions.

    0 means no tag.
    """
    code = 0
    units = tag.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code


def java_string_key(text: str) -> bytes:
    """Sort key that orders strings by UTF-16 units, as Java does."""
    return text.encode("utf-16-be", "surrogatepass")
