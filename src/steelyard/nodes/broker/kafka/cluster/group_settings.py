"""The settings of KIP-848 and streams groups, by Kafka's names; a change applies at once.

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

CONSUMER, STREAMS = "consumer", "streams"
"""The kinds of groups with settings, as their names begin."""

SESSION_MS, HEARTBEAT_MS = "session.timeout.ms", "heartbeat.interval.ms"
ASSIGNMENT_MS = "assignment.interval.ms"
INITIAL_DELAY_MS = f"{STREAMS}.initial.rebalance.delay.ms"
STANDBY_REPLICAS = f"{STREAMS}.num.standby.replicas"

_OF_BOTH = {SESSION_MS: (1_000, 1_800_000), HEARTBEAT_MS: (100, 60_000), ASSIGNMENT_MS: (0, 15_000)}
_RANGES = {
    **{
        f"{kind}.{name}": limits
        for kind in (CONSUMER, STREAMS)
        for name, limits in _OF_BOTH.items()
    },
    INITIAL_DELAY_MS: (0, 2**31 - 1),
    STANDBY_REPLICAS: (0, 10),
}
_TEXTS = {
    SESSION_MS: "Silence after which a member is removed.",
    HEARTBEAT_MS: "Interval of the members' heartbeats.",
    ASSIGNMENT_MS: "Minimum time between two target assignments.",
    INITIAL_DELAY_MS: "Time that the first rebalance of an empty group waits for further members.",
    STANDBY_REPLICAS: "Standbys of each task with state.",
}


class GroupSettings:
    """The settings of groups. `consumer`, `streams`: what applies to groups of these kinds."""

    def __init__(self, config: KafkaConfig, configs: DynamicConfigs) -> None:
        brokers = {kafka.name: setting for kafka, setting in broker_settings(config).items()}
        self.known: Mapping[str, KafkaSetting] = {
            name: brokers[f"group.{name}"]._replace(
                text=_TEXTS.get(name) or _TEXTS[name.partition(".")[2]],
                lowest=lowest,
                highest=highest,
            )
            for name, (lowest, highest) in _RANGES.items()
        }
        self._configs = configs
        self.consumer = KindSettings(self, CONSUMER)
        self.streams = KindSettings(self, STREAMS)

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
        for kind in (CONSUMER, STREAMS):
            session, heartbeat = f"{kind}.{SESSION_MS}", f"{kind}.{HEARTBEAT_MS}"
            if self.value(settings, session) <= self.value(settings, heartbeat):
                raise ConfigError(f"{session} must be greater than {heartbeat}")

    def value(self, settings: Mapping[str, str], name: str) -> int:
        """Return a setting: what was set, or the broker's."""
        return int(settings.get(name, self.known[name].value))


class KindSettings:
    """What applies to groups of one kind; a `groups.kafka.times.StreamsGroupSettings`."""

    def __init__(self, settings: GroupSettings, kind: str) -> None:
        self._settings = settings
        self._kind = kind

    def _value(self, group_id: str, name: str) -> int:
        return self._settings.value(self._settings.of(group_id), name)

    def session_timeout_ms(self, group_id: str) -> int:
        return self._value(group_id, f"{self._kind}.{SESSION_MS}")

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._value(group_id, f"{self._kind}.{HEARTBEAT_MS}")

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._value(group_id, f"{self._kind}.{ASSIGNMENT_MS}")

    def initial_delay_ms(self, group_id: str) -> int:
        return self._value(group_id, INITIAL_DELAY_MS)

    def standby_replicas(self, group_id: str) -> int:
        return self._value(group_id, STANDBY_REPLICAS)
