"""The settings of a topic, by Kafka's names: their defaults and permitted values.

These have an effect here: cleanup.policy, delete.retention.ms, max.compaction.lag.ms,
max.message.bytes, message.timestamp.type, min.cleanable.dirty.ratio, min.compaction.lag.ms,
retention.bytes, retention.ms, segment.bytes, segment.ms. The others are only stored and returned.
Source: clients/common/config/TopicConfig.java, storage/internals/log/LogConfig.java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from steelyard.config import Kafka, KafkaConfig, StoreConfig
from steelyard.errors import ConfigError
from steelyard.nodes.broker.kafka.cluster.setting_texts import SETTING_TEXTS
from steelyard.settings import Setting, settings_of
from steelyard.wire.kafka.messages.configs import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    DescribeConfigsSynonym,
)

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = range(1, 8)
"""Types of settings on the wire. Source: DescribeConfigsResponse.ConfigType."""

SEGMENT_BYTES_MIN = 1024 * 1024
"""Smallest segment that a client may ask for; without it, one file per record (KIP-1030)."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
_NUMBERS = {
    INT: _INTEGER,
    LONG: _INTEGER,
    DOUBLE: re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}
"""How numbers may be written."""

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class KafkaSetting(NamedTuple):
    """One setting: its type on the wire, its value, its meaning, its range or choices."""

    kind: int
    value: str
    """Of a topic's setting: the value for topics that do not set it."""
    text: str = ""
    lowest: float = 0
    highest: float = _LONG_MAX
    choices: tuple[str, ...] = ()
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    """The broker's settings for it, each with its value and source; the first one counts."""

    @property
    def source(self) -> int:
        """Return where the value comes from."""
        return self.synonyms[0].source if self.synonyms else DEFAULT_CONFIG


class TopicSettings(msgspec.Struct, frozen=True, gc=False):
    """The settings of one topic that the Kafka listener applies. -1: no limit."""

    max_message_bytes: int
    """Largest record batch."""
    log_append_time: bool
    """Whether records get the broker's time, not the producer's (message.timestamp.type)."""
    deletes: bool
    """Whether records past the retention are deleted (cleanup.policy has `delete`)."""
    compacts: bool
    """Whether only the last record of each key is kept (cleanup.policy has `compact`)."""
    retention_ms: int
    retention_bytes: int
    """Limit for one partition."""


def named(
    kind: int,
    name: str,
    value: str,
    text: str = "",
    choices: tuple[str, ...] = (),
    lowest: float = 0,
    highest: float = _LONG_MAX,
) -> KafkaSetting:
    """Return a setting that has this name among the broker's, where it cannot be changed."""
    synonyms = (DescribeConfigsSynonym(name, value, DEFAULT_CONFIG),)
    return KafkaSetting(kind, value, text, lowest, highest, choices, synonyms)


def broker_settings(*configs: KafkaConfig | StoreConfig) -> dict[Kafka, KafkaSetting]:
    """Return the settings in these configurations that Kafka's brokers have as well."""
    return {
        each.kafka: _of_broker(each, each.kafka, config)
        for config in configs
        for each in settings_of(type(config)).values()
        if each.kafka is not None
    }


