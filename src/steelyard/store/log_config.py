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
    compacts: bool = False
    """Whether only the last entry of each key is kept (cleanup.policy has `compact`)."""
    min_cleanable_dirty_ratio: float = 0.5
    """Fraction of the bytes that were never compacted, above which compaction begins."""
    min_compaction_lag_ms: int = 0
    """Age of its newest entry, in ms, from which a segment may be compacted."""
    max_compaction_lag_ms: int = -1
    """Age of its oldest entry, in ms, from which a segment must be compacted. -1: never."""
    delete_retention_ms: int = 86_400_000
    """How long a compacted log keeps tombstones and markers of transactions, in ms."""


def usual(config: StoreConfig) -> LogConfig:
    """Return the settings of logs that have none of their own."""
    return LogConfig(
        config.segment_bytes,
        config.segment_ms or -1,
        config.retention_ms or -1,
        config.retention_bytes or -1,
    )
