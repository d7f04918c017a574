"""Where a share group begins with a partition: share.auto.offset.reset.

Source: group-coordinator/ShareGroupAutoOffsetResetStrategy.java; KIP-932, KIP-1106 (by_duration).
"""

from __future__ import annotations

import re

LATEST, EARLIEST = "latest", "earliest"
BY_DURATION = "by_duration:"

_DURATION = re.compile(
    r"P(?=\d|T\d)(?:(\d{1,9})D)?"
    r"(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{0,9}))?S)?)?",
    re.IGNORECASE,
)


def age_ms(strategy: str) -> int | None:
    """Return how far back a strategy by_duration begins, in ms; None for another strategy."""
    if not strategy.startswith(BY_DURATION):
        return None
    found = _DURATION.fullmatch(strategy.removeprefix(BY_DURATION))
    if found is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    millis = int((found.group(5) or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + millis


def strategy_fault(strategy: str) -> str:
    """Return what is wrong with a strategy, in Kafka's words; empty if nothing is."""
    if strategy in (LATEST, EARLIEST) or age_ms(strategy) is not None:
        return ""
    return (
        "The value must be either 'earliest', 'latest' or of the format"
        " 'by_duration:<PnDTnHnMn.nS>'."
    )
