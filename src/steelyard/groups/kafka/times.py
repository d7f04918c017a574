"""The times of KIP-848 groups, which may differ from group to group and change at run time."""

from __future__ import annotations

from typing import Protocol

from steelyard.config import KafkaConfig


class GroupTimes(Protocol):
    """What applies to a group now, in ms."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Silence after which a member is removed."""

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval of the members' heartbeats."""

    def assignment_interval_ms(self, group_id: str) -> int:
        """Minimum time between two target assignments."""


class EqualTimes:
    """The broker's settings, for every group."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    def session_timeout_ms(self, group_id: str) -> int:
        return self._config.group_consumer_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._config.group_consumer_heartbeat_interval_ms

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._config.group_consumer_assignment_interval_ms
