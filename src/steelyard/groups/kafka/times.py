"""The times of groups in which the coordinator assigns: KIP-848, share and streams groups.

They may differ from group to group and change at run time.
"""

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
    """The broker's settings for KIP-848 groups, for every group."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    def session_timeout_ms(self, group_id: str) -> int:
        return self._config.group_consumer_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._config.group_consumer_heartbeat_interval_ms

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._config.group_consumer_assignment_interval_ms


class StreamsGroupSettings(GroupTimes, Protocol):
    """What applies to a streams group now."""

    def initial_delay_ms(self, group_id: str) -> int:
        """Time that the first target of a group without members waits for more of them."""

    def standby_replicas(self, group_id: str) -> int:
        """Number of standbys of each task with state."""


class EqualStreamsSettings:
    """The broker's settings for streams groups, for every group."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    def session_timeout_ms(self, group_id: str) -> int:
        return self._config.group_streams_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._config.group_streams_heartbeat_interval_ms

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._config.group_streams_assignment_interval_ms

    def initial_delay_ms(self, group_id: str) -> int:
        return self._config.group_streams_initial_rebalance_delay_ms

    def standby_replicas(self, group_id: str) -> int:
        return self._config.group_streams_num_standby_replicas
