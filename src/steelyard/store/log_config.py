"""The segment and retention settings of a log.

The names are those of Kafka's topic settings; RocketMQ messages are kept by the same rules.
Source: storage/internals/log/LogConfig.java.
"""

from __future__ import annotations

import msgspec

from steelyard.config import StoreConfig


class LogConfig(msgspec.Struct, frozen=True):
    """The settings of one log. Only whole segments are deleted, so somewhat more may be kept."""

    segment_bytes: int
    """Size beyond which a segment is closed; a larger entry gets a segment of its own."""
    segment_ms: int
    """Age of its first entry, in ms, from which a segment is closed at the next entry. -1: never.
    """
    retention_ms: int = -1
    """Age of its newest entry, in ms, from which a segment is deleted. -1: never."""
    retention_bytes: int = -1
    """The oldest segments are deleted as long as the others hold this many bytes. -1: never."""


def usual(config: StoreConfig) -> LogConfig:
    """Return the settings of logs that have none of their own."""
    return LogConfig(
        config.segment_bytes,
        config.segment_ms or -1,
        config.retention_ms or -1,
        config.retention_bytes or -1,
    )
