"""The settings of KIP-848 groups, by Kafka's names; a change applies at once.

A group that does not set one has the broker's. Source: group-coordinator/GroupConfig.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.config import KafkaConfig
from steelyard.errors import ConfigError
from steelyard.nodes.broker.dynamic_configs import GROUP, DynamicConfigs
from steelyard.nodes.broker.kafka.cluster.topic_settings import (
    KafkaSetting,
    broker_settings,
    value_fault,
)

SESSION_MS = "consumer.session.timeout.ms"
HEARTBEAT_MS = "consumer.heartbeat.interval.ms"
ASSIGNMENT_MS = "consumer.assignment.interval.ms"

_RANGES = {SESSION_MS: (1_000, 1_800_000), HEARTBEAT_MS: (100, 60_000), ASSIGNMENT_MS: (0, 15_000)}
_TEXTS = {
    SESSION_MS: "Silence after which a member is removed.",
    HEARTBEAT_MS: "Interval of the members' heartbeats.",
    ASSIGNMENT_MS: "Minimum time between two target assignments.",
}


class GroupSettings:
    """The settings of groups; implements `groups.kafka.consumer.times.GroupTimes`."""

    def __init__(self, config: KafkaConfig, configs: DynamicConfigs) -> None:
        brokers = {kafka.name: setting for kafka, setting in broker_settings(config).items()}
        self.known: Mapping[str, KafkaSetting] = {
            name: brokers[f"group.{name}"]._replace(
                text=_TEXTS[name], lowest=lowest, highest=highest
            )
            for name, (lowest, highest) in _RANGES.items()
        }
        self._configs = configs

    def of(self, group_id: str) -> Mapping[str, str]:
        """Return what was set of a group."""
        return self._configs.of(GROUP, group_id)

    def check(self, name: str, value: str) -> None:
        """Raise ConfigError, in Kafka's words, if a group cannot have this setting."""
        setting = self.known.get(name)
        if setting is None:
            raise ConfigError(f"Unknown group config name: {name[:200]}")
        fault = value_fault(setting, value)
        if fault:
            raise ConfigError(f"Invalid value {value[:200]} for configuration {name}: {fault}")

    def check_all(self, settings: Mapping[str, str]) -> None:
        """Raise ConfigError if a group cannot have these settings together."""
        if self._value(settings, SESSION_MS) <= self._value(settings, HEARTBEAT_MS):
            raise ConfigError(f"{SESSION_MS} must be greater than {HEARTBEAT_MS}")

    def _value(self, settings: Mapping[str, str], name: str) -> int:
        return int(settings.get(name, self.known[name].value))

    def session_timeout_ms(self, group_id: str) -> int:
        return self._value(self.of(group_id), SESSION_MS)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._value(self.of(group_id), HEARTBEAT_MS)

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._value(self.of(group_id), ASSIGNMENT_MS)
