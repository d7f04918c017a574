"""The settings of KIP-848 groups and share groups, by Kafka's names; a change applies at once.

A group that does not set one has the broker's, if there is one. Source:
group-coordinator/GroupConfig.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.config import KafkaConfig
from steelyard.errors import ConfigError
from steelyard.nodes.broker.dynamic_configs import GROUP, DynamicConfigs
from steelyard.nodes.broker.kafka.cluster.offset_reset import LATEST, strategy_fault
from steelyard.nodes.broker.kafka.cluster.topic_settings import (
    BOOLEAN,
    STRING,
    KafkaSetting,
    broker_settings,
    value_fault,
)

SESSION_MS = "consumer.session.timeout.ms"
HEARTBEAT_MS = "consumer.heartbeat.interval.ms"
ASSIGNMENT_MS = "consumer.assignment.interval.ms"

SHARE_SESSION_MS = "share.session.timeout.ms"
SHARE_HEARTBEAT_MS = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_MS = "share.assignment.interval.ms"
LOCK_MS = "share.record.lock.duration.ms"
DELIVERIES_MAX = "share.delivery.count.limit"
LOCKS_MAX = "share.partition.max.record.locks"
OFFSET_RESET = "share.auto.offset.reset"
ISOLATION = "share.isolation.level"
RENEWALS = "share.renew.acknowledge.enable"

READ_COMMITTED = "read_committed"

_RANGES = {
    SESSION_MS: (1_000, 1_800_000),
    HEARTBEAT_MS: (100, 60_000),
    ASSIGNMENT_MS: (0, 15_000),
    SHARE_SESSION_MS: (1_000, 1_800_000),
    SHARE_HEARTBEAT_MS: (100, 60_000),
    SHARE_ASSIGNMENT_MS: (0, 15_000),
    LOCK_MS: (1_000, 3_600_000),
    DELIVERIES_MAX: (2, 25),
    LOCKS_MAX: (100, 10_000),
}
_TEXTS = {
    SESSION_MS: "Silence after which a member is removed.",
    HEARTBEAT_MS: "Interval of the members' heartbeats.",
    ASSIGNMENT_MS: "Minimum time between two target assignments.",
    SHARE_SESSION_MS: "Silence after which a member is removed.",
    SHARE_HEARTBEAT_MS: "Interval of the members' heartbeats.",
    SHARE_ASSIGNMENT_MS: "Minimum time between two target assignments.",
    LOCK_MS: "Time for which a member acquires records.",
    DELIVERIES_MAX: "How often a record is delivered that nobody accepts.",
    LOCKS_MAX: "Maximum records of a partition in flight.",
}
_WITHOUT_DEFAULTS_OF_BROKERS = {
    OFFSET_RESET: KafkaSetting(
        STRING,
        LATEST,
        "Where a share group begins: earliest, latest, or by_duration: and how far back.",
    ),
    ISOLATION: KafkaSetting(
        STRING,
        "read_uncommitted",
        "Whether records of transactions that were aborted are delivered.",
        choices=("read_uncommitted", READ_COMMITTED),
    ),
    RENEWALS: KafkaSetting(
        BOOLEAN, "true", "Whether members may renew the time for which they have records."
    ),
}


class GroupSettings:
    """The settings of groups.

    Implements `groups.kafka.consumer.times.GroupTimes` and
    `groups.kafka.share.times.ShareGroupTimes`.
    """

    def __init__(self, config: KafkaConfig, configs: DynamicConfigs) -> None:
        brokers = {kafka.name: setting for kafka, setting in broker_settings(config).items()}
        self.known: Mapping[str, KafkaSetting] = {
            name: brokers[f"group.{name}"]._replace(
                text=_TEXTS[name], lowest=lowest, highest=highest
            )
            for name, (lowest, highest) in _RANGES.items()
        } | _WITHOUT_DEFAULTS_OF_BROKERS
        self._configs = configs

    def of(self, group_id: str) -> Mapping[str, str]:
        """Return what was set of a group."""
        return self._configs.of(GROUP, group_id)

    def check(self, name: str, value: str) -> None:
        """Raise ConfigError, in Kafka's words, if a group cannot have this setting."""
        setting = self.known.get(name)
        if setting is None:
            raise ConfigError(f"Unknown group config name: {name[:200]}")
        fault = strategy_fault(value) if name == OFFSET_RESET else value_fault(setting, value)
        if fault:
            raise ConfigError(f"Invalid value {value[:200]} for configuration {name}: {fault}")

    def check_all(self, settings: Mapping[str, str]) -> None:
        """Raise ConfigError if a group cannot have these settings together."""
        for session, heartbeat in (
            (SESSION_MS, HEARTBEAT_MS),
            (SHARE_SESSION_MS, SHARE_HEARTBEAT_MS),
        ):
            if self._value(settings, session) <= self._value(settings, heartbeat):
                raise ConfigError(f"{session} must be greater than {heartbeat}")

    def _value(self, settings: Mapping[str, str], name: str) -> int:
        return int(settings.get(name, self.known[name].value))

    def number(self, group_id: str, name: str) -> int:
        """Return a setting of a group that is a number."""
        return self._value(self.of(group_id), name)

    def text(self, group_id: str, name: str) -> str:
        """Return a setting of a group."""
        return self.of(group_id).get(name, self.known[name].value)

    def session_timeout_ms(self, group_id: str) -> int:
        return self.number(group_id, SESSION_MS)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self.number(group_id, HEARTBEAT_MS)

    def assignment_interval_ms(self, group_id: str) -> int:
        return self.number(group_id, ASSIGNMENT_MS)

    def share_session_timeout_ms(self, group_id: str) -> int:
        return self.number(group_id, SHARE_SESSION_MS)

    def share_heartbeat_interval_ms(self, group_id: str) -> int:
        return self.number(group_id, SHARE_HEARTBEAT_MS)

    def share_assignment_interval_ms(self, group_id: str) -> int:
        return self.number(group_id, SHARE_ASSIGNMENT_MS)
