"""Where browsing of messages begins, and where it goes on. Pure.

`from` is `earliest`, `latest`, an offset, a time, or the cursor of an answer before. A cursor has
the next offset of each queue: `next:` and `queue=offset`, by commas, where the queue is its key
without the topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum

import msgspec

from steelyard.errors import ConfigError

CURSOR = "next:"
OFFSET_DIGITS_MAX = 11
"""Digits of the largest offset that can be asked for; more digits are a time in milliseconds."""

TIME_MAX = 2**53
_CURSOR_ROW = re.compile(r"([^,=]{1,300})=(\d{1,18})")


class Edge(Enum):
    """An end of a queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


class AtOffset(msgspec.Struct, frozen=True):
    """An offset, of each queue that is wanted."""

    offset: int


class AtTime(msgspec.Struct, frozen=True):
    """The first message stored at that time, in ms, or later."""

    at: int


class AtCursor(msgspec.Struct, frozen=True):
    """The next offset of each queue, by its key without the topic."""

    offsets: Mapping[str, int]

    def starts(self, topic: str, keys: Iterable[str]) -> dict[str, int]:
        """Return where each queue goes on, by key; one that is missing here, at its beginning."""
        return {key: self.offsets.get(key.removeprefix(f"{topic}/"), 0) for key in keys}


Beginning = Edge | AtOffset | AtTime | AtCursor


def beginning(text: str) -> Beginning:
    """Return where to begin. Raises ConfigError."""
    if text in ("earliest", "latest"):
        return Edge(text)
    if text.startswith(CURSOR):
        return AtCursor(_offsets(text))
    if text.isascii() and text.isdigit():
        value = int(text) if len(text) <= 16 else TIME_MAX
        if len(text) <= OFFSET_DIGITS_MAX:
            return AtOffset(value)
        return AtTime(min(value, TIME_MAX))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"from is {text[:80]!r}; write earliest, latest, an offset, a time such as"
            " 2026-01-31T12:00:00Z or in milliseconds since the epoch, or `next` of an answer"
        ) from None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    try:
        return AtTime(max(0, int(moment.timestamp() * 1000)))
    except (OverflowError, ValueError):
        return AtTime(TIME_MAX)  # at the end of the calendar, in another time zone


def _offsets(text: str) -> dict[str, int]:
    offsets: dict[str, int] = {}
    for row in text.removeprefix(CURSOR).split(","):
        found = _CURSOR_ROW.fullmatch(row)
        if found is None:
            raise ConfigError("from is no cursor; write `next` of an answer as it was")
        offsets[found[1]] = int(found[2])
    return offsets


def cursor(topic: str, offsets: Mapping[str, int]) -> str:
    """Return the cursor for these next offsets of a topic's queues, by their keys."""
    rows = (f"{key.removeprefix(f'{topic}/')}={offset}" for key, offset in offsets.items())
    return CURSOR + ",".join(rows)
