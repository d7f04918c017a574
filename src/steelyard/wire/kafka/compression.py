"""Compression of the records in a batch.

Readers accept gzip; snappy, bare or in the frames of xerial's Java library (which Java clients
write); LZ4 frames; and Zstandard. Writers produce what Java clients read: snappy in xerial's
frames, and LZ4 frames with independent blocks. Source: clients/.../compress/*.java,
KafkaLZ4BlockInputStream.java, org.xerial.snappy.SnappyOutputStream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum

from steelyard.errors import ProtocolError

PLAIN_BYTES_MAX = 64 * 1024 * 1024
"""Size limit of a batch's decompressed records: 64 times the largest batch accepted by default."""

_GZIP_WINDOW = 31
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_SIZE = struct.Struct(">i")
_ZSTD_PIECE_BYTES = 1024

PIECE_BYTES = 64 * 1024
"""Bytes that `pieces` decompresses at a time, some 50 microseconds of work."""
_INPUT_BYTES = 16 * 1024


class Compression(IntEnum):
    """Compression of the records of a batch: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(data: bytes, compression: int) -> bytes:
    """Return `data` compressed. Raises ProtocolError for an unknown compression."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            packer = zlib.compressobj(wbits=_GZIP_WINDOW)
            return packer.compress(data) + packer.flush()
        case Compression.SNAPPY:
            return _pack_snappy(data)
        case Compression.LZ4:
            import lz4.frame  # here, as below: most programs never meet such a batch

            packed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
            return packed
        case Compression.ZSTD:
            import zstandard

            return zstandard.ZstdCompressor().compress(data)
    raise ProtocolError(f"unknown compression {compression} of a record batch")


def decompress(data: bytes, compression: int, bytes_max: int = PLAIN_BYTES_MAX) -> bytes:
    """Return `data` decompressed.

    Raises ProtocolError if `data` is damaged or would exceed `bytes_max` bytes.
    """
    match compression:
        case Compression.NONE:
            plain = data
        case Compression.GZIP:
            plain = _unpack_gzip(data, bytes_max + 1)
        case Compression.SNAPPY:
            plain = _unpack_snappy(data, bytes_max)
        case Compression.LZ4:
            plain = _unpack_lz4(data, bytes_max + 1)
        case Compression.ZSTD:
            plain = _unpack_zstd(data, bytes_max + 1)
        case _:
            raise ProtocolError(f"unknown compression {compression} of a record batch")
    if len(plain) > bytes_max:
        raise _too_large(bytes_max)
    return plain


def pieces(data: bytes, compression: int) -> Iterator[bytes]:
    """Yield the decompressed data in pieces, for readers that need its beginning or must not block.

    A piece has at most PIECE_BYTES; only uncompressed data comes in one piece, and a block of
    snappy, which cannot be divided, in one of at most PLAIN_BYTES_MAX. If `data` is truncated, the
    pieces simply end. Raises ProtocolError if it is damaged. The same data always gives the same
    pieces.
    """
    match compression:
        case Compression.NONE:
            return iter((data,))
        case Compression.GZIP:
            return _gzip_pieces(data)
        case Compression.SNAPPY:
            return _snappy_blocks(data, PLAIN_BYTES_MAX)
        case Compression.LZ4:
            return _lz4_pieces(data)
        case Compression.ZSTD:
            return _zstd_pieces(data)
    raise ProtocolError(f"unknown compression {compression} of a record batch")


def _too_large(bytes_max: int) -> ProtocolError:
    return ProtocolError(f"the records of a batch grow beyond {bytes_max} bytes")


def _ends_early(name: str) -> ProtocolError:
    return ProtocolError(f"the {name} data of a record batch ends too early")


def _unpack_gzip(data: bytes, size_max: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = unpacker.decompress(data, size_max)
    except zlib.error as error:
        raise ProtocolError(f"the records of a batch are not gzip data: {error}") from None
    if not unpacker.eof and len(plain) < size_max:
        raise _ends_early("gzip")
    return plain


def _gzip_pieces(data: bytes) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for start in range(0, len(data), _INPUT_BYTES):
            packed = data[start : start + _INPUT_BYTES]
            while packed and not unpacker.eof:
                yield unpacker.decompress(packed, PIECE_BYTES)
                packed = unpacker.unconsumed_tail
    except zlib.error as error:
        raise ProtocolError(f"the records of a batch are not gzip data: {error}") from None


def _pack_snappy(data: bytes) -> bytes:
    from cramjam import snappy

    parts = [_XERIAL_HEAD.pack(_XERIAL, 1, 1)]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _unpack_snappy(data: bytes, bytes_max: int) -> bytes:
    return b"".join(_snappy_blocks(data, bytes_max))


def _snappy_blocks(data: bytes, bytes_max: int) -> Iterator[bytes]:
    """Yield the blocks of xerial's frames, or the single unframed one.

    At most `bytes_max` bytes.
    """
    if not data.startswith(_XERIAL):
        yield _unpack_snappy_block(data, 0, bytes_max)
        return
    size, position = 0, _XERIAL_HEAD.size
    while position < len(data):
        start = position + 4
        if start > len(data):
            raise _ends_early("snappy")
        (block_size,) = _SIZE.unpack_from(data, position)
        position = start + block_size
        if block_size < 0 or position > len(data):
            raise _ends_early("snappy")
        block = _unpack_snappy_block(data[start:position], size, bytes_max)
        size += len(block)
        yield block


def _unpack_snappy_block(data: bytes, size_before: int, bytes_max: int) -> bytes:
    import cramjam

    try:
        # A block begins with its decompressed size, which the library allocates.
        if size_before + cramjam.snappy.decompress_raw_len(data) > bytes_max:
            raise _too_large(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"the records of a batch are not snappy data: {error}") from None


def _unpack_lz4(data: bytes, size_max: int) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = unpacker.decompress(data, size_max)
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"the records of a batch are not an LZ4 frame: {error}") from None
    if not unpacker.eof and len(plain) < size_max:
        raise _ends_early("LZ4")
    return plain


def _lz4_pieces(data: bytes) -> Iterator[bytes]:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    position = 0
    try:
        while not unpacker.eof:
            packed = b""
            if unpacker.needs_input:
                packed = data[position : position + _INPUT_BYTES]
                position += _INPUT_BYTES
                if not packed:
                    return
            yield unpacker.decompress(packed, PIECE_BYTES)
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"the records of a batch are not an LZ4 frame: {error}") from None


def _zstd_pieces(data: bytes) -> Iterator[bytes]:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=PLAIN_BYTES_MAX).stream_reader(data)
    try:
        while piece := unpacker.read(PIECE_BYTES):
            yield piece
    except zstandard.ZstdError as error:
        raise ProtocolError(f"the records of a batch are not Zstandard data: {error}") from None


def _unpack_zstd(data: bytes, size_max: int) -> bytes:
    """Decompress in small pieces of input, because the library cannot limit a stream's output.

    A piece of 1 KiB yields 32 MiB at most.
    """
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=PLAIN_BYTES_MAX).decompressobj()
    parts: list[bytes] = []
    size = position = 0
    try:
        while position < len(data) and size < size_max and not unpacker.eof:
            parts.append(unpacker.decompress(data[position : position + _ZSTD_PIECE_BYTES]))
            size += len(parts[-1])
            position += _ZSTD_PIECE_BYTES
    except zstandard.ZstdError as error:
        raise ProtocolError(f"the records of a batch are not Zstandard data: {error}") from None
    if not unpacker.eof and size < size_max:
        raise _ends_early("Zstandard")
    return b"".join(parts)
