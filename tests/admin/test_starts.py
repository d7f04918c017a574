"""What `--from` takes."""

from __future__ import annotations

import time

import pytest

from steelyard.admin.starts import At, End, Offset, Start, parse_start
from steelyard.errors import ConfigError

NOW = 1_800_000_000_000
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", End.EARLIEST),
        ("first", End.EARLIEST),
        ("latest", End.LATEST),
        ("last", End.LATEST),
        ("0", Offset(0)),
        (" 99999999999 ", Offset(99_999_999_999)),
        ("-90s", At(NOW - 90_000)),
        ("-1h", At(NOW - HOUR)),
        ("-1d12h", At(NOW - 36 * HOUR)),
        ("-2w", At(NOW - 14 * 24 * HOUR)),
        ("-9999w", At(0)),
        ("@1700000000000", At(1_700_000_000_000)),
        ("2026-11-23T08:00:00Z", At(1_795_420_800_000)),
        ("2026-11-23T09:00+01:00", At(1_795_420_800_000)),
        ("2026-11-23", At(int(time.mktime((2026, 11, 23, 0, 0, 0, 0, 0, -1))) * 1000)),
        ("1900-01-01T00:00Z", At(0)),
    ],
)
def test_forms(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    "text",
    ["", "now", "1h", "-1", "--1h", "-1y", "-h", "@", "@x", "@99999999999999999", "2026-13-01"],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="it must be one of: earliest, latest, a time ago"):
        parse_start(text, NOW)


def test_milliseconds_are_not_taken_for_an_offset() -> None:
    with pytest.raises(ConfigError, match=r"too large for an offset; .* write @1700000000000"):
        parse_start("1700000000000", NOW)
