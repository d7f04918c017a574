"""Bytes that members send beside their subscription: as Java writes them, and whatever else may come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.allocate.assignors.user_data import (
    MemberData,
    read_generation,
    read_sticky,
    write_generation,
    write_sticky,
)
from steelyard.types import TopicPartition

OWNED = [TopicPartition("orders", 0), TopicPartition("orders", 7), TopicPartition("é", 300)]
BYTES = bytes.fromhex(
    "00000002"  # topics
    "00066f7264657273" "00000002" "00000000" "00000007"
    "0002c3a9" "00000001" "0000012c"
    "00000005"  # generation
)  # fmt: skip

places = st.builds(
    TopicPartition, st.text(st.characters(codec="utf-8"), max_size=9), st.integers(0, 2**31 - 1)
)


def test_layout() -> None:
    assert write_sticky(OWNED, 5) == BYTES
    assert read_sticky(BYTES) == MemberData(OWNED, 5)


def test_version_0_has_no_generation() -> None:
    assert read_sticky(BYTES[:-4]) == MemberData(OWNED, -1)


def test_kafka_python_puts_the_version_before_it() -> None:
    """As version 3.0.12 encodes StickyAssignorUserData."""
    assert read_sticky(b"\0\1" + BYTES) == MemberData(OWNED, 5)
    assert read_sticky(b"\0\1" + bytes(4) + b"\0\0\0\5") == MemberData([], 5)
    assert read_sticky(b"\0\2" + BYTES) == MemberData()


def test_a_member_without_a_generation_sends_nothing() -> None:
    assert write_sticky([], -1) is None
    assert write_sticky([], 0) == bytes(8)


@given(assigned=st.lists(places, unique=True), generation=st.integers(0, 2**31 - 1))
def test_round_trip(assigned: list[TopicPartition], generation: int) -> None:
    data = write_sticky(assigned, generation)
    assert data is not None
    claim = read_sticky(data)
    assert (sorted(claim.owned), claim.generation) == (sorted(assigned), generation)


@pytest.mark.parametrize("size", range(len(BYTES) - 4))
def test_cut_anywhere_before_the_generation_it_says_nothing(size: int) -> None:
    assert read_sticky(BYTES[:size]) == MemberData()


@pytest.mark.parametrize("size", range(len(BYTES) - 4, len(BYTES)))
def test_cut_within_the_generation_it_is_version_0(size: int) -> None:
    assert read_sticky(BYTES[:size]) == MemberData(OWNED, -1)


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("ffffffff00000001"),  # -1 topics
        bytes.fromhex("00000001ffff00000000"),  # a name of -1 bytes
        bytes.fromhex("00000001000161ffffffff"),  # -1 partitions
        bytes.fromhex("000000010001617fffffff"),  # 2^31 - 1 partitions
        bytes.fromhex("00000001000180000000000000000001"),  # no UTF-8
        bytes.fromhex("7fffffff00016100000000"),
    ],
)
def test_nonsense_says_nothing(data: bytes) -> None:
    assert read_sticky(data) == MemberData()


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(data: bytes) -> None:
    claim = read_sticky(data)
    assert len(claim.owned) * 4 <= len(data)
    assert -(2**31) <= read_generation(data) < 2**31


def test_the_generation_alone() -> None:
    assert write_generation(OWNED, 7) == b"\0\0\0\7"
    assert read_generation(b"\0\0\0\7") == 7
    assert read_generation(b"\0\0\0\7more") == 7
    assert [read_generation(data) for data in (None, b"", b"\0\0\7")] == [-1, -1, -1]
