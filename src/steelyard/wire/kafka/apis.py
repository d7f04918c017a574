"""The supported APIs, by key."""

from __future__ import annotations

from steelyard.wire.kafka.messages import (
    cluster,
    configs,
    consumer_groups,
    data,
    groups,
    logins,
    logs,
    offsets,
    topics,
    transactions,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

API_VERSIONS_KEY = cluster.API_VERSIONS.key

_MODULES = (
    data,
    logins,
    logs,
    cluster,
    topics,
    configs,
    groups,
    consumer_groups,
    offsets,
    transactions,
)
_FOUND = [api for module in _MODULES for api in vars(module).values() if isinstance(api, Api)]

APIS: dict[int, Api] = {api.key: api for api in sorted(_FOUND, key=lambda api: api.key)}

KEYS: dict[type[ApiMessage], int] = {api.request: api.key for api in _FOUND}
"""Keys of APIs by the kind of their requests."""
