from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.errors import ConfigError
from steelyard.wire.remoting.ids import (
    UniqueIds,
    born_after,
    host_address,
    host_bytes,
    is_unique_id,
    offset_message_id,
    parse_offset_message_id,
)

GOLDEN_IP = bytes.fromhex("FD000000000000000000000000000002")


def milliseconds(year: int, month: int, day: int = 1) -> int:
    return int(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)


def test_golden_offset_message_id() -> None:
    """The `msgId=` line under "message binary" of the golden file."""
    text = "7F00000100002A9F000000000000012C"
    assert offset_message_id(host_bytes("127.0.0.1:10911"), 300) == text
    assert parse_offset_message_id(text) == ("127.0.0.1:10911", 300)


@given(st.ip_addresses(), st.integers(0, 65535), st.integers(-(2**63), 2**63 - 1))
def test_offset_message_id_round_trip(ip: object, port: int, offset: int) -> None:
    address = f"{ip}:{port}" if "." in str(ip) else f"[{ip}]:{port}"
    text = offset_message_id(host_bytes(address), offset)
    parsed, parsed_offset = parse_offset_message_id(text)
    assert (host_bytes(parsed), parsed_offset) == (host_bytes(address), offset)
    assert parse_offset_message_id(text.lower()) == (parsed, offset)


@pytest.mark.parametrize("ip", [bytes([127, 0, 0, 1]), GOLDEN_IP])
@pytest.mark.parametrize("pid", [1, 4242, 0x8000, 0xFFFF])
def test_a_unique_id_is_told_from_an_offset_message_id(ip: bytes, pid: int) -> None:
    """Both have the same length."""
    unique = UniqueIds(ip, pid, 0).next(milliseconds(2026, 11, 5))
    assert is_unique_id(unique)
    assert not is_unique_id(offset_message_id(ip + (10911).to_bytes(4, "big"), 300))
    assert not is_unique_id("7F")


@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65535)
)
def test_host_round_trip(ip: bytes, port: int) -> None:
    host = ip + port.to_bytes(4, "big")
    assert host_bytes(host_address(host)) == host


@pytest.mark.parametrize(
    "text", ["", "7F", "7F00000100002A9F00000000000001", "x" * 32, " " * 32, "00" * 17]
)
def test_no_message_id(text: str) -> None:
    with pytest.raises(ConfigError, match="32 or 56 hex digits"):
        parse_offset_message_id(text)


@pytest.mark.parametrize(
    "address", ["", "localhost:1", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "1.2.3:4"]
)
def test_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="ip:port"):
        host_bytes(address)


def test_golden_unique_id() -> None:
    """The `uniqId` line of the golden file, made by a Java process in November 2026 UTC."""
    ids = UniqueIds(GOLDEN_IP, 0x146F, 0x30946E09)
    assert ids.next(milliseconds(2026, 11) + 0x6770F515) == (
        "FD000000000000000000000000000002146F30946E096770F5150000"
    )


def test_unique_ids_differ_and_the_counter_wraps() -> None:
    ids = UniqueIds(b"\x7f\0\0\1", 70_000, -1)
    made = [ids.next(milliseconds(2024, 2, 29)) for _ in range(65_537)]
    assert len(set(made[:-1])) == 65_536
    assert made[-1] == made[0]
    assert {len(text) for text in made} == {32}
    assert made[0].startswith("7F0000011170FFFFFFFF")


@given(st.datetimes(datetime(1970, 1, 1), datetime(2400, 1, 1), timezones=st.just(UTC)))
def test_the_time_in_an_id_counts_from_the_month(moment: datetime) -> None:
    now = int(moment.timestamp() * 1000)
    text = UniqueIds(b"\x7f\0\0\1", 1, 2).next(now)
    assert int(text[20:28], 16) == now - milliseconds(moment.year, moment.month)


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.integers(0, 25 * 86_400_000),
    st.integers(-14 * 3_600_000, 14 * 3_600_000),
)
def test_ids_tell_when_they_were_made(moment: datetime, age: int, zone: int) -> None:
    """Whatever the producer's time zone, and whether or not a month has begun since: not too late, that is, and too
    early by a month at most, where the month begins between the two time zones."""
    now = int(moment.timestamp() * 1000)
    text = UniqueIds(b"\x7f\0\0\1", 1, 2).next(now - age + zone)
    assert now - age - 33 * 86_400_000 <= born_after(text, now) <= now - age


@pytest.mark.parametrize("text", ["", "key", "7F" * 15, "7F" * 17, "x" * 32])
def test_keys_tell_no_time(text: str) -> None:
    assert born_after(text, 1_700_000_000_000) == 0


def test_ids_follow_the_time_into_the_next_month_and_back() -> None:
    ids = UniqueIds(b"\x7f\0\0\1", 1, 2)
    for now, since in [
        (milliseconds(2024, 3) - 1, 29 * 86_400_000 - 1),
        (milliseconds(2024, 3), 0),
        (milliseconds(2024, 3) - 1, 29 * 86_400_000 - 1),
    ]:
        assert int(ids.next(now)[20:28], 16) == since
