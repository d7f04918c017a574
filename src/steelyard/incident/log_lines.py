"""Times in the lines of Java programs' logs."""

from __future__ import annotations

import calendar
import re

_TIME = re.compile(r"\[?(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[,.](\d{3}))?")


def at_of(line: str, utc_offset_ms: int = 0) -> int | None:
    """Return the time at the beginning of a line, in ms since the epoch; None if there is none.

    A time without milliseconds is the beginning of its second.
    `utc_offset_ms`: by how much the clock of the log's time zone is ahead of UTC.
    """
    match = _TIME.match(line)
    if match is None:
        return None
    *parts, milliseconds = (int(text or 0) for text in match.groups())
    return calendar.timegm((*parts, 0, 0, 0)) * 1000 + milliseconds - utc_offset_ms
