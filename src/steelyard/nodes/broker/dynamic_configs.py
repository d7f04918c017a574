"""Settings of brokers and groups that were changed at run time, on this broker's disk.

The table `configs` has a JSON object for each resource, in versions (`versioned`): a broker by its
node id, all brokers ("") or a group by its name; with the values that were set, by Kafka's names. A
resource without values is a deleted one. The levels of the cluster's features are one more
resource, without a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from steelyard.errors import ArgumentError, ProtocolError
from steelyard.nodes.broker.versioned import VersionedStore, check_version
from steelyard.settings import settings_of
from steelyard.store.tables import Table

CONFIGS_MAX = 10_000
"""Most resources, and most deleted ones that are remembered; their oldest are forgotten first."""

BROKER, GROUP = 4, 32
"""Types of resources. Source: ConfigResource.Type."""
FEATURES = -1
"""The levels of features, which are no resource of Kafka's."""

C = TypeVar("C")


class DynamicConfig(msgspec.Struct, frozen=True):
    """What was set of a resource."""

    kind: int
    resource: str
    version: int = 0
    settings: dict[str, str] = {}

    @property
    def name(self) -> str:
        return name_of(self.kind, self.resource)

    @property
    def is_deleted(self) -> bool:
        return not self.settings


def name_of(kind: int, resource: str) -> str:
    """Return the name of a resource's record."""
    return f"{kind} {resource}"


def check_config(config: DynamicConfig) -> None:
    """Raise ProtocolError if another broker could not have sent this."""
    if config.kind not in (BROKER, GROUP, FEATURES):
        raise ProtocolError(f"{config.kind} is no type of resource that is changed at run time")
    check_version(config.version, "settings")


class DynamicConfigs(VersionedStore[DynamicConfig]):
    """The settings on this disk. Methods that write raise StorageError."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, DynamicConfig)

    @property
    def limit(self) -> int:
        return CONFIGS_MAX

    def of(self, kind: int, resource: str) -> Mapping[str, str]:
        """Return what was set of a resource."""
        found = self.get(name_of(kind, resource))
        return {} if found is None else found.settings

    def of_broker(self, node_id: int) -> Mapping[str, str]:
        """Return what applies to a broker: its own settings, otherwise those of all brokers."""
        return {**self.of(BROKER, ""), **self.of(BROKER, str(node_id))}

    def resources(self, kind: int) -> list[str]:
        """Return the resources of a type that have settings, sorted."""
        return sorted(
            each.resource for each in self.all() if each.kind == kind and not each.is_deleted
        )

    def changed(self, kind: int, resource: str, settings: Mapping[str, str]) -> DynamicConfig:
        """Return the next version of a resource's settings; `merge` stores it."""
        version = self.next_version(name_of(kind, resource))
        return DynamicConfig(kind, resource, version, dict(sorted(settings.items())))

    def has_room(self, kind: int, resource: str) -> bool:
        """Return whether the resource can have settings, or has."""
        return self.get(name_of(kind, resource)) is not None or len(self.names()) < CONFIGS_MAX


def effective(config: C, settings: Mapping[str, str]) -> C:
    """Return a configuration with the values given by Kafka's names; wrong ones are left out."""
    values: dict[str, object] = {}
    for setting in settings_of(type(config)).values():
        name = "" if setting.kafka is None else setting.kafka.name
        if name in settings:
            try:
                values[setting.name] = setting.take(name, settings[name], is_text=True)
            except ArgumentError:
                continue  # another version of Steelyard wrote it
    return replace(config, **values) if values else config  # type: ignore[type-var]
