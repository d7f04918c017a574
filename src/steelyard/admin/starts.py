"""`--from`: where a group begins in queues or partitions without a committed offset."""

from __future__ import annotations

import re
from datetime import datetime
from enum import Enum

import msgspec

from steelyard.errors import ConfigError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""Seconds per unit of a duration."""

OFFSET_DIGITS_MAX = 11
"""Maximum digits of an offset; a longer number would be a time in milliseconds."""

_DURATION = re.compile(r"(?:\d+[smhdw])+")
_PART = re.compile(r"(\d+)([smhdw])")

METAVAR = "earliest|latest|-1h|TIME|OFFSET"

FORMS = (
    "earliest, latest, a time ago such as -90s, -1h or -1d12h, an ISO time such as"
    " 2026-11-23T08:00 (local time, unless it"
    " has a zone), @MILLISECONDS since 1970, or an OFFSET"
)


class End(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class At(msgspec.Struct, frozen=True):
    """The first message at this time, in ms since the epoch, or later."""

    timestamp: int


class Offset(msgspec.Struct, frozen=True):
    """This offset of each queue, or the nearest one that it has."""

    offset: int


Start = End | At | Offset

_ENDS = {
    "earliest": End.EARLIEST,
    "first": End.EARLIEST,
    "latest": End.LATEST,
    "last": End.LATEST,
}


def parse_start(text: str, now_ms: int) -> Start:
    """Parse the value of `--from`. Raises ConfigError."""
    text = text.strip()
    if text in _ENDS:
        return _ENDS[text]
    if text.startswith("-") and _DURATION.fullmatch(text[1:]):
        return At(max(0, now_ms - 1000 * seconds(text[1:])))
    if text.isascii() and text.isdigit():
        if len(text) > OFFSET_DIGITS_MAX:
            raise ConfigError(
                f"--from {text} is too large for an offset; for milliseconds since 1970 write"
                f" @{text}"
            )
        return Offset(int(text))
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit() and len(text) < 16:
        return At(int(text[1:]))
    try:
        return At(max(0, int(datetime.fromisoformat(text).timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        raise ConfigError(f"--from is {text!r}; it must be one of: {FORMS}") from None


def seconds(duration: str) -> int:
    """Parse a duration such as `1h` or `1d12h`. Raises ConfigError."""
    if _DURATION.fullmatch(duration) is None:
        raise ConfigError(f"{duration!r} is not a duration; write 90s, 10m, 2h, 1d or 1d12h")
    return sum(int(number) * SECONDS[unit] for number, unit in _PART.findall(duration))
