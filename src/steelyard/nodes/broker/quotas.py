"""The quotas of a cluster's clients, on this broker's disk.

The table `quotas` has a JSON object for each entity, in versions (`versioned`): a user, a client
id, or a client id of a user, each by its name, or as the default of those without an entity of
their own (None). An entity without values is a deleted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from steelyard.errors import ProtocolError
from steelyard.nodes.broker.versioned import VersionedStore, check_version
from steelyard.store.tables import Table

QUOTAS_MAX = 10_000
"""Most entities, and most deleted ones that are remembered; their oldest are forgotten first."""

CLIENT_ID, USER = "client-id", "user"

PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
QUOTA_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
"""What can be limited, in bytes/s."""

QuotaEntityName = tuple[tuple[str, str | None], ...]
"""(type, name) of each part, sorted by type; None: the default."""


class QuotaOwner(NamedTuple):
    """Who shares one quota: a user, a client id, or a client id of a user; "" for any."""

    user: str
    client_id: str


class QuotaValues(msgspec.Struct, frozen=True):
    """The limits of an entity. `values`: by key, positive."""

    entity: QuotaEntityName
    version: int = 0
    values: dict[str, float] = {}

    @property
    def name(self) -> str:
        return name_of(self.entity)

    @property
    def is_deleted(self) -> bool:
        return not self.values


def name_of(entity: QuotaEntityName) -> str:
    """Return the name of an entity's record."""
    return msgspec.json.encode(entity).decode()


def check_quota(quota: QuotaValues) -> None:
    """Raise ProtocolError if another broker could not have sent this."""
    kinds = [kind for kind, _ in quota.entity]
    if kinds not in ([USER], [CLIENT_ID], [CLIENT_ID, USER]):
        raise ProtocolError(f"{kinds} is no entity that can have quotas")
    check_version(quota.version, "a quota")
    for key, value in quota.values.items():
        if key not in QUOTA_KEYS or not 0 < value < 2**63:
            raise ProtocolError(f"{key[:50]!r} cannot be {value}")


class QuotaStore(VersionedStore[QuotaValues]):
    """The quotas on this disk. Methods that write raise StorageError."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, QuotaValues)
        self._limits: dict[QuotaEntityName, Mapping[str, float]] = {}
        self._limits_of = -1

    @property
    def limit(self) -> int:
        return QUOTAS_MAX

    @property
    def _current(self) -> Mapping[QuotaEntityName, Mapping[str, float]]:
        if self._limits_of != self.changes:
            self._limits_of = self.changes
            self._limits = {
                each.entity: each.values for each in self._records.values() if each.values
            }
        return self._limits

    def found(self) -> list[QuotaValues]:
        """Return all quotas, sorted by the names of their records."""
        return [each for each in self.all() if each.values]

    def find(self, key: str, user: str, client_id: str) -> tuple[float, QuotaOwner] | None:
        """Return what a client is limited to, and with whom it shares that; None if it is not.

        The most specific entity that has a value counts.
        Source: core/kafka/server/ClientQuotaManager.scala, DefaultQuotaCallback.
        """
        limits = self._current
        if not limits:
            return None
        both, of_user, of_client = (
            QuotaOwner(user, client_id),
            QuotaOwner(user, ""),
            QuotaOwner("", client_id),
        )
        for entity, owner in (
            (((CLIENT_ID, client_id), (USER, user)), both),
            (((CLIENT_ID, None), (USER, user)), both),
            (((USER, user),), of_user),
            (((CLIENT_ID, client_id), (USER, None)), both),
            (((CLIENT_ID, None), (USER, None)), both),
            (((USER, None),), of_user),
            (((CLIENT_ID, client_id),), of_client),
            (((CLIENT_ID, None),), of_client),
        ):
            value = limits.get(entity, {}).get(key)
            if value is not None:
                return value, owner
        return None

    def changed(self, entity: QuotaEntityName, values: Mapping[str, float]) -> QuotaValues:
        """Return the next version of an entity's quotas; `merge` stores it."""
        version = self.next_version(name_of(entity))
        return QuotaValues(entity, version, {key: values[key] for key in sorted(values)})

    def has_room(self, entity: QuotaEntityName) -> bool:
        """Return whether the entity can have quotas, or has."""
        return self.get(name_of(entity)) is not None or len(self.names()) < QUOTAS_MAX
