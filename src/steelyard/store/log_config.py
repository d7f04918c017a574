"""How a log is cut into segments, and how much of it is kept.

The names are Kafka's, whose topics have each of these as a setting; RocketMQ's messages are kept by the same rules.
Source: storage/internals/log/LogConfig.java.
"""

from __future__ import annotations

import msgspec

from steelyard.config import StoreConfig


class LogConfig(msgspec.Struct, frozen=True):
    """The settings of one log. Segments are deleted whole, so a little more is kept than the retention says."""

    segment_bytes: int
    """A segment that would grow beyond this is closed and the next one begun; a larger entry gets a segment of its own."""
    segment_ms: int
    """A segment whose first entry is older than this, ms, is closed when the next entry comes. -1: never."""
    retention_ms: int = -1
    """A segment whose newest entry is older than this, ms, is deleted. -1: never."""
    retention_bytes: int = -1
    """The oldest segments are deleted while the others hold so many bytes. -1: never."""


def usual(config: StoreConfig) -> LogConfig:
    """The settings of logs that have none of their own."""
    return LogConfig(
        config.segment_bytes,
        config.segment_ms or -1,
        config.retention_ms or -1,
        config.retention_bytes or -1,
    )
