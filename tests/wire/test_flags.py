from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ProtocolError
from steelyard.wire.remoting.flags import (
    SysFlag,
    compress,
    decompress,
    java_string_key,
    tag_code,
)

KINDS = [
    SysFlag.COMPRESSED | 0,
    SysFlag.COMPRESSED | SysFlag.ZLIB,
    SysFlag.COMPRESSED | SysFlag.LZ4,
    SysFlag.COMPRESSED | SysFlag.ZSTD,
]


@given(st.binary(max_size=2000), st.sampled_from([*KINDS, 0, int(SysFlag.LZ4)]))
def test_round_trip(body: bytes, sys_flag: int) -> None:
    assert decompress(compress(body, sys_flag), sys_flag) == body


def test_without_the_flag_nothing_happens() -> None:
    assert compress(b"a" * 100, SysFlag.ZLIB) == b"a" * 100
    assert decompress(b"no zlib", SysFlag.ZLIB) == b"no zlib"


@pytest.mark.parametrize("sys_flag", KINDS)
def test_a_body_may_grow_to_the_limit_and_no_further(sys_flag: int) -> None:
    packed = compress(bytes(100_000), sys_flag)
    assert len(packed) < 2000
    assert decompress(packed, sys_flag, bytes_max=100_000) == bytes(100_000)
    with pytest.raises(ProtocolError, match="beyond 99999 bytes"):
        decompress(packed, sys_flag, bytes_max=99_999)


@pytest.mark.parametrize("sys_flag", KINDS)
def test_damaged_bodies_are_refused(sys_flag: int) -> None:
    packed = compress(bytes(range(256)) * 4, sys_flag)
    for size in range(len(packed)):
        with pytest.raises(ProtocolError):
            decompress(packed[:size], sys_flag)
    with pytest.raises(ProtocolError):
        decompress(b"no such thing", sys_flag)


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_unknown_compression_is_refused(kind: int) -> None:
    for change in (compress, decompress):
        with pytest.raises(ProtocolError, match="unknown compression"):
            change(b"x", SysFlag.COMPRESSED | kind)


def test_what_java_streams_write_is_read() -> None:
    """LZ4FrameOutputStream writes no content size; ZstdOutputStream neither; both may write many blocks."""
    body = bytes(range(256)) * 1000
    packer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    frame = packer.begin() + packer.compress(body) + packer.flush()
    assert decompress(frame, SysFlag.COMPRESSED | SysFlag.LZ4) == body
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    frame = stream.compress(body) + stream.flush()
    assert decompress(frame, SysFlag.COMPRESSED | SysFlag.ZSTD) == body
    assert decompress(zlib.compress(body, 9), SysFlag.COMPRESSED) == body


def test_a_zstd_window_of_gigabytes_is_refused() -> None:
    """Magic, a frame header that claims a window of 2 GiB, one raw block of one byte."""
    frame = bytes.fromhex("28B52FFD00A809000041")
    with pytest.raises(ProtocolError, match="Zstandard"):
        decompress(frame, SysFlag.COMPRESSED | SysFlag.ZSTD)


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("TagA", 2598919),  # golden-5.3.3: codeSet of HeartbeatData
        ("TagB", 2598920),
        ("a", 97),
        ("polygenelubricants", -(2**31)),
        ("€", 0x20AC),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_tag_code_is_javas_hash(tag: str, code: int) -> None:
    assert tag_code(tag) == code


def test_java_orders_by_utf16_units() -> None:
    """U+FF5E sorts after U+1F600 in Java, for that one begins with the surrogate D83D."""
    names = ["\uff5e", "\U0001f600", "b", "a", "ab"]
    assert sorted(names, key=java_string_key) == ["a", "ab", "b", "\U0001f600", "\uff5e"]
