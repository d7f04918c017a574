"""The settings of groups whose coordinator assigns, by Kafka's names; a change applies at once.

These are KIP-848, share and streams groups. A group that does not set one has the broker's, if
there is one. Source: group-coordinator/GroupConfig.java.
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
    invalid_value,
    read_value,
)

KINDS = CONSUMER, SHARE, STREAMS = "consumer", "share", "streams"
"""The kinds of groups with settings, with which the names of these begin."""

SESSION_MS, HEARTBEAT_MS = "session.timeout.ms", "heartbeat.interval.ms"
ASSIGNMENT_MS = "assignment.interval.ms"
"""Settings of each kind, after the name of the kind."""

LOCK_MS = f"{SHARE}.record.lock.duration.ms"
DELIVERIES_MAX = f"{SHARE}.delivery.count.limit"
LOCKS_MAX = f"{SHARE}.partition.max.record.locks"
OFFSET_RESET = f"{SHARE}.auto.offset.reset"
ISOLATION = f"{SHARE}.isolation.level"
RENEWALS = f"{SHARE}.renew.acknowledge.enable"
INITIAL_DELAY_MS = f"{STREAMS}.initial.rebalance.delay.ms"
STANDBY_REPLICAS = f"{STREAMS}.num.standby.replicas"

READ_COMMITTED = "read_committed"

_OF_EACH = {SESSION_MS: (1_000, 1_800_000), HEARTBEAT_MS: (100, 60_000), ASSIGNMENT_MS: (0, 15_000)}
_RANGES = {
    **{f"{kind}.{name}": limits for kind in KINDS for name, limits in _OF_EACH.items()},
    LOCK_MS: (1_000, 3_600_000),
    DELIVERIES_MAX: (2, 25),
    LOCKS_MAX: (100, 10_000),
    INITIAL_DELAY_MS: (0, 2**31 - 1),
    STANDBY_REPLICAS: (0, 10),
}
_TEXTS = {
    SESSION_MS: "Silence after which a member is removed.",
    HEARTBEAT_MS: "Interval of the members' heartbeats.",
    ASSIGNMENT_MS: "Minimum time between two target assignments.",
    LOCK_MS: "How long a member may hold the records that it has acquired.",
    DELIVERIES_MAX: "Maximum number of times a record is delivered that nobody accepts.",
    LOCKS_MAX: "Maximum records of a partition in flight.",
    INITIAL_DELAY_MS: "Time that the first rebalance of an empty group waits for further members.",
    STANDBY_REPLICAS: "Standbys of each task with state.",
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
    """The settings of groups. `consumer`, `share`, `streams`: what applies to groups of a kind."""

    def __init__(self, config: KafkaConfig, configs: DynamicConfigs) -> None:
        brokers = {kafka.name: setting for kafka, setting in broker_settings(config).items()}
        self.known: Mapping[str, KafkaSetting] = {
            name: brokers[f"group.{name}"]._replace(
                text=_TEXTS.get(name) or _TEXTS[name.partition(".")[2]],
                lowest=lowest,
                highest=highest,
            )
            for name, (lowest, highest) in _RANGES.items()
        } | _WITHOUT_DEFAULTS_OF_BROKERS
        self._configs = configs
        self.consumer = KindSettings(self, CONSUMER)
        self.share = KindSettings(self, SHARE)
        self.streams = KindSettings(self, STREAMS)

    def of(self, group_id: str) -> Mapping[str, str]:
        """Return what was set of a group."""
        return self._configs.of(GROUP, group_id)

    def read(self, name: str, value: str) -> str:
        """Return a setting as it is stored.

        Raises ConfigError, in Kafka's words, if a group cannot have it.
        """
        setting = self.known.get(name)
        if setting is None:
            raise ConfigError(f"Unknown group config name: {name[:200]}")
        if name == OFFSET_RESET and (fault := strategy_fault(value)):
            raise invalid_value(name, value, fault)
        return read_value(name, setting, value)

    def check_all(self, settings: Mapping[str, str]) -> None:
        """Raise ConfigError if a group cannot have these settings together."""
        for kind in KINDS:
            session, heartbeat = f"{kind}.{SESSION_MS}", f"{kind}.{HEARTBEAT_MS}"
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


class KindSettings:
    """What applies to groups of one kind; a `groups.kafka.times.StreamsGroupSettings`."""

    def __init__(self, settings: GroupSettings, kind: str) -> None:
        self._settings = settings
        self._kind = kind

    def session_timeout_ms(self, group_id: str) -> int:
        return self._settings.number(group_id, f"{self._kind}.{SESSION_MS}")

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._settings.number(group_id, f"{self._kind}.{HEARTBEAT_MS}")

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._settings.number(group_id, f"{self._kind}.{ASSIGNMENT_MS}")

    def initial_delay_ms(self, group_id: str) -> int:
        return self._settings.number(group_id, INITIAL_DELAY_MS)

    def standby_replicas(self, group_id: str) -> int:
        return self._settings.number(group_id, STANDBY_REPLICAS)
