"""Compressed streams that both dialects know: zlib and gzip, LZ4 frames, Zstandard frames.

Decompression is bounded by the size of its output, because 2 KB may decompress to 60 MB. The
libraries for LZ4 and Zstandard are loaded with the first such stream, because most programs never
see one. Zstandard is in the standard library from Python 3.14 on (PEP 784); before that its
backport is used.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Any

from steelyard.errors import ProtocolError

PIECE_BYTES = 64 * 1024
"""Bytes that `pieces` decompresses at a time, some 50 microseconds of work."""
_INPUT_BYTES = 16 * 1024
_GZIP_WINDOW = 31
_ZSTD_WINDOW_LOG_MAX = 26
"""Limit of a frame's window: 64 MiB, the most that is ever decompressed.

The library allocates a buffer of this size.
"""


class Format(Enum):
    """Compression format; the value completes the sentence of an error."""

    ZLIB = "a zlib stream"
    GZIP = "a gzip stream"
    LZ4 = "an LZ4 frame"
    ZSTD = "a Zstandard frame"


def pack_zstd(data: bytes, level: int | None = None) -> bytes:
    return _zstd().compress(data, level)  # type: ignore[no-any-return]


def pack_lz4(data: bytes, **settings: bool) -> bytes:
    """`settings`: of `lz4.frame.compress`."""
    import lz4.frame

    return lz4.frame.compress(data, **settings)  # type: ignore[no-any-return]


def packed_pieces(data: bytes, form: Format, piece_bytes: int) -> Iterator[bytes]:
    """Yield `data` compressed in pieces, each what became of the next `piece_bytes`."""
    packer: Any
    match form:
        case Format.LZ4:
            import lz4.frame

            packer = lz4.frame.LZ4FrameCompressor(block_linked=False)
            yield packer.begin()
        case Format.ZSTD:
            packer = _zstd().ZstdCompressor()
        case _:
            window = _GZIP_WINDOW if form is Format.GZIP else zlib.MAX_WBITS
            packer = zlib.compressobj(wbits=window)
    for start in range(0, len(data), piece_bytes):
        yield packer.compress(data[start : start + piece_bytes])
    yield packer.flush()


def unpack(data: bytes, form: Format, bytes_max: int, what: str) -> tuple[bytes, bool]:
    """Decompress at most `bytes_max` bytes. Returns them and whether the stream ends there.

    Raises ProtocolError for damaged data: "`what` not an LZ4 frame: ...".
    """
    unpacker, errors = _unpacker(form)
    try:
        return unpacker.decompress(data, bytes_max), unpacker.eof
    except errors as error:
        raise _damaged(what, form, error) from None


def pieces(data: bytes, form: Format, what: str) -> Iterator[bytes]:
    """Decompress in pieces of at most PIECE_BYTES, up to where `data` ends.

    Raises as `unpack` does.
    """
    unpacker, errors = _unpacker(form)
    try:
        for start in range(0, len(data), _INPUT_BYTES):
            packed: bytes | None = data[start : start + _INPUT_BYTES]
            while packed is not None and not unpacker.eof:
                yield unpacker.decompress(packed, PIECE_BYTES)
                packed = _rest(unpacker)
    except errors as error:
        raise _damaged(what, form, error) from None


def _rest(unpacker: Any) -> bytes | None:
    """Return input to continue with, None if more is needed.

    zlib returns its unconsumed input, the others keep it.
    """
    if hasattr(unpacker, "needs_input"):
        return None if unpacker.needs_input else b""
    return unpacker.unconsumed_tail or None


def _damaged(what: str, form: Format, error: Exception) -> ProtocolError:
    return ProtocolError(f"{what} not {form.value}: {error}")


def _unpacker(form: Format) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a new decompressor and the errors that it raises.

    All have `decompress(data, bytes_max)` and `eof`.
    """
    match form:
        case Format.ZLIB:
            return zlib.decompressobj(), (zlib.error,)
        case Format.GZIP:
            return zlib.decompressobj(_GZIP_WINDOW), (zlib.error,)
        case Format.LZ4:
            import lz4.frame

            return lz4.frame.LZ4FrameDecompressor(), (RuntimeError, EOFError)
        case Format.ZSTD:
            zstd = _zstd()
            limit = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
            return zstd.ZstdDecompressor(options=limit), (zstd.ZstdError,)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