def changed_setting(
    setting: KafkaSetting, own: Mapping[str, str], of_all: Mapping[str, str]
) -> KafkaSetting:
    """Return a broker's setting, or a topic's default, with what was changed at run time.

    `own`, `of_all`: the values set of this broker and of all brokers, by the broker's names.
    """
    name = setting.synonyms[-1].name if setting.synonyms else ""
    changes = tuple(
        DescribeConfigsSynonym(name, values[name], source)
        for values, source in (
            (own, DYNAMIC_BROKER_CONFIG),
            (of_all, DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        if name in values
    )
    if not changes:
        return setting
    return setting._replace(value=changes[0].value or "", synonyms=(*changes, *setting.synonyms))


def _of_broker(setting: Setting, kafka: Kafka, config: object) -> KafkaSetting:
    is_bool = isinstance(setting.default, bool)
    kind = BOOLEAN if is_bool else INT if setting.highest <= _INT_MAX else LONG

    def text(value: object) -> str:
        return str(value).lower() if is_bool else str(value or kafka.unlimited)

    value, default = text(setting.of(config)), text(setting.default)
    synonyms = [DescribeConfigsSynonym(kafka.name, default, DEFAULT_CONFIG)]
    if value != default:
        synonyms.insert(0, DescribeConfigsSynonym(kafka.name, value, STATIC_BROKER_CONFIG))
    lowest = min(kafka.unlimited, 1)
    meaning = kafka.text or SETTING_TEXTS[kafka.name]
    return KafkaSetting(kind, value, meaning, lowest, setting.highest, synonyms=tuple(synonyms))


def _number(
    kind: int, default: int, lowest: int, text: str = "Stored, without effect."
) -> KafkaSetting:
    return KafkaSetting(kind, str(default), text, lowest, _INT_MAX if kind == INT else _LONG_MAX)


_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_OF_TOPICS = {
    "cleanup.policy": named(
        LIST,
        "log.cleanup.policy",
        "delete",
        "What happens to old records: delete, compact, or both.",
        ("delete", "compact"),
    ),
    "compression.gzip.level": _number(INT, -1, -1),
    "compression.lz4.level": _number(INT, 9, 1),
    "compression.type": named(
        STRING,
        "compression.type",
        "producer",
        "Batches are stored as compressed by their producer.",
        _TYPES,
    ),
    "compression.zstd.level": _number(INT, 3, -131072),
    "delete.retention.ms": named(
        LONG,
        "log.cleaner.delete.retention.ms",
        "86400000",
        "How long compaction keeps tombstones and markers of transactions.",
    ),
    "file.delete.delay.ms": _number(LONG, 60_000, 0),
    "flush.messages": _number(LONG, _LONG_MAX, 1, "Stored; the broker's --flush decides."),
    "flush.ms": _number(LONG, _LONG_MAX, 0, "Stored; the broker's --flush decides."),
    "follower.replication.throttled.replicas": KafkaSetting(LIST, "", "Stored, without effect."),
    "index.interval.bytes": _number(INT, 4096, 0),
    "leader.replication.throttled.replicas": KafkaSetting(LIST, "", "Stored, without effect."),
    "max.compaction.lag.ms": named(
        LONG,
        "log.cleaner.max.compaction.lag.ms",
        str(_LONG_MAX),
        "Age of its first record at which a segment is compacted.",
        lowest=1,
    ),
    "message.timestamp.after.max.ms": _number(LONG, 3_600_000, 0),
    "message.timestamp.before.max.ms": _number(LONG, _LONG_MAX, 0),
    "message.timestamp.type": named(
        STRING,
        "log.message.timestamp.type",
        "CreateTime",
        "Whose timestamp a record has: the producer's or the broker's.",
        ("CreateTime", "LogAppendTime"),
    ),
    "min.cleanable.dirty.ratio": named(
        DOUBLE,
        "log.cleaner.min.cleanable.ratio",
        "0.5",
        "Fraction of never compacted bytes above which a partition is compacted.",
        highest=1,
    ),
    "min.compaction.lag.ms": named(
        LONG,
        "log.cleaner.min.compaction.lag.ms",
        "0",
        "Age of its last record below which a segment is not compacted.",
    ),
    "min.insync.replicas": _number(INT, 1, 1, "Stored; a partition has one replica."),
    "preallocate": KafkaSetting(BOOLEAN, "false", "Stored, without effect."),
    "segment.index.bytes": _number(INT, 10_485_760, 4),
    "segment.jitter.ms": _number(LONG, 0, 0),
    "unclean.leader.election.enable": KafkaSetting(BOOLEAN, "false", "Stored, without effect."),
}
"""Settings of topics that are not configurable for the broker here."""


def topic_settings(config: KafkaConfig, store: StoreConfig) -> dict[str, KafkaSetting]:
    """Return all settings that a topic of this broker may have, by name."""
    found = dict(_OF_TOPICS)
    for kafka, setting in broker_settings(config, store).items():
        if kafka.topic:
            found[kafka.topic] = setting
    found["segment.bytes"] = found["segment.bytes"]._replace(lowest=SEGMENT_BYTES_MIN)
    return found


class TopicSettingsReader:
    """Reads the settings of topics, with this broker's defaults."""

    def __init__(self, config: KafkaConfig, store: StoreConfig) -> None:
        self.known = self._static = topic_settings(config, store)

    def renew(self, own: Mapping[str, str], of_all: Mapping[str, str]) -> None:
        """Take the broker's settings that were changed at run time: its own, and all brokers'."""
        self.known = {
            name: changed_setting(setting, own, of_all) for name, setting in self._static.items()
        }

    def of(self, given: Mapping[str, str]) -> TopicSettings:
        """Return the effective settings: those given, as `read` returned them, and the defaults."""

        def value(name: str) -> str:
            return given.get(name, self.known[name].value)

        cleanup = [each.strip() for each in value("cleanup.policy").split(",")]
        return TopicSettings(
            int(value("max.message.bytes")),
            value("message.timestamp.type") == "LogAppendTime",
            "delete" in cleanup,
            "compact" in cleanup,
            int(value("retention.ms")),
            int(value("retention.bytes")),
        )

    def read(self, name: str, value: str | None) -> str:
        """Return a setting as it is stored.

        Raises ConfigError, in Kafka's words, if a topic cannot have it.
        """
        setting = self.known.get(name)
        if setting is None:
            raise ConfigError(f"Unknown topic config name: {name[:200]}")
        if value is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}")
        return read_value(name, setting, value)

    def check_all(self, settings: Mapping[str, str]) -> None:
        """Raise ConfigError, in Kafka's words, if a topic cannot have these settings together.

        Source: LogConfig.validateValues.
        """
        least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
        low, high = (settings.get(name, self.known[name].value) for name in (least, most))
        if int(low) > int(high):
            raise ConfigError(f"conflict topic config setting {least} ({low}) > {most} ({high})")

    def sound(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the given settings that a topic may have."""
        found = {}
        for name, value in given.items():
            with suppress(ConfigError):
                found[name] = self.read(name, value)
        return found


def read_value(name: str, setting: KafkaSetting, value: str) -> str:
    """Return a setting's value as it is stored: without blanks around it, booleans in lower case.

    Raises ConfigError, in Kafka's words. Source: ConfigDef.parseType.
    """
    kept = value.strip()
    if setting.kind == BOOLEAN:
        kept = kept.lower()
    fault = _value_fault(setting, kept)
    if fault:
        raise invalid_value(name, value, fault)
    return kept


def invalid_value(name: str, value: str, fault: str) -> ConfigError:
    """Return the error for a setting that cannot have this value."""
    return ConfigError(f"Invalid value {value[:200]} for configuration {name}: {fault}")


def _value_fault(setting: KafkaSetting, value: str) -> str:
    """Return what is wrong with a setting's value, in Kafka's words; empty if nothing is."""
    if setting.kind == BOOLEAN:
        return "" if value in ("true", "false") else "Expected value to be either true or false"
    if setting.kind in (INT, LONG, DOUBLE):
        if _NUMBERS[setting.kind].fullmatch(value) is None:
            return "Not a number"
        number = float(value) if setting.kind == DOUBLE else int(value)
        if not setting.lowest <= number <= setting.highest:
            return f"Value must be between {setting.lowest} and {setting.highest}"
        return ""
    if not setting.choices:
        return ""
    parts = value.split(",") if setting.kind == LIST else [value]
    if setting.kind == LIST and not value.strip():
        return ""  # an empty list: cleanup.policy keeps everything
    if all(part.strip() in setting.choices for part in parts):
        return ""
    return f"String must be one of: {', '.join(setting.choices)}"
