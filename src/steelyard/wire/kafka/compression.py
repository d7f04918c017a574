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
from steelyard.wire import streams
from steelyard.wire.streams import Format, pack_lz4, pack_zstd, unpack

PLAIN_BYTES_MAX = 64 * 1024 * 1024
"""Size limit of a batch's decompressed records: 64 times the largest batch accepted by default."""

PACKED_BYTES = 16 * 1024
"""Bytes that `packed_pieces` compresses at a time: half a millisecond of work for gzip."""

_GZIP_WINDOW = 31
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = struct.Struct(">8sii")
_XERIAL_BLOCK_BYTES = 32 * 1024
_SIZE = struct.Struct(">i")
_WHAT = "the records of a batch are"


class Compression(IntEnum):
    """Compression of the records of a batch: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_FORMATS: dict[int, Format] = {
    Compression.GZIP: Format.GZIP,
    Compression.LZ4: Format.LZ4,
    Compression.ZSTD: Format.ZSTD,
}


def compress(data: bytes, compression: int) -> bytes:
    """Return `data` compressed. Raises ProtocolError for an unknown compression."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            packer = zlib.compressobj(wbits=_GZIP_WINDOW)
            return packer.compress(data) + packer.flush()
        case Compression.SNAPPY:
            return b"".join(_packed_snappy(data))
        case Compression.LZ4:
            return pack_lz4(data, block_linked=False, store_size=False)
        case Compression.ZSTD:
            return pack_zstd(data)
    raise ProtocolError(f"unknown compression {compression} of a record batch")


def packed_pieces(data: bytes, compression: int) -> Iterator[bytes]:
    """Yield `data` compressed in pieces, for writers that must not block.

    A piece is what became of PACKED_BYTES of it, or of less.
    """
    match compression:
        case Compression.NONE:
            return iter((data,))
        case Compression.SNAPPY:
            return _packed_snappy(data)
    return streams.packed_pieces(data, _format(compression), PACKED_BYTES)


def decompress(data: bytes, compression: int, bytes_max: int = PLAIN_BYTES_MAX) -> bytes:
    """Return `data` decompressed.

    Raises ProtocolError if `data` is damaged or would exceed `bytes_max` bytes.
    """
    match compression:
        case Compression.NONE:
            plain = data
        case Compression.SNAPPY:
            plain = b"".join(_snappy_blocks(data, bytes_max))
        case _:
            plain, complete = unpack(data, _format(compression), bytes_max + 1, _WHAT)
            if not complete and len(plain) <= bytes_max:
                raise _ends_early("compressed")
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
        case Compression.SNAPPY:
            return _snappy_blocks(data, PLAIN_BYTES_MAX)
    return streams.pieces(data, _format(compression), _WHAT)


def _format(compression: int) -> Format:
    form = _FORMATS.get(compression)
    if form is None:
        raise ProtocolError(f"unknown compression {compression} of a record batch")
    return form


def _too_large(bytes_max: int) -> ProtocolError:
    return ProtocolError(f"the records of a batch grow beyond {bytes_max} bytes")


def _ends_early(name: str) -> ProtocolError:
    return ProtocolError(f"the {name} data of a record batch ends too early")


def _packed_snappy(data: bytes) -> Iterator[bytes]:
    from cramjam import snappy

    yield _XERIAL_HEAD.pack(_XERIAL, 1, 1)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        yield _SIZE.pack(len(block)) + block


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
