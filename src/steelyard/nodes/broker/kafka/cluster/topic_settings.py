"""The settings of a topic, in Kafka's names: what they are by default, and what values they may have.

Settings that mean something here: cleanup.policy (its `delete`), max.message.bytes, message.timestamp.type, retention.bytes,
retention.ms, segment.bytes, segment.ms. The others are kept and told, and change nothing.
Source: clients/common/config/TopicConfig.java, storage/internals/log/LogConfig.java.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from steelyard.config import UNLIMITED, KafkaConfig, StoreConfig
from steelyard.errors import ConfigError

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
"""Types of settings on the wire. Source: DescribeConfigsResponse.ConfigType."""

SEGMENT_BYTES_MIN = 1024 * 1024
"""Smallest segment that a client may ask for, or it could have the broker make a file per record (KIP-1030)."""

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class Setting(NamedTuple):
    """One setting: its type on the wire, its default, what it is for, its range or choices, the broker's name for it."""

    kind: int
    default: str
    text: str
    lowest: float = 0
    highest: float = _LONG_MAX
    choices: tuple[str, ...] = ()
    broker_name: str = ""


class TopicSettings(msgspec.Struct, frozen=True, gc=False):
    """The settings of one topic that mean something here. -1: without a limit."""

    max_message_bytes: int
    """Largest record batch."""
    log_append_time: bool
    """Records have the broker's time, not the producer's (message.timestamp.type)."""
    deletes: bool
    """What is past the retention is deleted (cleanup.policy has `delete`)."""
    retention_ms: int
    retention_bytes: int
    """Of one partition."""


def _number(kind: int, default: int, text: str, lowest: int, broker_name: str = "") -> Setting:
    highest = _INT_MAX if kind == INT else _LONG_MAX
    return Setting(kind, str(default), text, lowest, highest, broker_name=broker_name)


_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def topic_settings(config: KafkaConfig, store: StoreConfig) -> dict[str, Setting]:
    """All settings that a topic of this broker may have, by name."""
    retention_ms = store.retention_ms or UNLIMITED["log.retention.ms"]
    return {
        "cleanup.policy": Setting(
            LIST,
            "delete",
            "What becomes of old records; nothing is compacted here.",
            choices=("delete", "compact"),
            broker_name="log.cleanup.policy",
        ),
        "compression.gzip.level": _number(INT, -1, "Kept, without effect.", -1),
        "compression.lz4.level": _number(INT, 9, "Kept, without effect.", 1),
        "compression.type": Setting(
            STRING,
            "producer",
            "Batches are kept as their producer compressed them.",
            choices=_TYPES,
            broker_name="compression.type",
        ),
        "compression.zstd.level": _number(INT, 3, "Kept, without effect.", -131072),
        "delete.retention.ms": _number(LONG, 86_400_000, "Kept, without effect.", 0),
        "file.delete.delay.ms": _number(LONG, 60_000, "Kept, without effect.", 0),
        "flush.messages": _number(LONG, _LONG_MAX, "Kept; the broker's --flush decides.", 1),
        "flush.ms": _number(LONG, _LONG_MAX, "Kept; the broker's --flush decides.", 0),
        "follower.replication.throttled.replicas": Setting(LIST, "", "Kept, without effect."),
        "index.interval.bytes": _number(INT, 4096, "Kept, without effect.", 0),
        "leader.replication.throttled.replicas": Setting(LIST, "", "Kept, without effect."),
        "max.compaction.lag.ms": _number(LONG, _LONG_MAX, "Kept, without effect.", 1),
        "max.message.bytes": _number(
            INT, config.message_max_bytes, "Largest record batch.", 0, "message.max.bytes"
        ),
        "message.timestamp.after.max.ms": _number(LONG, 3_600_000, "Kept, without effect.", 0),
        "message.timestamp.before.max.ms": _number(LONG, _LONG_MAX, "Kept, without effect.", 0),
        "message.timestamp.type": Setting(
            STRING,
            "CreateTime",
            "Whose time a record has: the producer's or the broker's.",
            choices=("CreateTime", "LogAppendTime"),
            broker_name="log.message.timestamp.type",
        ),
        "min.cleanable.dirty.ratio": Setting(DOUBLE, "0.5", "Kept, without effect.", 0, 1),
        "min.compaction.lag.ms": _number(LONG, 0, "Kept, without effect.", 0),
        "min.insync.replicas": _number(INT, 1, "Kept; a partition has one replica.", 1),
        "preallocate": Setting(BOOLEAN, "false", "Kept, without effect."),
        "retention.bytes": _number(
            LONG,
            store.retention_bytes or UNLIMITED["log.retention.bytes"],
            "Most bytes of a partition, in whole segments.",
            -1,
            "log.retention.bytes",
        ),
        "retention.ms": _number(
            LONG, retention_ms, "How long records are kept.", -1, "log.retention.ms"
        ),
        "segment.bytes": _number(
            INT,
            store.segment_bytes,
            "Size at which a segment file is closed.",
            SEGMENT_BYTES_MIN,
            "log.segment.bytes",
        ),
        "segment.index.bytes": _number(INT, 10_485_760, "Kept, without effect.", 4),
        "segment.jitter.ms": _number(LONG, 0, "Kept, without effect.", 0),
        "segment.ms": _number(
            LONG,
            store.segment_ms or UNLIMITED["log.roll.ms"],
            "Age at which a segment file is closed.",
            1,
            "log.roll.ms",
        ),
        "unclean.leader.election.enable": Setting(BOOLEAN, "false", "Kept, without effect."),
    }


class TopicSettingsReader:
    """Reads the settings of topics, with this broker's defaults."""

    def __init__(self, config: KafkaConfig, store: StoreConfig) -> None:
        self.known = topic_settings(config, store)

    def of(self, given: Mapping[str, str]) -> TopicSettings:
        """What the settings given, and the defaults of the others, come to. They must have passed `check`."""

        def value(name: str) -> str:
            return given.get(name, self.known[name].default)

        return TopicSettings(
            int(value("max.message.bytes")),
            value("message.timestamp.type") == "LogAppendTime",
            "delete" in value("cleanup.policy").split(","),
            int(value("retention.ms")),
            int(value("retention.bytes")),
        )

    def check(self, name: str, value: str | None) -> None:
        """Raise ConfigError, in Kafka's words, where a topic cannot have this setting."""
        setting = self.known.get(name)
        if setting is None:
            raise ConfigError(f"Unknown topic config name: {name[:200]}")
        if value is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}")
        fault = _fault(setting, value)
        if fault:
            raise ConfigError(f"Invalid value {value[:200]} for configuration {name}: {fault}")

    def sound(self, given: Mapping[str, str]) -> dict[str, str]:
        """Those of the settings given that a topic may have."""
        return {
            name: value
            for name, value in given.items()
            if name in self.known and not _fault(self.known[name], value)
        }


def _fault(setting: Setting, value: str) -> str:
    if setting.kind == BOOLEAN:
        return "" if value in ("true", "false") else "Expected value to be either true or false"
    if setting.kind in (INT, LONG, DOUBLE):
        read: Callable[[str], float] = float if setting.kind == DOUBLE else int
        try:
            number = read(value)
        except ValueError:
            return "Not a number"
        if not setting.lowest <= number <= setting.highest:
            return f"Value must be between {setting.lowest} and {setting.highest}"
        return ""
    if not setting.choices:
        return ""
    parts = value.split(",") if setting.kind == LIST else [value]
    if all(part.strip() in setting.choices for part in parts):
        return ""
    return f"String must be one of: {', '.join(setting.choices)}"
