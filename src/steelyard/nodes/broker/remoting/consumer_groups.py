"""Settings of consumer groups: the table `groups`, with one JSON `SubscriptionGroupConfig` each.

A group that nobody has configured has RocketMQ's defaults (autoCreateSubscriptionGroup). Only what
an operator has set is stored: defaults cost nothing, and a peer that invents names fills no disk.
Source: broker/subscription/SubscriptionGroupManager.java.
"""

from __future__ import annotations

import msgspec

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.topics import check_group
from steelyard.store.tables import Table
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import DataVersion, SubscriptionGroupConfig

GROUPS_MAX = 100_000


class SubscriptionGroups:
    """The settings of all groups; see the module docstring."""

    def __init__(self, table: Table, now: int) -> None:
        self._table = table
        self._configs = {
            name: fastjson.read(SubscriptionGroupConfig, data) for name, data in table.items()
        }
        self.version = DataVersion(now, 0)

    def get(self, group: str) -> SubscriptionGroupConfig:
        """Return the group's settings, or the defaults; accepts any name."""
        return self._configs.get(group) or SubscriptionGroupConfig(group)

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Return a copy of the settings that operators have set."""
        return dict(self._configs)

    def check_config(self, config: SubscriptionGroupConfig) -> None:
        """Raise ProtocolError if a group cannot be configured like this."""
        check_group(config.group_name)
        if config.group_name not in self._configs and len(self._configs) >= GROUPS_MAX:
            raise ProtocolError(f"more than {GROUPS_MAX} groups")

    def put(self, config: SubscriptionGroupConfig, now: int) -> None:
        """Configure a group. Raises ProtocolError for an invalid name, StorageError."""
        self.check_config(config)
        group = config.group_name
        self._table.put(group, msgspec.json.encode(config))
        self._configs[group] = config
        self.version = DataVersion(now, self.version.counter + 1)

    def delete(self, group: str, now: int) -> None:
        """Reset a group to the defaults."""
        if group in self._configs:
            self._table.delete(group)
            del self._configs[group]
            self.version = DataVersion(now, self.version.counter + 1)

    def check(self) -> None:
        assert len(self._configs) <= GROUPS_MAX
        for group, config in self._configs.items():
            assert group == config.group_name
            assert self._table.get(group) is not None
