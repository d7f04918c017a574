"""The supported APIs, by key."""

from __future__ import annotations

from steelyard.wire.kafka.messages import (
    acls,
    cluster,
    configs,
    consumer_groups,
    controllers,
    data,
    groups,
    logins,
    logs,
    offsets,
    placement,
    quotas,
    share_data,
    share_groups,
    streams_groups,
    telemetry,
    tokens,
    topics,
    transactions,
)
from steelyard.wire.kafka.schema import Api, ApiMessage

API_VERSIONS_KEY = cluster.API_VERSIONS.key

_MODULES = (
    acls,
    data,
    logins,
    logs,
    cluster,
    topics,
    configs,
    groups,
    consumer_groups,
    share_groups,
    share_data,
    streams_groups,
    offsets,
    transactions,
    controllers,
    placement,
    quotas,
    telemetry,
    tokens,
)
_FOUND = [api for module in _MODULES for api in vars(module).values() if isinstance(api, Api)]

APIS: dict[int, Api] = {api.key: api for api in sorted(_FOUND, key=lambda api: api.key)}

KEYS: dict[type[ApiMessage], int] = {api.request: api.key for api in _FOUND}
"""Keys of APIs by the kind of their requests."""
